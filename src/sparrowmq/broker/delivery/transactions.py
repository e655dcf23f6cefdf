"""How transactions end: half messages that are committed or rolled back, and what tells it.

```
half ──┬ commit ──── the message in its real queue, then an operation
       ├ rollback ── an operation
       └ neither ─── a producer of the group is asked: `transactions_check`
```

The message comes before the operation: a crash between them makes the broker ask again, the other
order could lose a committed message.
"""

import asyncio

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.delay_properties import DELAYS
from sparrowmq.broker.delivery.half_messages import TRANSACTION_GROUP, Half
from sparrowmq.broker.delivery.placement import (
    Placement,
    append,
    encoded,
    fields_of,
    place,
    real_queue,
)
from sparrowmq.broker.delivery.redelivery import (
    bare_properties,
    bury,
    real_queue_id,
    stored_again,
    undeliverable,
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

# How far transactions have come: the offsets at which a restart begins to read both topics.


async def save_progress(broker: Broker) -> None:
    """Commit the offsets of both topics as soon as what they stand for is durable."""
    while True:
        await asyncio.sleep(broker.config.offsets_journal_s / 2)
        commit_progress(broker)


def commit_progress(broker: Broker) -> None:
    """Commit what was noted last time if it is durable by now, and note what is next."""
    delivery, store = broker.delivery, broker.store
    waiting = delivery.halves_progress
    if waiting is not None and waiting[2] <= store.durable_log_offset:
        broker.offsets.commit(TRANSACTION_GROUP, TRANS_HALF_TOPIC, 0, waiting[0])
        broker.offsets.commit(TRANSACTION_GROUP, TRANS_OP_HALF_TOPIC, 0, waiting[1])
        waiting = None
    if waiting is None:
        half_end = store.max_offset(TRANS_HALF_TOPIC, 0)
        operation_end = store.max_offset(TRANS_OP_HALF_TOPIC, 0)
        progress = delivery.halves.progress(half_end, operation_end)
        waiting = (*progress, store.max_log_offset)
    delivery.halves_progress = waiting


_ENDED_TAG = "d"
_ENDED_CODE = tag_code(_ENDED_TAG)
_OPERATION_PROPERTIES = encoded({TAGS: _ENDED_TAG, WAIT_STORE_OK: "true"})
_MOST_NAMED = 200
"""Offsets in one operation message; Apache stops at 4,096 bytes."""


def commit(broker: Broker, half: Half, record: Record, fields: dict[str, str], now_ms: int) -> None:
    """Deliver a half message; delayed if it asks for that.

    Raises RequestRefused if it cannot be delivered, which ends it as a dead letter; DiskFull and
    StoreStopped, having done nothing.
    """
    topic, queue_id = fields.get(REAL_TOPIC, ""), real_queue_id(fields)
    fault = undeliverable(broker, topic, queue_id)
    if fault is None:
        try:
            put = _committed(record, topic, queue_id, fields, None)
            append(broker, _placed(broker, put, fields, now_ms), now_ms)
        except MessageTooLarge as error:
            fault = str(error)
        except RequestRefused as error:
            fault = error.text
    if fault is not None:
        put = _committed(record, topic, queue_id, fields, bare_properties(record))
        bury(broker, put, record, fault)
    end(broker, half)
    if fault is not None:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"committed, but not delivered: {fault}")


def _placed(broker: Broker, put: PutMessage, fields: dict[str, str], now_ms: int) -> Placement:
    # Apache leaves TRAN_MSG in one that is delivered at once, as consumers of 5.5.0 see it.
    if DELAYS.isdisjoint(fields):
        return Placement(put)
    bare = _without(fields, {REAL_TOPIC, REAL_QUEUE_ID, TRANSACTION_PREPARED})
    placement = place(broker, msgspec.structs.replace(put, properties=encoded(bare)), bare, now_ms)
    return placement if placement.due_ms else Placement(put)


def _committed(
    record: Record, topic: str, queue_id: int, fields: dict[str, str], properties: bytes | None
) -> PutMessage:
    if properties is None:
        properties = _without_aside(record, topic, queue_id, fields)
    put = stored_again(record, topic, queue_id, fields, properties)
    put.sys_flag = with_transaction_type(put.sys_flag, TRANSACTION_COMMIT)
    put.prepared_transaction_offset = record.log_offset
    return put


def _without_aside(record: Record, topic: str, queue_id: int, fields: dict[str, str]) -> bytes:
    """The properties of a half message without its real queue, which nearly always come last."""
    properties = bare_properties(record)
    last = real_queue(topic, queue_id).encode()
    if properties.endswith(last):
        return properties[: -len(last)]
    return encoded(_without(fields, {REAL_TOPIC, REAL_QUEUE_ID}))


def _without(fields: dict[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in names}


def end(broker: Broker, half: Half) -> None:
    """The transaction is over: say so in the store, now or as soon as there is space.

    Before it is answered: who was told that it has ended is not asked again after a crash.
    Raises StoreStopped.
    """
    broker.delivery.halves.end(half)
    try:
        write_operations(broker)
    except DiskFull as error:
        broker.log.warning("operations of transactions are written later: %s", error)
        broker.delivery.halves.alarm.due_at(broker.monotonic())


def write_operations(broker: Broker) -> None:
    """Write which half messages have ended. Raises DiskFull, StoreStopped."""
    halves = broker.delivery.halves
    while halves.owed:
        ended = halves.owed[:_MOST_NAMED]
        now_ms = broker.clock()
        body = b"%d," * len(ended) % tuple(ended)
        host = broker.store_host
        put = PutMessage(
            *(TRANS_OP_HALF_TOPIC, 0, 0, 0, now_ms, host, 0, body),
            _OPERATION_PROPERTIES,
            _ENDED_CODE,
        )
        stored = broker.store.append(put, now_ms)
        halves.noted(stored.queue_offset, max(ended))
        del halves.owed[: len(ended)]


def resume(broker: Broker, record: Record) -> None:
    """A transaction that was set aside is pending again, with no question counted.

    Raises DiskFull, StoreStopped, MessageTooLarge.
    """
    fields = fields_of(record)
    fields[TRANSACTION_CHECK_TIMES] = "0"
    now_ms = broker.delivery.clock.now_ms()
    append(broker, Placement(stored_again(record, TRANS_HALF_TOPIC, 0, fields), now_ms), now_ms)
