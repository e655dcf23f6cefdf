"""Addresses as text and as records store them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.hosts import decode_host, encode_host, format_address, parse_address

ports = st.integers(0, 65_535)
addresses = st.tuples(st.ip_addresses().map(str), ports)


@given(addresses)
def test_an_address_survives_bytes_and_text(address: tuple[str, int]) -> None:
    assert decode_host(encode_host(*address)) == address
    assert parse_address(format_address(address)) == address


def test_the_layout_is_address_then_port_in_four_bytes() -> None:
    assert encode_host("127.0.0.1", 10911).hex() == "7f00000100002a9f"
    assert encode_host("::1", 10911).hex() == "0" * 31 + "100002a9f"


def test_only_an_ipv6_address_is_written_in_brackets() -> None:
    assert format_address(("::1", 9876)) == "[::1]:9876"
    assert format_address(("10.0.0.1", 9876)) == "10.0.0.1:9876"


def test_java_writes_ipv6_without_brackets_and_is_understood() -> None:
    assert parse_address("0:0:0:0:0:0:0:1:10911") == ("0:0:0:0:0:0:0:1", 10911)
    assert parse_address("broker-a.example:10911") == ("broker-a.example", 10911)


def test_a_zone_is_not_stored() -> None:
    assert encode_host("fe80::1%eth0", 1) == encode_host("fe80::1", 1)


def test_a_name_cannot_be_stored() -> None:
    with pytest.raises(ValueError, match="'localhost' is not an IPv4 or IPv6 address"):
        encode_host("localhost", 10911)


@pytest.mark.parametrize("port", [-1, 65_536])
def test_ports_have_a_range(port: int) -> None:
    with pytest.raises(ValueError, match="must be 0 to 65535"):
        encode_host("127.0.0.1", port)


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:x", "host:-1", "h:²"])
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not host:port"):
        parse_address(text)


@pytest.mark.parametrize("text", ["host:65536", "[::1]:99999", f"host:{'9' * 5000}"])
def test_a_port_that_is_too_large_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError, match="must be 1 to 65535"):
        parse_address(text)


@pytest.mark.parametrize("size", [0, 7, 9, 19, 21])
def test_bytes_of_another_length_are_refused(size: int) -> None:
    with pytest.raises(BodyError, match="must be 8"):
        decode_host(bytes(size))
