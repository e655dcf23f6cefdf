"""The fast CRC is zlib's."""

import zlib

from hypothesis import given
from hypothesis import strategies as some

from sparrowmq.protocol.crc import crc32


@given(some.binary(max_size=2000), some.integers(0, 2**32 - 1))
def test_it_is_the_crc_of_zlib(data: bytes, begin: int) -> None:
    assert crc32(data) == zlib.crc32(data)
    assert crc32(memoryview(data), begin) == zlib.crc32(data, begin)
