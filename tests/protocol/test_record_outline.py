"""Outlines of consecutive records: equal to the whole records, and never of a damaged one."""

from collections.abc import Sequence
from zlib import crc32

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.record import check_record, encode_blank, encode_record, topic_part
from sparrowmq.protocol.record_layout import AT, CRC_HEAD, CRC_PROPERTY_SIZE, HEAD_SIZE
from sparrowmq.protocol.record_outline import RecordOutline, outline_run

V4 = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
V6 = bytes(range(16)) + bytes((0, 0, 0x2A, 0x9F))
START = 1 << 20
FAR = 1 << 40

records = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(("orders", "paid", "größe", "t" * 127)),
        "queue_id": st.integers(0, 7),
        "queue_offset": st.integers(0, 2**63 - 1),
        "sys_flag": st.sampled_from((0, 0x1, 0x4, 0x8, 0xC)),
        "body": st.binary(max_size=60),
        "properties": st.sampled_from((b"", b"TAGS\x01a", b"UNIQ_KEY\x01ID7\x02KEYS\x01k1 k2\x02")),
    }
)


def encoded(
    at: int = START,
    *,
    topic: str = "orders",
    queue_id: int = 1,
    queue_offset: int = 3,
    sys_flag: int = 0,
    body: bytes = b"body",
    properties: bytes = b"UNIQ_KEY\x01ID7\x02",
    host: bytes = V4,
    crc: bool = True,
) -> bytes:
    return encode_record(
        topic_part(topic),
        *(queue_id, 2, queue_offset, at, sys_flag, 5, host, 1_700_000_000_000, V4, 7, 8),
        *(body, properties, crc),
    )


def in_a_row(some: Sequence[dict[str, object]]) -> bytes:
    data = b""
    for one in some:
        data += encoded(START + len(data), **one)  # type: ignore[arg-type]
    return data


@given(st.lists(records, min_size=1, max_size=6), st.binary(max_size=9))
def test_an_outline_agrees_with_the_whole_record(
    some: list[dict[str, object]], before: bytes
) -> None:
    data = before + in_a_row(some)
    run = outline_run(data, len(before), START, FAR)
    assert len(run) == len(some)
    at = len(before)
    for outline in run:
        whole = RecordOutline.of(check_record(data, at, START + at - len(before)))
        properties = whole.properties[:-CRC_PROPERTY_SIZE]
        assert outline == msgspec.structs.replace(whole, properties=properties)
        at += outline.size


UNUSUAL = {
    "it has an IPv6 host": encoded(host=V6),
    "its topic is long": encoded(topic="t" * 128),
    "it has no CRC": encoded(crc=False),
    "it lies elsewhere": encoded(START + 1),
    "it is a blank": encode_blank(4096) + bytes(4088),
    "it is incomplete": encoded()[:-1],
    "its head is incomplete": encoded()[:40],
    "there is nothing": b"",
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_a_run_ends_before_what_is_not_an_ordinary_record(case: str) -> None:
    first = encoded(START - len(encoded()))
    assert outline_run(UNUSUAL[case], 0, START, FAR) == []
    assert len(outline_run(first + UNUSUAL[case], 0, START - len(first), FAR)) == 1


@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80, 0xFF])
def test_a_run_ends_before_a_flipped_byte(flip: int) -> None:
    first = encoded()
    second = encoded(START + len(first), properties=b"KEYS\x01k1 k2\x02TAGS\x01t\x02")
    for position in range(len(first), len(first) + len(second)):
        damaged = bytearray(first + second)
        damaged[position] ^= flip
        assert len(outline_run(bytes(damaged), 0, START, FAR)) == 1, position


def test_a_run_ends_at_its_limit() -> None:
    data = in_a_row([{}, {}])
    size = len(data) // 2
    for limit, count in ((size - 1, 0), (size, 1), (2 * size - 1, 1), (2 * size, 2)):
        assert len(outline_run(data, 0, START, START + limit)) == count


LENGTHS = {"body": AT["body_size"] + 3, "topic": HEAD_SIZE + 4, "properties": HEAD_SIZE + 4 + 8}
"""Where the last byte of each length lies in a record with a body of 4 and a topic of 6 bytes."""


@pytest.mark.parametrize("part", LENGTHS)
@pytest.mark.parametrize("flip", [0x01, 0x08, 0x7F, 0x80])
def test_a_wrong_length_ends_a_run_though_the_crc_is_right(part: str, flip: int) -> None:
    covered = bytearray(encoded()[:-CRC_PROPERTY_SIZE])
    assert len(outline_run(with_crc(covered), 0, START, FAR)) == 1
    covered[LENGTHS[part]] ^= flip
    assert outline_run(with_crc(covered), 0, START, FAR) == []


def with_crc(covered: bytes | bytearray) -> bytes:
    digits = b"%010d" % (crc32(covered) & 0x7FFFFFFF)
    return bytes(covered) + CRC_HEAD + digits[::-1] + b"\x02"
