"""Frames are decoded from any fragmentation; wrong lengths are noticed early."""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.errors import FrameError
from sparrowmq.protocol.frame import Frame, FrameDecoder, encode_frame, encode_frame_of

frames = st.tuples(st.booleans(), st.binary(max_size=60), st.binary(max_size=200))


def encoded(frame: Frame) -> bytes:
    binary, header, body = frame
    return encode_frame(header, body, binary=binary)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    places = sorted({place % (len(data) + 1) for place in at} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@given(st.lists(frames, max_size=8), st.lists(st.integers(0, 10_000), max_size=30))
def test_frames_come_out_in_order_under_any_fragmentation(sent: list[Frame], at: list[int]) -> None:
    held = [0]
    decoder = FrameDecoder(watch=held.append)
    stream = b"".join(map(encoded, sent))
    received = [frame for piece in cut(stream, at) for frame in decoder.feed(piece)]
    assert received == sent
    assert held[-1] == 0


@given(frames, frames)
def test_bytes_one_by_one_give_each_frame_with_its_last_byte(one: Frame, two: Frame) -> None:
    decoder = FrameDecoder()
    first, stream = encoded(one), encoded(one) + encoded(two)
    received = [decoder.feed(stream[at : at + 1]) for at in range(len(stream))]
    assert received[len(first) - 1] == [one]
    assert received[-1] == [two]
    assert sum(map(len, received)) == 2


@given(st.booleans(), st.binary(max_size=60), st.lists(st.binary(max_size=50), max_size=6))
def test_a_body_in_pieces_gives_the_same_frame(
    binary: bool, header: bytes, chunks: list[bytes]
) -> None:
    body = b"".join(chunks)
    pieces = [memoryview(chunk) for chunk in chunks]
    assert encode_frame_of(header, pieces, len(body), binary=binary) == encode_frame(
        header, body, binary=binary
    )


def test_a_frame_has_the_layout_of_the_protocol() -> None:
    assert encode_frame(b"{}", b"ab") == b"\x00\x00\x00\x08\x00\x00\x00\x02{}ab"
    assert encode_frame(b"hdr", binary=True) == b"\x00\x00\x00\x07\x01\x00\x00\x03hdr"


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (struct.pack(">II", 1001, 2), "frame of 1001 bytes, at most 1000 allowed"),
        (struct.pack(">II", 0xFFFFFFFF, 2), "frame of 4294967295 bytes, at most 1000 allowed"),
        (struct.pack(">II", 10, 7), "header of 7 bytes in a frame of 10 bytes"),
        (struct.pack(">II", 3, 0), "header of 0 bytes in a frame of 3 bytes"),
        (struct.pack(">II", 0, 0), "header of 0 bytes in a frame of 0 bytes"),
        (struct.pack(">II", 500, 101), "header of 101 bytes, at most 100 allowed"),
        (struct.pack(">II", 10, 2 << 24 | 2), "header serialisation 2"),
        (struct.pack(">II", 10, 0xFF000002), "header serialisation 255"),
    ],
)
def test_a_wrong_length_is_noticed_before_anything_is_buffered(start: bytes, says: str) -> None:
    decoder = FrameDecoder(max_frame_bytes=1000, max_header_bytes=100)
    with pytest.raises(FrameError, match=says):
        decoder.feed(start)
    decoder = FrameDecoder(max_frame_bytes=1000, max_header_bytes=100)
    decoder.feed(encode_frame(b"{}") + start[:5])
    with pytest.raises(FrameError, match=says):
        decoder.feed(start[5:])


def test_the_largest_allowed_frame_and_header_pass() -> None:
    decoder = FrameDecoder(max_frame_bytes=1000, max_header_bytes=100)
    whole = encode_frame(bytes(100), bytes(896))
    assert len(whole) == 1004
    assert decoder.feed(whole) == [(False, bytes(100), bytes(896))]


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=10))
def test_noise_is_held_within_bounds_or_refused(noise: bytes, at: list[int]) -> None:
    held = [0]
    decoder = FrameDecoder(max_frame_bytes=100, max_header_bytes=50, watch=held.append)
    try:
        for piece in cut(noise, at):
            decoder.feed(piece)
    except FrameError:
        pass
    assert max(held) <= 104
