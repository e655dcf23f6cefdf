"""The record's layout: what the table of fields promises holds for records that are encoded."""

import pytest

from sparrowmq.protocol import record_layout
from sparrowmq.protocol.record import decode_record, encode_record, topic_part

V4, V6 = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f", bytes(15) + b"\x01\x00\x00\x2a\x9f"


def encoded(born_host: bytes, store_host: bytes) -> bytes:
    return encode_record(
        *(topic_part("orders"), 3, 7, 41, 8_192, 0, 1_000, born_host, 2_000, store_host),
        *(5, 0, b"body", b""),
    )


# The drawing in RocketMQ's documents, and MessageDecoder's constants.
@pytest.mark.parametrize(
    ("field", "at"),
    [("magic", 4), ("queue_id", 12), ("log_offset", 28), ("sys_flag", 36), ("body_size", 84)],
)
def test_fields_lie_where_rocketmq_puts_them(field: str, at: int) -> None:
    assert record_layout.AT[field] == at


@pytest.mark.parametrize("born_host", [V4, V6], ids=["born v4", "born v6"])
@pytest.mark.parametrize("store_host", [V4, V6], ids=["store v4", "store v6"])
def test_heads_and_store_times_are_found_whatever_the_hosts_are(
    born_host: bytes, store_host: bytes
) -> None:
    data = encoded(born_host, store_host)
    record = decode_record(data)
    head = record_layout.HEADS[record.sys_flag & record_layout.HOSTS_V6]
    assert data[head.size : head.size + 4] == b"body"
    assert record_layout.store_timestamp(data[: record_layout.STORE_TIMESTAMP_BYTES]) == 2_000


def test_numpy_sees_the_same_fields_as_struct() -> None:
    numpy = pytest.importorskip("numpy")
    data = encoded(V4, V4)
    dtype = numpy.dtype(record_layout.HEAD_DTYPE)
    assert dtype.itemsize == record_layout.HEAD_SIZE
    assert {name: dtype.fields[name][1] for name in dtype.names} == record_layout.AT
    row = numpy.frombuffer(data, dtype, count=1)[0]
    record = decode_record(data)
    for name in ("size", "body_crc", "flag", "queue_offset", "born_timestamp", "reconsume_times"):
        assert row[name] == getattr(record, name)
