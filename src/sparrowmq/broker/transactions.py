"""Transactions: committing and rolling back half messages, and asking about forgotten ones.

```
half ──┬ commit ──── the message in its real queue, then an operation
       ├ rollback ── an operation
       └ neither ─── after 6 s, then every 30 s, a producer of the group is asked; after 15
                     questions TRANS_CHECK_MAX_TIME_TOPIC, then an operation
```

The message comes before the operation: a crash between them makes the broker ask again, the other
order could lose a committed message.
"""

import asyncio

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delay_delivery import bury, undeliverable
from sparrowmq.broker.placement import (
    DELAYS,
    Placement,
    append,
    bare_properties,
    encoded,
    fields_of,
    place,
    real_queue,
    real_queue_id,
    stored_again,
)
from sparrowmq.broker.transactions_halves import Half
from sparrowmq.broker.transactions_recovery import TRANSACTION_GROUP
from sparrowmq.net.errors import ConnectionLost, RequestRefused
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.transactions import CheckTransactionState
from sparrowmq.protocol.ids import offset_id
from sparrowmq.protocol.names import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from sparrowmq.protocol.properties import (
    PRODUCER_GROUP,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TAGS,
    TRANSACTION_CHECK_TIMES,
    TRANSACTION_PREPARED,
    UNIQUE_KEY,
    WAIT_STORE_OK,
)
from sparrowmq.protocol.record import Record, encode_record, topic_part
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, with_transaction_type
from sparrowmq.protocol.tags import tag_code
from sparrowmq.store.errors import DiskFull, MessageTooLarge, StoreStopped
from sparrowmq.store.messages import PutMessage

_ENDED_TAG = "d"
_ENDED_CODE = tag_code(_ENDED_TAG)
_OPERATION_PROPERTIES = encoded({TAGS: _ENDED_TAG, WAIT_STORE_OK: "true"})
_MOST_NAMED = 200
"""Offsets in one operation message; Apache stops at 4,096 bytes."""
_BATCH = 64
_TRY_AGAIN_MS = 1_000
_NOBODY_THERE_MS = 3_000
"""How soon a group without a live producer is looked at again; that counts as no question."""


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
        broker.delivery.halves.alarm.due_at(broker.clock())


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


# ---- asking producers


async def check_transactions(broker: Broker) -> None:
    """Ask for ever."""
    halves = broker.delivery.halves
    while True:
        try:
            await check_round(broker)
            due_ms = halves.next_due_ms
        except DiskFull as error:
            broker.log.warning("transactions are not checked: %s", error)
            due_ms = broker.clock() + _TRY_AGAIN_MS
        except StoreStopped:
            return  # the broker is about to end
        await halves.alarm.wait(due_ms, broker.clock())


async def check_round(broker: Broker) -> None:
    """Ask about everything that is due. Raises DiskFull, StoreStopped."""
    halves = broker.delivery.halves
    write_operations(broker)
    turn = 0
    while (half := halves.take_due(broker.clock())) is not None:
        try:
            _check(broker, half)
        except DiskFull:
            halves.postpone(half, broker.clock() + _TRY_AGAIN_MS)
            raise
        turn += 1
        if turn % _BATCH == 0:
            await asyncio.sleep(0)


def _check(broker: Broker, half: Half) -> None:
    now_ms = broker.clock()
    record = broker.store.read_record(half.log_offset)
    if record is None:
        broker.log.error("the half message at %d is gone or damaged", half.log_offset)
        end(broker, half)
        return
    fields = fields_of(record)
    group = fields.get(PRODUCER_GROUP, "")
    is_old = now_ms - record.born_timestamp > broker.config.store.retention_ms
    if half.checks >= broker.config.transaction_check_max or is_old or not group:
        _set_aside(broker, half, record, fields)
    elif not broker.producers.members(group):
        broker.delivery.halves.postpone(half, now_ms + _NOBODY_THERE_MS)
    else:
        _ask(broker, half, record, fields, now_ms)


def _ask(broker: Broker, half: Half, record: Record, fields: dict[str, str], now_ms: int) -> None:
    """Store it again with the question counted, then ask: counts survive crashes that way."""
    fields[TRANSACTION_CHECK_TIMES] = str(half.checks + 1)
    put = stored_again(record, TRANS_HALF_TOPIC, 0, fields)
    try:
        if len(put.properties) > broker.config.max_properties_bytes:
            raise MessageTooLarge(len(put.properties), broker.config.max_properties_bytes)
        stored = broker.store.append(put, now_ms)
    except MessageTooLarge:
        fields.pop(TRANSACTION_CHECK_TIMES)
        _set_aside(broker, half, record, fields)
        return
    halves = broker.delivery.halves
    due_ms = now_ms + int(broker.config.transaction_check_interval_s * 1000)
    halves.move(half, stored.queue_offset, stored.log_offset, due_ms)
    write_operations(broker)
    topic, queue_id = fields.get(REAL_TOPIC, ""), real_queue_id(fields)
    header = CheckTransactionState(
        topic=TRANS_HALF_TOPIC,
        tran_state_table_offset=stored.queue_offset,
        commit_log_offset=stored.log_offset,
        msg_id=put.uniq_key or None,
        transaction_id=put.uniq_key or None,
        offset_msg_id=offset_id(broker.store_host, stored.log_offset),
        broker_name=broker.config.broker_name,
    )
    body = encode_record(
        topic_part(topic),
        queue_id,
        put.flag,
        stored.queue_offset,
        stored.log_offset,
        put.sys_flag,
        put.born_timestamp,
        put.born_host,
        stored.store_timestamp,
        broker.store_host,
        put.reconsume_times,
        0,
        put.body,
        put.properties,
    )
    _send_to_one(broker, fields[PRODUCER_GROUP], half.checks, header, body)


def _send_to_one(
    broker: Broker, group: str, turn: int, header: CheckTransactionState, body: bytes
) -> None:
    """To any live producer, another one each time: the first may have vanished silently."""
    members = broker.producers.members(group)
    for number in range(len(members)):
        member = members[(turn - 1 + number) % len(members)]
        try:
            member.connection.send_oneway(header, body)
        except ConnectionLost:
            continue
        return


def _set_aside(broker: Broker, half: Half, record: Record, fields: dict[str, str]) -> None:
    topic = broker.topics.set_read_write(TRANS_CHECK_MAX_TIME_TOPIC, 1).topic_name
    broker.log.error(
        "nobody knows after %d questions how transaction %s of topic %s ended; it is kept in %s",
        half.checks,
        fields.get(UNIQUE_KEY, ""),
        fields.get(REAL_TOPIC, ""),
        topic,
    )
    try:
        append(broker, Placement(stored_again(record, topic, 0, fields)), broker.clock())
    except MessageTooLarge as error:
        broker.log.error("not even there: %s", error)
    end(broker, half)


def resume(broker: Broker, record: Record) -> None:
    """A transaction that was set aside is pending again, with no question counted.

    Raises DiskFull, StoreStopped, MessageTooLarge.
    """
    fields = fields_of(record)
    fields[TRANSACTION_CHECK_TIMES] = "0"
    now_ms = broker.clock()
    append(broker, Placement(stored_again(record, TRANS_HALF_TOPIC, 0, fields), now_ms), now_ms)


# ---- how far it has come


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
