"""Stored records for the tests."""

from typing import Any

from sparrowmq.protocol.properties import encode_properties
from sparrowmq.protocol.record import encode_record, topic_part

V4 = b"\x7f\x00\x00\x01\x00\x00\x1f\x90"
V6 = bytes(15) + b"\x01\x00\x00\x1f\x90"


def record(**changes: Any) -> bytes:
    """A record like any other, but for the changes."""
    parts: dict[str, Any] = {
        "topic": topic_part("orders"),
        "queue_id": 3,
        "flag": 0,
        "queue_offset": 7,
        "log_offset": 4711,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_123,
        "born_host": V4,
        "store_timestamp": 1_700_000_000_456,
        "store_host": V4,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": b"hello",
        "properties": encode_properties({"TAGS": "a", "UNIQ_KEY": "ID", "KEYS": "k1 k2"}),
    }
    return encode_record(**{**parts, **changes})
