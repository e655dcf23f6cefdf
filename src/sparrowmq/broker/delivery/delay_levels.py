"""The delay levels: delivering their messages when due, and how far each level has been delivered.

```
SCHEDULE_TOPIC_XXXX, queue n-1:   delivered … delivered | due  due | waiting  waiting …
                                                 offset ^          ^ the alarm is set for this one
```

Progress is in delayOffset.json and a journal of its changes. It is saved only when everything
delivered before it is durable: otherwise a power cut could take the delivered message and leave the
record that it was delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.alarm import Alarm, repeat_rounds
from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.broker.delivery.earlier_deliveries import was_delivered_before
from sparrowmq.broker.delivery.placement import fields_of
from sparrowmq.broker.delivery.redelivery import deliver, records_of
from sparrowmq.clock import Clock
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.body import Body, DataVersion
from sparrowmq.protocol.delay import schedule_queue_id
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.record import RecordError
from sparrowmq.store.journal import Journal
from sparrowmq.store.messages import Damage, QueueRead
from sparrowmq.store.store import ColdRead, Store
from sparrowmq.store.table_file import TableFile

_BATCH = 64
"""Messages delivered before other work gets its turn."""
_BATCH_BYTES = 1024 * 1024


class DelayLevels:
    """Progress of all levels. Messages of a level become due in order, so one offset is enough."""

    def __init__(
        self, offsets: Mapping[int, int], progress: DelayProgress, clock: ClockSteps
    ) -> None:
        self.offsets = dict(offsets)
        """Level → queue offset of the next message to deliver."""
        self.progress = progress
        self.alarm = Alarm()
        self._clock = clock
        clock.alarms.append(self.alarm)

    @staticmethod
    def open(
        disk: Disk, store: Store, steps: ClockSteps, clock: Clock, report: Callable[[object], None]
    ) -> DelayLevels:
        """Open with the progress last saved. Raises TableMissing if it is lost and matters."""
        highest = len(store.config.delay_levels_ms)
        progress = DelayProgress(disk, report, clock)
        never_used = all(
            store.max_offset(SCHEDULE_TOPIC, queue_id) == 0 for queue_id in range(highest)
        )
        saved = progress.load(store_is_used=store.max_log_offset > 0, may_be_missing=never_used)
        offsets = {level: saved.get(level, 0) for level in range(1, highest + 1)}
        levels = DelayLevels(offsets, progress, steps)
        for level in levels.offsets:
            # Do it now: the next message may take the very offset that was noted as delivered.
            levels.clamp(level, store)
        if any(levels.offsets[level] < offset for level, offset in offsets.items()):
            try:
                progress.lower(levels.offsets)
            except DiskFull as error:
                report(f"delays may be lost if the broker is killed before there is space: {error}")
        return levels

    def clamp(self, level: int, store: Store) -> tuple[int, int]:
        """Clamp a level's next offset to its queue's range; returns it and the queue's end."""
        low, high = store.queue_range(SCHEDULE_TOPIC, schedule_queue_id(level))
        offset = min(max(self.offsets[level], low), high)
        self.offsets[level] = offset
        return offset, high

    def follow(self, offsets: Mapping[int, int]) -> None:
        """A master has delivered this far, and this log has everything the master had by then."""
        for level, offset in self.offsets.items():
            self.offsets[level] = max(offset, offsets.get(level, 0))

    def due_ms(self, log_offset: int, unit_ms: int) -> int:
        """When a message whose unit says `unit_ms` is due: its delay after it was stored.

        That keeps them in order: going by the units alone, messages stored before the clock was set
        back would hold up those stored after it.
        """
        return unit_ms + self._clock.since(log_offset)


async def deliver_delayed(broker: Broker) -> None:
    """Deliver forever."""
    alarm = broker.delivery.levels.alarm
    await repeat_rounds(broker, alarm, deliver_round, "delayed messages wait", broker.clock)


async def deliver_round(broker: Broker) -> int | None:
    """Deliver everything that is due; returns when the next message is, None if none waits.

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
    found = await read_own_queue(broker, SCHEDULE_TOPIC, schedule_queue_id(level), offset, count)
    try:
        for record in records_of(found):
            fields = fields_of(record)
            if not was_delivered_before(broker, level, record, fields):
                deliver(broker, record, fields)
            levels.offsets[level] = record.queue_offset + 1
    except RecordError as error:
        broker.log.error("skipping a delayed message of level %d: %s", level, error)
    # Messages that the read left out are damaged or gone; the store has reported them.
    levels.offsets[level] = max(offset + 1, min(found.next_offset, offset + count))


async def read_own_queue(
    broker: Broker, topic: str, queue_id: int, offset: int, count: int
) -> QueueRead:
    """Read one of the broker's own queues; in a worker if the device is needed."""
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
            async with broker.uncancellable:
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


# ---- progress on disk


Report = Callable[[Damage], None]


class DelayOffsets(Body, frozen=True, kw_only=True):
    """The file delayOffset.json: for each level the queue offset of the next message to deliver."""

    offset_table: dict[int, int] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None


def _decode(data: bytes) -> DelayOffsets:
    try:
        return DelayOffsets.from_json(data)
    except BodyError as error:
        raise ValueError(str(error)) from error


class DelayProgress:
    """What has been saved, and what waits for the log to become durable."""

    def __init__(self, disk: Disk, report: Report, clock: Clock) -> None:
        self._file = TableFile(disk, "delayOffset.json", _decode)
        self._journal = Journal(disk, "delayOffset")
        self._report = report
        self._clock = clock
        self._version = DataVersion()
        self._waiting: tuple[int, dict[int, int]] | None = None
        self._journaled: dict[int, int] = {}
        self._saved: dict[int, int] = {}

    def load(self, *, store_is_used: bool, may_be_missing: bool) -> dict[int, int]:
        """Level → next offset as last saved. Raises TableMissing."""
        table = self._file.load(
            self._report, store_is_used=store_is_used, may_be_missing=may_be_missing
        )
        offsets = dict(table.offset_table) if table is not None else {}
        self._saved = dict(offsets)
        if table is not None and table.data_version is not None:
            self._version = table.data_version
        for entry in self._journal.replay(self._report):
            for level, offset in msgspec.json.decode(entry, type=dict[int, int]).items():
                # Apache may have run on this store since: the larger offset is newer.
                offsets[level] = max(offset, offsets.get(level, 0))
        self._journaled = dict(offsets)
        return offsets

    async def journal(
        self, offsets: Mapping[int, int], log_end: int, durable_log_offset: int, workers: Workers
    ) -> None:
        """Note progress made up to `log_end`; journal what has become durable by now.

        Raises DiskFull, having lost nothing.
        """
        if self._waiting is None and offsets != self._journaled:
            self._waiting = (log_end, dict(offsets))
        if self._waiting is not None and self._waiting[0] <= durable_log_offset:
            _, ready = self._waiting
            await workers.run(self._append, ready)
            self._journaled = ready
            self._waiting = None

    def _append(self, offsets: dict[int, int]) -> None:
        self._journal.append(msgspec.json.encode(offsets))
        self._journal.sync()

    async def save(self, workers: Workers) -> None:
        """Rewrite the table with what is journaled. Raises DiskFull."""
        await workers.run(self._save)

    def _save(self) -> None:
        if self._journaled == self._saved:
            return
        self._write(self._journaled)
        self._journal.rotate()

    def lower(self, offsets: Mapping[int, int]) -> None:
        """Replace the progress after queues got shorter; durable when this returns.

        Raises DiskFull or OSError.
        """
        self._write(dict(offsets))
        self._journal.discard()  # the largest offset in it would count
        self._journaled = self._saved

    def _write(self, offsets: dict[int, int]) -> None:
        version = self._version.next(self._clock())
        table = DelayOffsets(offset_table=offsets, data_version=version)
        self._file.save(table.to_json())
        self._version = version
        self._saved = offsets

    def close(self) -> None:
        """Close the journal's file."""
        self._journal.close()
