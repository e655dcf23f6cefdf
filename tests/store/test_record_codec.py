"""The record's bytes: round trip, every flipped bit noticed, every truncation refused."""

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.record import (
    RecordError,
    check_record,
    decode_record,
    encode_record,
    topic_part,
)
from sparrowmq.protocol.record_layout import CRC_PROPERTY_SIZE, MAGIC_V1, MAGIC_V2

V4 = bytes((10, 0, 0, 1, 0, 0, 0x2A, 0x9F))
V6 = bytes(range(16)) + bytes((0, 0, 0x2A, 0x9F))
HOSTS = st.sampled_from((V4, V6))
INT = st.integers(-(2**31), 2**31 - 1)
LONG = st.integers(0, 2**63 - 1)


def encoded(body: bytes = b"body", properties: bytes = b"A\x01b\x02", crc: bool = True) -> bytes:
    return encode_record(
        topic_part("orders"), 1, 2, 3, 4, 0, 5, V4, 6, V4, 7, 8, body, properties, crc
    )


@given(
    topic=st.text(st.characters(min_codepoint=33, max_codepoint=0x2FFF), max_size=200),
    queue_id=INT,
    flag=INT,
    queue_offset=LONG,
    log_offset=LONG,
    born_host=HOSTS,
    store_host=HOSTS,
    times=st.tuples(LONG, LONG),
    reconsume=INT,
    prepared=LONG,
    body=st.binary(max_size=300),
    properties=st.binary(max_size=300),
    crc=st.booleans(),
    around=st.tuples(st.binary(max_size=20), st.binary(max_size=20)),
)
def test_a_record_round_trips(
    topic: str,
    queue_id: int,
    flag: int,
    queue_offset: int,
    log_offset: int,
    born_host: bytes,
    store_host: bytes,
    times: tuple[int, int],
    reconsume: int,
    prepared: int,
    body: bytes,
    properties: bytes,
    crc: bool,
    around: tuple[bytes, bytes],
) -> None:
    data = encode_record(
        topic_part(topic),
        queue_id,
        flag,
        queue_offset,
        log_offset,
        0,
        times[0],
        born_host,
        times[1],
        store_host,
        reconsume,
        prepared,
        body,
        properties,
        crc,
    )
    record = decode_record(around[0] + data + around[1], len(around[0]))
    assert record.size == len(data)
    assert record.magic == (MAGIC_V2 if len(topic.encode()) > 127 else MAGIC_V1)
    assert (record.topic, record.queue_id, record.flag) == (topic, queue_id, flag)
    assert (record.queue_offset, record.log_offset) == (queue_offset, log_offset)
    assert (record.born_host, record.store_host) == (born_host, store_host)
    assert (record.born_timestamp, record.store_timestamp) == times
    assert (record.reconsume_times, record.prepared_transaction_offset) == (reconsume, prepared)
    assert (record.body, record.body_crc) == (body, crc32(body) & 0x7FFFFFFF)
    assert record.properties.startswith(properties)
    assert crc or record.properties == properties


def test_the_whole_record_crc_is_apaches() -> None:
    """MessageDecoder.createCrc32: ten digits, the lowest first, behind a separator."""
    data = encoded(properties=b"A\x01b")
    covered, tail = data[:-CRC_PROPERTY_SIZE], data[-CRC_PROPERTY_SIZE:]
    assert covered.endswith(b"A\x01b\x02")
    assert tail[:9] == b"__CRC32#\x01"
    assert tail[19:] == b"\x02"
    digits = tail[9:19].decode()
    assert sum(int(digit) * 10**place for place, digit in enumerate(digits)) == (
        crc32(covered) & 0x7FFFFFFF
    )


@pytest.mark.parametrize("flip", [0x01, 0x10, 0x80, 0xFF])
def test_every_flipped_byte_is_noticed(flip: int) -> None:
    data = encoded(body=b"a body", properties=b"KEYS\x01k1 k2\x02TAGS\x01t\x02")
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= flip
        with pytest.raises(RecordError):
            check_record(damaged, 0, 4)


def test_without_the_record_crc_only_the_body_is_safe() -> None:
    data = encoded(crc=False)
    damaged = bytearray(data)
    damaged[data.index(b"A\x01")] ^= 0x02
    assert check_record(damaged, 0, 4).properties == b"C\x01b\x02"
    damaged = bytearray(data)
    damaged[data.index(b"body")] ^= 0x02
    with pytest.raises(RecordError, match="body CRC"):
        check_record(damaged, 0, 4)


def test_every_cut_is_refused() -> None:
    data = encoded()
    for length in range(len(data)):
        with pytest.raises(RecordError):
            decode_record(data[:length])


def test_a_record_must_lie_where_it_says() -> None:
    with pytest.raises(RecordError, match="says it lies at 4, lies at 5"):
        check_record(encoded(), 0, 5)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_refused_not_believed(data: bytes) -> None:
    with pytest.raises(RecordError):
        decode_record(b"\x00\x00\x00\x01" + data)


def test_properties_that_leave_no_room_for_the_crc_are_stored_without_it() -> None:
    properties = b"A\x01" + b"x" * 32_763 + b"\x02"
    assert decode_record(encoded(properties=properties)).properties == properties
