"""The bytes of an HA connection, under any fragmentation."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.ha import (
    TOKEN_MAGIC,
    Chunk,
    ChunkDecoder,
    HaError,
    ReportDecoder,
    encode_chunk_head,
    encode_offset,
    encode_token,
)

OFFSETS = st.integers(0, 2**63 - 1)
CHUNKS = st.lists(st.builds(Chunk, OFFSETS, st.binary(max_size=40)), max_size=6)
TOKEN = bytes(range(16))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    """The data, cut at these places."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@given(CHUNKS, st.lists(st.integers(0, 1000), max_size=8))
def test_chunks_arrive_whole_under_any_fragmentation(chunks: list[Chunk], cuts: list[int]) -> None:
    decoder = ChunkDecoder(40)
    data = b"".join(encode_chunk_head(one.log_offset, len(one.body)) + one.body for one in chunks)
    assert [one for piece in pieces(data, cuts) for one in decoder.feed(piece)] == chunks


@pytest.mark.parametrize(
    ("log_offset", "size"), [(-1, 5), (0, -1), (0, 41), (7, 2**31 - 1)], ids=str
)
def test_a_chunk_that_cannot_be_is_refused_before_its_body_is_kept(
    log_offset: int, size: int
) -> None:
    with pytest.raises(HaError, match=f"{size} bytes for log offset {log_offset}"):
        ChunkDecoder(40).feed(encode_chunk_head(log_offset, size))


@given(st.lists(OFFSETS, min_size=1), st.booleans(), st.lists(st.integers(0, 1000), max_size=8))
def test_the_last_report_counts_under_any_fragmentation(
    offsets: list[int], has_token: bool, cuts: list[int]
) -> None:
    decoder = ReportDecoder()
    data = encode_token(TOKEN) if has_token else b""
    data += b"".join(map(encode_offset, offsets))
    heard = [decoder.feed(piece) for piece in pieces(data, cuts)]
    assert [each for each in heard if each is not None][-1] == offsets[-1]
    assert decoder.token == (TOKEN if has_token else None)


def test_half_a_token_is_waited_for() -> None:
    decoder = ReportDecoder()
    assert decoder.feed(encode_token(TOKEN)[:-1]) is None
    assert decoder.token is None
    assert decoder.feed(encode_token(TOKEN)[-1:] + encode_offset(7)) == 7
    assert decoder.token == TOKEN


@pytest.mark.parametrize("data", [encode_offset(-1), encode_offset(0) + TOKEN_MAGIC])
def test_a_report_that_is_not_an_offset_is_refused(data: bytes) -> None:
    with pytest.raises(HaError, match="negative"):
        ReportDecoder().feed(data)
