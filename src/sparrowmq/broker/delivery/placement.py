"""Where a message is stored first: in its own queue, or in one of the broker's queues until it may
be delivered.

```
place ─┬ its own queue                    nothing special about it, or its time has come already
       ├ SCHEDULE_TOPIC_XXXX  queue n-1   a delay level (DELAY); overrides a delivery time
       ├ rmq_sys_wheel_timer  queue 0     a delivery time (TIMER_*)
       └ RMQ_SYS_TRANS_HALF_TOPIC queue 0 a half message (TRAN_MSG), until its transaction ends
```

A message that waits carries its topic and queue in REAL_TOPIC and REAL_QID, as in Apache's stores.
"""

import re
from collections.abc import Collection, Mapping

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.delay_properties import (
    DELAYS,
    TIMES,
    delay_level,
    delivery_ms,
    slot_ms,
)
from sparrowmq.broker.delivery.half_messages import immunity_ms
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC, is_retry_topic
from sparrowmq.protocol.properties import (
    CHECK_IMMUNITY_TIME_S,
    CRC32,
    DELAY_LEVEL,
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELETE_UNIQUE_KEY,
    TIMER_OUT_MS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_ID,
    TRANSACTION_PREPARED,
    TRANSACTION_PREPARED_QUEUE_OFFSET,
    decode_properties,
    parse_properties,
)
from sparrowmq.protocol.record import Record
from sparrowmq.protocol.sys_flag import TRANSACTION_NONE, with_transaction_type
from sparrowmq.store.messages import PutMessage, Stored

SPECIAL = DELAYS | {TRANSACTION_PREPARED}
"""A message without any of these goes straight to its queue."""
_BROKERS_OWN = frozenset({TRANSACTION_CHECK_TIMES, TRANSACTION_PREPARED_QUEUE_OFFSET})
_SET_BY_DIVERT = frozenset({REAL_TOPIC, REAL_QUEUE_ID, TIMER_OUT_MS, TRANSACTION_ID})
"""Properties that the broker sets when it diverts a message."""


class Placement(msgspec.Struct, gc=False):
    """A message, modified for the queue in which it is stored first."""

    put: PutMessage
    due_ms: int = 0
    """When it is due; 0 if it is delivered at once."""
    is_recall: bool = False
    """Recall marker, not a message."""
    handle_ms: int = 0
    """The time in its recall handle; 0 if it cannot be recalled."""
    attempts: int = 0
    """For a dead letter, how often its group tried to consume it; otherwise 0."""
    consumed_from: str = ""
    """The topic to which a dead letter was originally sent."""


def place(
    broker: Broker,
    put: PutMessage,
    fields: Mapping[str, str],
    now_ms: int,
    *,
    producer_group: str = "",
) -> Placement:
    """Decide where a message goes, and change it accordingly. `fields` are its properties.

    Raises RequestRefused and leaves the message unchanged then.
    """
    if TRANSACTION_PREPARED in fields and _is_half(put, fields):
        return place_half(broker, put, fields, now_ms, producer_group)
    if DELAY_LEVEL in fields and (level := delay_level(fields)) > 0:
        return place_delayed(broker, put, fields, level, now_ms)
    if not TIMES.isdisjoint(fields):
        return place_timed(broker, put, fields, now_ms)
    return Placement(put)


def _is_half(put: PutMessage, fields: Mapping[str, str]) -> bool:
    return fields[TRANSACTION_PREPARED].lower() == "true" and not is_retry_topic(put.topic)


def place_delayed(
    broker: Broker, put: PutMessage, fields: Mapping[str, str], level: int, now_ms: int
) -> Placement:
    """Place a message in the queue of a delay level."""
    levels_ms = broker.config.store.delay_levels_ms
    level = min(level, len(levels_ms))
    due_ms = now_ms + levels_ms[level - 1]
    if fields.get(DELAY_LEVEL) == str(level):
        divert(put, fields, SCHEDULE_TOPIC, level - 1, without=TIMES)
    else:
        values = f"{DELAY_LEVEL}\x01{level}\x02"
        divert(put, fields, SCHEDULE_TOPIC, level - 1, values, without=DELAYS)
    # The queue unit of a delayed message holds its delivery time instead of the tag's hash.
    put.tags_code = due_ms
    return Placement(put, due_ms)


def place_timed(
    broker: Broker, put: PutMessage, fields: Mapping[str, str], now_ms: int
) -> Placement:
    """Place a message in the timer queue, unless its time has already passed."""
    asked_ms = delivery_ms(fields, now_ms, broker.config.max_timer_delay_s)
    is_recall = TIMER_DELETE_UNIQUE_KEY in fields
    if asked_ms <= now_ms:
        if is_recall:
            text = "a message whose delivery time has passed cannot be recalled"
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, text)
        return Placement(put)
    out_ms = slot_ms(asked_ms)
    # One past the start of the slot, as in Apache's: the slot is found again from that.
    handle_ms = 0 if is_recall or is_retry_topic(put.topic) else out_ms + 1
    divert(put, fields, TIMER_TOPIC, 0, f"TIMER_OUT_MS\x01{out_ms}\x02")
    return Placement(put, out_ms if is_recall else asked_ms, is_recall, handle_ms)


def place_half(
    broker: Broker, put: PutMessage, fields: Mapping[str, str], now_ms: int, producer_group: str
) -> Placement:
    """Place a message in the queue of half messages. A delay counts from the commit."""
    # Refuse an invalid delay now rather than when the transaction is committed.
    if not DELAYS.isdisjoint(fields):
        is_timed = delay_level(fields) <= 0 and not TIMES.isdisjoint(fields)
        if is_timed:
            place_timed(broker, msgspec.structs.replace(put), fields, now_ms)
    values = f"__transactionId__\x01{put.uniq_key}\x02"
    if not fields.get(PRODUCER_GROUP):
        values += f"{PRODUCER_GROUP}\x01{producer_group}\x02"
    divert(put, fields, TRANS_HALF_TOPIC, 0, values, without=_BROKERS_OWN)
    put.sys_flag = with_transaction_type(put.sys_flag, TRANSACTION_NONE)
    timeout_ms = int(broker.config.transaction_timeout_s * 1000)
    if CHECK_IMMUNITY_TIME_S in fields:
        timeout_ms = immunity_ms(fields, timeout_ms)
    return Placement(put, now_ms + timeout_ms)


def divert(
    put: PutMessage,
    fields: Mapping[str, str],
    topic: str,
    queue_id: int,
    values: str = "",
    *,
    without: frozenset[str] = frozenset(),
) -> None:
    """Redirect a message to one of the broker's queues to wait there, with these properties set."""
    text = values + real_queue_properties(put.topic, put.queue_id)
    if _SET_BY_DIVERT.isdisjoint(fields) and without.isdisjoint(fields):
        # Nearly always; and much cheaper than taking all of them apart.
        put.properties += text.encode()
    else:
        put.properties = with_properties(
            put.properties, fields, parse_properties(text), without=without
        )
    put.topic, put.queue_id = topic, queue_id


def append(broker: Broker, placement: Placement, now_ms: int) -> Stored:
    """Store a placed message, and notify the part of the broker that handles it next.

    Raises DiskFull, StoreStopped, MessageTooLarge.
    """
    put = placement.put
    stored = broker.store.append(put, now_ms)
    topic = put.topic
    if topic == TIMER_TOPIC:
        broker.delivery.timers.add(placement.due_ms, stored.queue_offset, placement.is_recall)
    elif topic == SCHEDULE_TOPIC:
        broker.delivery.levels.alarm.due_at(placement.due_ms)
    elif topic == TRANS_HALF_TOPIC:
        wait_ms = placement.due_ms - now_ms
        due_ms = broker.monotonic() + wait_ms
        broker.delivery.halves.add(stored.queue_offset, stored.log_offset, due_ms)
    else:
        broker.durability.announce(topic, put.queue_id)
    return stored


# ---- the same from the raw properties, for what nearly all special messages ask for
#
# ```
# place_quickly ─┬ one delivery time    \x02 TIMER_DELIVER_MS \x01 1794741940696 \x02
#                ├ one delay level      \x02 DELAY \x01 3 \x02
#                ├ a half message       \x02 TRAN_MSG \x01 true \x02, and PGROUP
#                └ None: anything else  two of these, waited before, not a number, time passed
# ```
#
# `place` parses all properties, which is half the cost of a special send. Both change a message in
# the same way (one table of test cases covers both), and anything unusual is left to `place`.


_TIME = re.compile("\x02TIMER_(DELIVER_MS|DELAY_MS|DELAY_SEC)\x01([0-9]{1,15})\x02")
_LEVEL = re.compile("\x02DELAY\x01([1-9][0-9]?)\x02")


def place_quickly(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    """`place` for a message that is not a retry; None, with nothing done, if `place` must decide.

    `text` holds its properties, terminated by their separator.
    """
    if "REAL_" in text:  # it has waited before
        return None
    text = f"\x02{text}"
    if "TIMER_" in text:
        return _quick_timed(broker, put, text, now_ms)
    if "TRAN_MSG" in text:
        return _quick_half(broker, put, text, now_ms)
    return _quick_delayed(broker, put, text, now_ms)


def _quick_timed(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    found = _TIME.search(text)
    # A second one may be another time, a recall, or left over from an earlier timer.
    if found is None or text.count("TIMER_") != 1 or "\x02DELAY\x01" in text or "TRAN_MSG" in text:
        return None
    wish, value = found.groups()
    due_ms = int(value)
    if wish != "DELIVER_MS":
        due_ms = now_ms + due_ms * (1000 if wish == "DELAY_SEC" else 1)
    if not now_ms < due_ms <= now_ms + broker.config.max_timer_delay_s * 1000:
        return None
    out_ms = slot_ms(due_ms)
    _divert_quickly(put, TIMER_TOPIC, 0, f"TIMER_OUT_MS\x01{out_ms}\x02")
    return Placement(put, due_ms, False, out_ms + 1)


def _quick_delayed(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    found = _LEVEL.search(text)
    if found is None or text.count("DELAY") != 1:
        return None
    level, levels_ms = int(found[1]), broker.config.store.delay_levels_ms
    if level > len(levels_ms):
        return None
    put.tags_code = due_ms = now_ms + levels_ms[level - 1]
    _divert_quickly(put, SCHEDULE_TOPIC, level - 1, "")
    return Placement(put, due_ms)


def _quick_half(broker: Broker, put: PutMessage, text: str, now_ms: int) -> Placement | None:
    if (
        "\x02TRAN_MSG\x01true\x02" not in text
        or text.count("TRAN") != 1
        or "__transactionId__" in text
        or "CHECK_IMMUNITY" in text
        or "DELAY" in text
        or "\x02PGROUP\x01" not in text
        or "\x02PGROUP\x01\x02" in text
    ):
        return None
    put.sys_flag = with_transaction_type(put.sys_flag, TRANSACTION_NONE)
    _divert_quickly(put, TRANS_HALF_TOPIC, 0, f"__transactionId__\x01{put.uniq_key}\x02")
    return Placement(put, now_ms + int(broker.config.transaction_timeout_s * 1000))


def _divert_quickly(put: PutMessage, topic: str, queue_id: int, values: str) -> None:
    text = f"{values}REAL_TOPIC\x01{put.topic}\x02REAL_QID\x01{put.queue_id}\x02"
    put.properties += text.encode()
    put.topic, put.queue_id = topic, queue_id


# ---- properties of waiting messages


def real_queue_properties(topic: str, queue_id: int) -> str:
    """The properties that name the queue of a waiting message; `divert` puts them last."""
    return f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02"


def with_properties(
    properties: bytes,
    fields: Mapping[str, str],
    values: Mapping[str, str],
    *,
    without: Collection[str] = (),
) -> bytes:
    """Encoded properties with some set and some removed; `fields` is their parsed form."""
    names = fields.keys()
    if names.isdisjoint(values) and (not without or names.isdisjoint(without)):
        # Nearly always; and much cheaper than taking all of them apart.
        return properties + encode_fields(values)
    kept = decode_properties(properties)
    for name in without:
        kept.pop(name, None)
    kept.update(values)
    return encode_fields(kept)


def encode_fields(fields: Mapping[str, str]) -> bytes:
    """Encode properties the way a record holds them."""
    return "".join([f"{name}\x01{value}\x02" for name, value in fields.items()]).encode()


def fields_of(record: Record) -> dict[str, str]:
    """The properties of a stored record, without the CRC, which is valid for that record only."""
    fields = decode_properties(record.properties)
    fields.pop(CRC32, None)
    return fields


def without(fields: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Properties except those of these names."""
    return {name: value for name, value in fields.items() if name not in names}
