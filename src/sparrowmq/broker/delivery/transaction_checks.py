"""Transaction checks: ask producers for the outcome of transactions that they did not end.

```
half ── 6 s ──► asked ── 30 s ──► asked … 15 times ──► TRANS_CHECK_MAX_TIME_TOPIC, an operation
                  └ the half message is stored again with the check counted, then the check is sent
```

A group without a live producer is not asked, and no check is counted.
"""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.alarm import TRY_AGAIN_MS, repeat_rounds
from sparrowmq.broker.delivery.half_messages import PendingHalf
from sparrowmq.broker.delivery.placement import Placement, append, fields_of
from sparrowmq.broker.delivery.redelivery import copy_to, real_queue_id
from sparrowmq.broker.delivery.transactions import end, write_operations
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.headers.transactions import CheckTransactionState
from sparrowmq.protocol.ids import offset_id
from sparrowmq.protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from sparrowmq.protocol.properties import (
    PRODUCER_GROUP,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
)
from sparrowmq.protocol.record import Record, encode_record, topic_part
from sparrowmq.store.errors import MessageTooLarge
from sparrowmq.store.messages import PutMessage, Stored

_BATCH = 64
_NO_PRODUCER_MS = 3_000
"""How soon a group without a live producer is tried again; no check is counted."""


async def check_transactions(broker: Broker) -> None:
    """Run checks forever."""
    alarm = broker.delivery.halves.alarm
    await repeat_rounds(
        broker, alarm, check_round, "transactions are not checked", broker.monotonic
    )


async def check_round(broker: Broker) -> int | None:
    """Ask about everything that is due; returns when the next is. Raises DiskFull, StoreStopped."""
    halves = broker.delivery.halves
    await broker.delivery.clock.saved_now_ms()  # checks store the half message again
    write_operations(broker)
    turn = 0
    while (half := halves.take_due(broker.monotonic())) is not None:
        try:
            _check(broker, half)
        except DiskFull:
            halves.postpone(half, broker.monotonic() + TRY_AGAIN_MS)
            raise
        turn += 1
        if turn % _BATCH == 0:
            await asyncio.sleep(0)
    return halves.next_due_ms


def _check(broker: Broker, half: PendingHalf) -> None:
    record = broker.store.read_record(half.log_offset)
    if record is None:
        broker.log.error("the half message at %d is gone or damaged", half.log_offset)
        end(broker, half)
        return
    fields = fields_of(record)
    group = fields.get(PRODUCER_GROUP, "")
    if not group:
        _give_up(broker, half, record, fields, "it names no producer group")
    elif half.checks >= broker.config.transaction_check_max:
        _give_up(broker, half, record, fields, f"it is unknown after {half.checks} questions")
    elif broker.producers.members(group):
        _ask(broker, half, record, fields)
    elif _is_forgotten(broker, record):
        _give_up(broker, half, record, fields, f"no producer of group {group} came to be asked")
    else:
        broker.delivery.halves.postpone(half, broker.monotonic() + _NO_PRODUCER_MS)


def _is_forgotten(broker: Broker, record: Record) -> bool:
    """Whether it has waited for a producer as long as messages are kept: its file will go soon.

    A broker that was down for that long knows no producers until they have sent heartbeats.
    """
    config = broker.config
    running_ms = broker.monotonic() - broker.statistics.started_ms
    is_old = broker.delivery.clock.age_ms(record) > config.store.retention_ms
    return is_old and running_ms > config.client_timeout_s * 1000


def _ask(broker: Broker, half: PendingHalf, record: Record, fields: dict[str, str]) -> None:
    """Store it again with the check counted, then ask: that way counts survive crashes."""
    fields[TRANSACTION_CHECK_TIMES] = str(half.checks + 1)
    put = copy_to(record, TRANS_HALF_TOPIC, 0, fields)
    try:
        if len(put.properties) > broker.config.max_properties_bytes:
            raise MessageTooLarge(len(put.properties), broker.config.max_properties_bytes)
        stored = broker.store.append(put, broker.delivery.clock.now_ms())
        broker.durability.note_growth()
    except MessageTooLarge:
        fields.pop(TRANSACTION_CHECK_TIMES)
        _give_up(broker, half, record, fields, "it is too large to count questions")
        return
    halves = broker.delivery.halves
    due_ms = broker.monotonic() + int(broker.config.transaction_check_interval_s * 1000)
    halves.move(half, stored.queue_offset, stored.log_offset, due_ms)
    write_operations(broker)
    header, body = _question(broker, put, stored, fields)
    _send_to_one(broker, fields[PRODUCER_GROUP], half.checks, header, body)


def _question(
    broker: Broker, put: PutMessage, stored: Stored, fields: dict[str, str]
) -> tuple[CheckTransactionState, bytes]:
    """The check request for a producer, with the half message under its real topic."""
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
        topic_part(fields.get(REAL_TOPIC, "")),
        real_queue_id(fields),
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
    return header, body


def _send_to_one(
    broker: Broker, group: str, turn: int, header: CheckTransactionState, body: bytes
) -> None:
    """Send to a live producer, a different one each time: the first may have died unnoticed."""
    members = broker.producers.members(group)
    for number in range(len(members)):
        member = members[(turn - 1 + number) % len(members)]
        try:
            member.connection.send_oneway(header, body)
        except ConnectionLost:
            continue
        return


def _give_up(
    broker: Broker, half: PendingHalf, record: Record, fields: dict[str, str], reason: str
) -> None:
    topic = broker.topics.get_or_create(TRANS_CHECK_MAX_TIME_TOPIC, 1).topic_name
    transaction_id = fields.get(UNIQUE_KEY, "")
    broker.log.error(
        "the outcome of transaction %s of topic %s is unknown: %s; it is kept in %s",
        transaction_id,
        fields.get(REAL_TOPIC, ""),
        reason,
        topic,
    )
    try:
        append(broker, Placement(copy_to(record, topic, 0, fields)), broker.clock())
    except MessageTooLarge as error:
        text = "transaction %s cannot be stored in %s either: %s"
        broker.log.error(text, transaction_id, topic, error)
    broker.traffic.dedup.half_ends(broker, half, fields)
    end(broker, half)
