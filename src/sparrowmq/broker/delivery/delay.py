"""Delivering the messages of the delay levels when their time has come.

```
SCHEDULE_TOPIC_XXXX, queue n-1:   delivered … delivered | due  due | waiting  waiting …
                                                 offset ^          ^ the alarm is set for this one
```
"""

import asyncio

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.delay_delivery import deliver, records_of
from sparrowmq.broker.delivery.earlier_deliveries import is_repeat
from sparrowmq.broker.delivery.placement import fields_of
from sparrowmq.broker.delivery.rounds import repeat
from sparrowmq.protocol.delay import schedule_queue_id
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.record import RecordError
from sparrowmq.store.errors import DiskFull
from sparrowmq.store.messages import QueueRead
from sparrowmq.store.store import ColdRead

_BATCH = 64
"""Messages delivered before others have their turn."""
_BATCH_BYTES = 1024 * 1024


async def deliver_delayed(broker: Broker) -> None:
    """Deliver for ever."""
    alarm = broker.delivery.levels.alarm
    await repeat(broker, alarm, deliver_round, "delayed messages wait", broker.clock)


async def deliver_round(broker: Broker) -> int | None:
    """Deliver everything that is due; when the next message is, None if none waits.

    Raises DiskFull, StoreStopped; what was delivered before is not delivered again.
    """
    times_ms = [await _deliver_level(broker, level) for level in broker.delivery.levels.offsets]
    return min((due_ms for due_ms in times_ms if due_ms is not None), default=None)


async def _deliver_level(broker: Broker, level: int) -> int | None:
    levels, store = broker.delivery.levels, broker.store
    queue_id = schedule_queue_id(level)
    while True:
        offset, end = levels.clamp(level, store)
        if offset == end:
            return None
        now_ms = broker.delivery.clock.now_ms()
        due = 0
        for log_offset, _, unit_ms in store.units(SCHEDULE_TOPIC, queue_id, offset, _BATCH):
            due_ms = levels.due_ms(log_offset, unit_ms)
            if due_ms > now_ms:
                break
            due += 1
        if due == 0:
            return due_ms
        await _deliver_batch(broker, level, offset, due)
        await asyncio.sleep(0)


async def _deliver_batch(broker: Broker, level: int, offset: int, count: int) -> None:
    levels = broker.delivery.levels
    found = await read(broker, SCHEDULE_TOPIC, schedule_queue_id(level), offset, count)
    try:
        for record in records_of(found):
            fields = fields_of(record)
            if not is_repeat(broker, level, record, fields):
                deliver(broker, record, fields)
            levels.offsets[level] = record.queue_offset + 1
    except RecordError as error:
        broker.log.error("a delayed message of level %d is left out: %s", level, error)
    # What the read left out is damaged or gone; the store has reported it.
    levels.offsets[level] = max(offset + 1, min(found.next_offset, offset + count))


async def read(broker: Broker, topic: str, queue_id: int, offset: int, count: int) -> QueueRead:
    """Messages of a queue of the broker's own, beside the loop where the device is needed."""
    found = broker.store.read_queue(
        topic, queue_id, offset, max_count=count, max_bytes=_BATCH_BYTES
    )
    if isinstance(found, ColdRead):
        return await broker.workers.run(found.load)
    return found


async def save_progress(broker: Broker) -> None:
    """Save how far delivery has come, as soon as what was delivered is durable."""
    loop = asyncio.get_running_loop()
    config = broker.config
    save_at_s = loop.time() + config.offsets_save_s
    while True:
        await asyncio.sleep(config.offsets_journal_s / 2)
        try:
            async with broker.steps:
                await journal_progress(broker)
                if loop.time() >= save_at_s:
                    save_at_s = loop.time() + config.offsets_save_s
                    await broker.delivery.levels.progress.save(broker.workers)
        except DiskFull as error:
            broker.log.warning("the progress of delayed messages is not saved: %s", error)


async def journal_progress(broker: Broker) -> None:
    """Journal what is durable by now. Raises DiskFull."""
    store, levels = broker.store, broker.delivery.levels
    await levels.progress.journal(
        levels.offsets, store.max_log_offset, store.durable_log_offset, broker.workers
    )
