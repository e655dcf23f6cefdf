"""The address of this machine, as the ids of clients and messages carry it."""

import asyncio
import ipaddress
import socket
from typing import Any


async def find_own_address(name_server: str) -> str:
    """The same without stopping the loop: a name may have to be looked up, and that takes time."""
    host = name_server.rpartition(":")[0].strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, own_address, name_server)
    return own_address(name_server)


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
