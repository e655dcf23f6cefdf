"""Compressed bodies: Java's bytes, bounded output, broken data."""

import contextlib
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.compression import (
    DEFAULT_LEVEL,
    MAX_PLAIN_BYTES,
    CompressionType,
    compress,
    decompress,
)
from sparrowmq.protocol.errors import BodyError, TooLarge
from sparrowmq.protocol.sys_flag import COMPRESSED
from tests.protocol.java_vectors import case_id, cases

kinds = pytest.mark.parametrize("kind", list(CompressionType), ids=lambda kind: str(kind.name))


@kinds
@given(data=st.binary(max_size=2_000))
def test_a_body_survives_the_round_trip(kind: CompressionType, data: bytes) -> None:
    assert decompress(compress(data, kind), kind) == data


@pytest.mark.parametrize("case", cases("compression"), ids=case_id)
def test_what_java_compressed_is_read(case: dict[str, Any]) -> None:
    kind = CompressionType.of(case["sys_flag"])
    assert kind.name == case["type"].upper()
    assert kind.flag == case["sys_flag"]
    assert decompress(bytes.fromhex(case["compressed"]), kind).hex() == case["plain"]


ZLIB_CASES = [case for case in cases("compression") if case["type"] == "zlib"]


@pytest.mark.parametrize("case", ZLIB_CASES, ids=case_id)
def test_zlib_is_compressed_to_javas_bytes(case: dict[str, Any]) -> None:
    compressed = compress(bytes.fromhex(case["plain"]), CompressionType.ZLIB, case["level"])
    assert compressed.hex() == case["compressed"]


def test_lz4_blocks_are_independent_because_java_refuses_linked_ones() -> None:
    flags = compress(b"x" * 200_000, CompressionType.LZ4)[4]
    assert flags & 0x20, "block independence"
    assert not flags & 0x08, "no content size, as Java leaves it out"


@kinds
def test_output_stops_at_the_limit(kind: CompressionType) -> None:
    bomb = compress(bytes(64 * 1024 * 1024), kind)
    with pytest.raises(TooLarge, match=f"at most {MAX_PLAIN_BYTES} allowed") as caught:
        decompress(bomb, kind)
    assert caught.value.limit_bytes == MAX_PLAIN_BYTES


@kinds
def test_a_body_of_exactly_the_limit_is_allowed(kind: CompressionType) -> None:
    packed = compress(bytes(1_000), kind)
    assert decompress(packed, kind, 1_000) == bytes(1_000)
    with pytest.raises(TooLarge):
        decompress(packed, kind, 999)


def test_a_zstd_stream_without_a_size_stops_at_the_limit() -> None:
    from zstandard import ZstdCompressor

    stream = ZstdCompressor().compressobj()
    packed = stream.compress(bytes(10_000)) + stream.flush()
    assert decompress(packed, CompressionType.ZSTD, 10_000) == bytes(10_000)
    with pytest.raises(TooLarge, match="at most 9999 allowed"):
        decompress(packed, CompressionType.ZSTD, 9_999)


@kinds
@given(data=st.data())
def test_a_cut_body_is_refused(kind: CompressionType, data: st.DataObject) -> None:
    plain = data.draw(st.binary(min_size=1, max_size=300))
    packed = compress(plain, kind)
    # The last bytes of lz4 (end mark) and zlib (checksum) matter as well
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(BodyError, match=f"broken {kind.name.lower()} data"):
        decompress(packed[:cut], kind)


@kinds
@given(data=st.binary(max_size=100))
def test_any_bytes_are_a_body_or_an_error(kind: CompressionType, data: bytes) -> None:
    with contextlib.suppress(BodyError):
        decompress(data, kind, 10_000)


def test_a_flag_without_a_type_means_zlib_as_before_5_0() -> None:
    assert CompressionType.of(COMPRESSED) is CompressionType.ZLIB
    assert decompress(zlib.compress(b"old"), CompressionType.of(COMPRESSED)) == b"old"


@pytest.mark.parametrize("value", [4, 5, 6, 7])
def test_an_unknown_type_is_refused(value: int) -> None:
    with pytest.raises(BodyError, match=f"compression type {value}, known are"):
        CompressionType.of(value << 8)


def test_a_body_may_have_4_mib_and_a_little_and_is_compressed_as_javas_clients_do() -> None:
    assert MAX_PLAIN_BYTES == 4_194_304 + 65_536
    assert DEFAULT_LEVEL == 5
