"""Addresses: as `(host, port)`, as text, and as stored in a record.

IPv4  4 bytes address, 4 bytes port        IPv6  16 bytes address, 4 bytes port
"""

from ipaddress import ip_address
from typing import TypeAlias

from sparrowmq.protocol.errors import BodyError

Address: TypeAlias = tuple[str, int]
"""An IP address or host name, and a port."""

_SIZES = (8, 20)


def encode_host(host: str, port: int) -> bytes:
    """The 8 or 20 bytes of an address. Raises ValueError if `host` is not an IP address."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        raise ValueError(f"host {host!r} is not an IPv4 or IPv6 address") from None
    if not 0 <= port <= 65_535:
        raise ValueError(f"port {port}, must be 0 to 65535")
    return address.packed + port.to_bytes(4, "big")


def decode_host(data: bytes) -> Address:
    """The address in 8 or 20 bytes. Raises BodyError for any other length."""
    if len(data) not in _SIZES:
        raise BodyError(f"a host of {len(data)} bytes, must be 8 (IPv4) or 20 (IPv6)")
    return ip_text(data[:-4]), int.from_bytes(data[-4:], "big")


def ip_text(packed: bytes) -> str:
    """The text of a 4 or 16 byte address."""
    if len(packed) == 4:
        return f"{packed[0]}.{packed[1]}.{packed[2]}.{packed[3]}"
    return str(ip_address(packed))


def parse_address(text: str) -> Address:
    """Read `host:port`; IPv6 with or without brackets. Raises ValueError."""
    refuse_scheme(text)
    host, _, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"address {text!r} is not host:port")
    refuse_port(text, port)
    return host, int(port)


def refuse_port(address: str, digits: str) -> None:
    """Raise ValueError if the port of an address is too large."""
    if len(digits.lstrip("0")) > 5 or int(digits) > 65_535:
        raise ValueError(f"address {address!r} has port {digits[:20]}, must be 1 to 65535")


def refuse_scheme(text: str) -> None:
    """Raise ValueError with the correct form if an address is written as a URL."""
    scheme, _, rest = text.strip().rpartition("://")
    if scheme:
        rest = rest.partition("/")[0]
        raise ValueError(f"address {text!r} is not host:port: write {rest!r}, without {scheme}")


def format_address(address: Address) -> str:
    """`host:port`; an IPv6 address in brackets."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
