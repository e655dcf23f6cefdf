"""Batch bodies, both ways."""

import re
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.batch import BatchedMessage, decode_batch, decode_columns, encode_batch
from sparrowmq.protocol.errors import BodyError
from tests.protocol.java_vectors import case_id, cases

flags = st.integers(-(2**31), 2**31 - 1)
messages = st.tuples(flags, st.binary(max_size=64), st.binary(max_size=64))


def batched(case: dict[str, Any]) -> list[BatchedMessage]:
    return [
        (message["flag"], bytes.fromhex(message["body"]), message["properties"].encode())
        for message in case["messages"]
    ]


@given(st.lists(messages, max_size=6))
def test_a_batch_survives_the_round_trip(batch: list[BatchedMessage]) -> None:
    assert decode_batch(encode_batch(batch)) == batch


@pytest.mark.parametrize("case", cases("batches"), ids=case_id)
def test_java_vectors_are_equal_both_ways(case: dict[str, Any]) -> None:
    data = bytes.fromhex(case["encoded"])
    assert encode_batch(batched(case)) == data
    assert decode_batch(data) == batched(case)


equal_shapes = st.tuples(st.integers(0, 8), st.integers(0, 8)).flatmap(
    lambda sizes: st.lists(
        st.tuples(
            flags,
            st.binary(min_size=sizes[0], max_size=sizes[0]),
            st.binary(min_size=sizes[1], max_size=sizes[1]),
        ),
        min_size=1,
        max_size=6,
    )
)


@given(st.one_of(equal_shapes, st.lists(messages, min_size=1, max_size=6)))
def test_columns_hold_the_fields_of_the_messages(batch: list[BatchedMessage]) -> None:
    assert list(zip(*decode_columns(encode_batch(batch)), strict=True)) == batch


def head(size: int, crc: int, body_size: int) -> bytes:
    return struct.pack(">iiiii", size, 0, crc, 0, body_size)


NEGATIVE_BODY = head(32, 20, -10) + bytes(12)
"""The size of the properties is read from the CRC, and everything adds up."""
OVERLAPPING = head(38, 0, 40) + bytes(18) + head(26, 0, 4) + bytes(2) + b"\xff\xe8" + bytes(2)
"""Properties of -24 bytes: the second message begins inside the body of the first."""
STANDING_STILL = head(0, 0, -22) + bytes(2)
"""A message of no bytes, which is followed by itself."""


@pytest.mark.parametrize(
    "data",
    [NEGATIVE_BODY, OVERLAPPING, STANDING_STILL],
    ids=["a negative body", "overlapping messages", "standing still"],
)
@pytest.mark.parametrize("decode", [decode_batch, decode_columns])
def test_a_negative_size_is_refused_though_everything_adds_up(
    decode: Callable[[bytes], object], data: bytes
) -> None:
    with pytest.raises(BodyError):
        decode(data)


@given(equal_shapes, st.data())
def test_columns_are_refused_as_the_messages_are(
    batch: list[BatchedMessage], data: st.DataObject
) -> None:
    encoded = bytearray(encode_batch(batch))
    at = data.draw(st.integers(0, len(encoded) - 1))
    encoded[at] ^= data.draw(st.integers(1, 255))
    try:
        expected = decode_batch(bytes(encoded))
    except BodyError as error:
        with pytest.raises(BodyError, match=re.escape(str(error))):
            decode_columns(bytes(encoded))
    else:
        assert list(zip(*decode_columns(bytes(encoded)), strict=True)) == expected


def test_empty_bytes_hold_no_messages() -> None:
    assert decode_columns(b"") == ((), (), ())


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_a_cut_batch_is_refused_or_a_shorter_batch(
    batch: list[BatchedMessage], data: st.DataObject
) -> None:
    encoded = encode_batch(batch)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    ends = [len(encode_batch(batch[:count])) for count in range(len(batch))]
    if cut in ends:
        assert decode_batch(encoded[:cut]) == batch[: ends.index(cut)]
    else:
        with pytest.raises(BodyError, match="batch message at"):
            decode_batch(encoded[:cut])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_batch_or_an_error(data: bytes) -> None:
    try:
        batch = decode_batch(data)
    except BodyError:
        return
    assert len(encode_batch(batch)) == len(data)


@pytest.mark.parametrize("position", [0, 16, 23])
def test_a_wrong_size_is_refused(position: int) -> None:
    encoded = bytearray(encode_batch([(0, b"abc", b"k\x01v\x02"), (0, b"d", b"")]))
    encoded[position] = 0xFF
    with pytest.raises(BodyError, match="batch message at 0"):
        decode_batch(bytes(encoded))


def test_properties_over_the_limit_are_refused() -> None:
    assert decode_batch(encode_batch([(0, b"", b"x" * 32_767)])) == [(0, b"", b"x" * 32_767)]
    with pytest.raises(ValueError, match="32768 bytes, at most 32767"):
        encode_batch([(0, b"", b"x" * 32_768)])
