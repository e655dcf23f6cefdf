"""The address of this machine, as the ids of clients and messages carry it."""

import socket
from typing import Any


def own_address(name_server: str) -> str:
    """The local address that reaches a name server: a connected UDP socket sends nothing."""
    host, _, port = name_server.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            address: Any = probe.getsockname()
            return str(address[0])
    except (OSError, ValueError):
        return "127.0.0.1"


def packed(ip: str) -> bytes:
    """Four or sixteen bytes; a name counts as 127.0.0.1."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    except OSError:
        return bytes((127, 0, 0, 1))
