"""How transactions end: the half message is committed or rolled back, and an operation records it.

```
half ──┬ commit ──── the message in its real queue, then an operation
       ├ rollback ── an operation
       └ neither ─── a producer of the group is asked: `transaction_checks`
```

The message comes before the operation: after a crash between them the broker asks again, while the
other order could lose a committed message.
"""

import asyncio

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.delay_properties import DELAYS
from sparrowmq.broker.delivery.half_messages import TRANSACTION_GROUP, PendingHalf
from sparrowmq.broker.delivery.placement import (
    Placement,
    append,
    encode_fields,
    fields_of,
    place,
    real_queue_properties,
    without,
)
from sparrowmq.broker.delivery.redelivery import (
    copy_to,
    dead_letter,
    delivery_fault,
    properties_without_crc,
    real_queue_id,
)
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from sparrowmq.protocol.properties import (
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED,
    WAIT_STORE_OK,
)
from sparrowmq.protocol.record import Record
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, with_transaction_type
from sparrowmq.protocol.tags import tag_code
from sparrowmq.store.errors import MessageTooLarge
from sparrowmq.store.messages import PutMessage

_MOST_NAMED = 200
"""Offsets in one operation message; Apache stops at 4,096 bytes."""
_ENDED_TAG = "d"
_ENDED_CODE = tag_code(_ENDED_TAG)
_OPERATION_PROPERTIES = encode_fields({TAGS: _ENDED_TAG, WAIT_STORE_OK: "true"})


def commit(
    broker: Broker, half: PendingHalf, record: Record, fields: dict[str, str], now_ms: int
) -> None:
    """Deliver a half message; delayed if it asks for that.

    Raises RequestRefused if it cannot be delivered, in which case it has become a dead letter;
    DiskFull and StoreStopped, having done nothing.
    """
    topic, queue_id = fields.get(REAL_TOPIC, ""), real_queue_id(fields)
    fault = delivery_fault(broker, topic, queue_id)
    if fault is None:
        try:
            put = _committed(record, topic, queue_id, fields, None)
            append(broker, _placed(broker, put, fields, now_ms), now_ms)
        except MessageTooLarge as error:
            fault = str(error)
        except RequestRefused as error:
            fault = error.text
    if fault is not None:
        put = _committed(record, topic, queue_id, fields, properties_without_crc(record))
        dead_letter(broker, put, record, fault)
    end(broker, half)
    if fault is not None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"committed, but not delivered: {fault}")


def _placed(broker: Broker, put: PutMessage, fields: dict[str, str], now_ms: int) -> Placement:
    # Apache leaves TRAN_MSG in a message that is delivered at once: consumers of 5.5.0 see it.
    if DELAYS.isdisjoint(fields):
        return Placement(put)
    bare = without(fields, {REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED})
    placement = place(
        broker, msgspec.structs.replace(put, properties=encode_fields(bare)), bare, now_ms
    )
    return placement if placement.due_ms else Placement(put)


def _committed(
    record: Record, topic: str, queue_id: int, fields: dict[str, str], properties: bytes | None
) -> PutMessage:
    if properties is None:
        properties = _without_real_queue(record, topic, queue_id, fields)
    put = copy_to(record, topic, queue_id, fields, properties)
    put.sys_flag = with_transaction_type(put.sys_flag, TRANSACTION_COMMIT)
    put.prepared_transaction_offset = record.log_offset
    return put


def _without_real_queue(record: Record, topic: str, queue_id: int, fields: dict[str, str]) -> bytes:
    """The properties of a half message without its real queue, which nearly always comes last."""
    properties = properties_without_crc(record)
    last = real_queue_properties(topic, queue_id).encode()
    if properties.endswith(last):
        return properties[: -len(last)]
    return encode_fields(without(fields, {REAL_TOPIC, REAL_QUEUE_ID}))


def end(broker: Broker, half: PendingHalf) -> None:
    """Record in the store that the transaction is over, now or as soon as there is space.

    Call this before answering: a producer that knows the transaction has ended must not be asked
    about it after a crash. Raises StoreStopped.
    """
    broker.delivery.halves.end(half)
    try:
        write_operations(broker)
    except DiskFull as error:
        broker.log.warning("cannot record ended transactions yet, retrying: %s", error)
        broker.delivery.halves.alarm.due_at(broker.monotonic())


def write_operations(broker: Broker) -> None:
    """Write which half messages have ended. Raises DiskFull, StoreStopped."""
    halves = broker.delivery.halves
    while halves.unrecorded_ends:
        ended = halves.unrecorded_ends[:_MOST_NAMED]
        now_ms = broker.clock()
        body = b"%d," * len(ended) % tuple(ended)
        host = broker.store_host
        put = PutMessage(
            *(TRANS_OP_HALF_TOPIC, 0, 0, 0, now_ms, host, 0, body),
            _OPERATION_PROPERTIES,
            _ENDED_CODE,
        )
        stored = broker.store.append(put, now_ms)
        if broker.durability.copies is not None:  # saves masters without slaves a call
            broker.durability.note_growth()
        halves.operation_written(stored.queue_offset, max(ended))
        del halves.unrecorded_ends[: len(ended)]


def resume(broker: Broker, record: Record) -> None:
    """Make a transaction that was given up pending again, with its count of checks reset.

    Raises DiskFull, StoreStopped, MessageTooLarge.
    """
    fields = fields_of(record)
    fields[TRANSACTION_CHECK_TIMES] = "0"
    now_ms = broker.delivery.clock.now_ms()
    append(broker, Placement(copy_to(record, TRANS_HALF_TOPIC, 0, fields), now_ms), now_ms)


# ---- progress: the offsets from which a restart reads both topics


async def save_progress(broker: Broker) -> None:
    """Commit the offsets of both topics as soon as everything before them is durable."""
    while True:
        await asyncio.sleep(broker.config.offsets_journal_s / 2)
        commit_progress(broker)


def commit_progress(broker: Broker) -> None:
    """Commit what was noted last time if it is durable by now, and note the next progress."""
    delivery, store = broker.delivery, broker.store
    waiting = delivery.half_messages_progress
    if waiting is not None and waiting[2] <= store.durable_log_offset:
        broker.offsets.commit(TRANSACTION_GROUP, TRANS_HALF_TOPIC, 0, waiting[0])
        broker.offsets.commit(TRANSACTION_GROUP, TRANS_OP_HALF_TOPIC, 0, waiting[1])
        waiting = None
    if waiting is None:
        half_end = store.max_offset(TRANS_HALF_TOPIC, 0)
        operation_end = store.max_offset(TRANS_OP_HALF_TOPIC, 0)
        progress = delivery.halves.progress(half_end, operation_end)
        waiting = (*progress, store.max_log_offset)
    delivery.half_messages_progress = waiting
