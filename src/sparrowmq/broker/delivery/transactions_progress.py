"""How far transactions have come: the offsets at which a restart begins to read both topics."""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.transactions_recovery import TRANSACTION_GROUP
from sparrowmq.protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC


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
