"""Pending timers between memory and disk: saved while the broker runs, recovered when it starts."""

import asyncio
from collections.abc import Iterator, Mapping

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery import apache_timer_log
from sparrowmq.broker.delivery.delay_properties import entry_ms
from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.broker.delivery.timer_files import RunFiles, RunList, RunRange, TimerCheck, TimerRun
from sparrowmq.broker.delivery.timer_index import (
    Spill,
    TimerIndex,
    entry_of,
    is_recall,
    offset_of,
    time_of,
)
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.disk.syncer import sync_plan
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.properties import TIMER_DELETE_UNIQUE_KEY, decode_properties
from sparrowmq.protocol.record import Record
from sparrowmq.store.store import Store


async def save_progress(broker: Broker) -> None:
    """Save how far delivery has come, as soon as what was delivered is durable."""
    while True:
        await asyncio.sleep(broker.config.offsets_journal_s / 2)
        try:
            async with broker.uncancellable:
                await save_mark(broker)
        except DiskFull as error:
            broker.log.warning("the progress of delivery times is not saved: %s", error)


async def save_mark(broker: Broker) -> None:
    """Save what is durable by now. Raises DiskFull, having lost nothing."""
    timers = broker.delivery.timers
    noted = timers.progress_to_save(*_ends(broker))
    if noted is None:
        return
    await broker.workers.run(timers.check.save, noted.marks, noted.first_pending)
    timers.progress_saved()
    if noted.finished:
        await _drop_runs(broker, noted.finished)


async def _drop_runs(broker: Broker, finished: list[RunRange]) -> None:
    timers, workers = broker.delivery.timers, broker.workers
    async with timers.list_lock:
        left = timers.unfinished_runs(finished)
        await workers.run(timers.files.save_list, left)
        timers.drop_runs(finished, left)
        # Inside the lock: the next run may begin where one of these did, and reuse its name.
        for span in finished:
            await workers.run(timers.files.remove, span)


async def spill(broker: Broker) -> None:
    """Write a run when there is enough in memory. Raises DiskFull, having lost nothing."""
    timers = broker.delivery.timers
    async with timers.list_lock:
        run = timers.begin_spill(*_ends(broker))
        if run is None:
            return
        runs = RunList(run.span.end, list(timers.run_list.runs))
        try:
            await _write(broker, run, runs)
        except DiskFull:
            timers.cancel_spill(run)
            raise
        timers.finish_spill(runs)
        if not run.is_empty:
            timers.resume_run(_opened(broker, run))


async def _write(broker: Broker, run: Spill, runs: RunList) -> None:
    files, workers = broker.delivery.timers.files, broker.workers
    if not run.is_empty:
        runs.runs.append(run.span)
        await workers.run(files.write, run.span, run.delivered + run.entries)
    await workers.run(files.save_list, runs)


def _opened(broker: Broker, written: Spill) -> TimerRun:
    run = broker.delivery.timers.files.open(written.span, check=False)
    assert run is not None, "just written"
    run.skip(len(written.delivered))
    return run


def _ends(broker: Broker) -> tuple[int, int, int]:
    """The ends of the timer queue and of the log, and up to where the log is durable."""
    store = broker.store
    return store.max_offset(TIMER_TOPIC, 0), store.max_log_offset, store.durable_log_offset


async def leave_to_apache(broker: Broker) -> None:
    """Let Apache's broker continue without redelivering. All progress must be saved."""
    timers, store = broker.delivery.timers, broker.store
    count, end = len(timers), store.max_offset(TIMER_TOPIC, 0)
    spread = end - timers.first_pending(end)
    if spread == count:
        return  # nothing past the first pending one was delivered: the queue alone suffices
    if not apache_timer_log.is_quick(store, count, spread):
        broker.log.info("%d timers are pending: Apache's broker would deliver some again", count)
        return
    now_ms, entries = broker.clock(), timers.pending()
    try:
        await broker.workers.run(apache_timer_log.write, broker.disk, store, entries, now_ms)
        due_ms = min(map(time_of, entries), default=None)
        await broker.workers.run(timers.check.save, timers.marks, end, due_ms)
    except DiskFull as error:
        broker.log.info("Apache's broker would deliver some timers again: %s", error)


# ---- recovery at the start


def recover_timers(disk: Disk, store: Store) -> TimerIndex:
    """Load the runs, and read from the queue what is not in any run. Raises OSError."""
    files, check = RunFiles(disk), TimerCheck(disk)
    low, high = store.queue_range(TIMER_TOPIC, 0)
    runs, saved = files.load_list(), check.load()
    # Damage may have cut the queue: new messages take offsets that were noted as delivered.
    marks = [mark.within(high) for mark in saved]
    if runs.covered > high:
        files.remove_list()
        runs = RunList()
    files.remove_unlisted(runs)
    index = TimerIndex(files, check, marks, RunList(max(runs.covered, low)))
    for span in runs.runs:
        run = files.open(span, check=True)
        if run is not None:
            index.run_list.runs.append(span)
            index.add_run(run)
        else:
            index.lost_from = min(index.lost_from, span.first)
            _add_all(index, _pending(store, index, span))
    if high - index.run_list.covered > 2 * index.run_entries:
        _write_runs(disk, store, files, index, high)
    _add_all(index, _pending(store, index, RunRange(index.run_list.covered, high)))
    if marks != saved or apache_timer_log.exists(disk):
        check.save(index.marks, index.first_pending(high))
        apache_timer_log.remove(disk)
    return index


def _write_runs(disk: Disk, store: Store, files: RunFiles, index: TimerIndex, high: int) -> None:
    """Read a long queue without runs, such as Apache's, with no more memory than a short one."""
    # As for every run: its messages must be durable before it is written.
    plan = store.begin_flush(urgent=True)
    if plan is not None:
        sync_plan(disk, plan)
        store.finish_flush(plan)
    first = index.run_list.covered
    entries: list[int] = []
    written: list[RunRange] = []
    try:
        for entry in _pending(store, index, RunRange(first, high)):
            entries.append(entry)
            if len(entries) == index.run_entries:
                span = RunRange(first, offset_of(entry) + 1)
                files.write(span, sorted(entries))
                written.append(span)
                first, entries = span.end, []
        files.save_list(RunList(first, [*index.run_list.runs, *written]))
    except DiskFull:
        return  # then the entries stay in memory
    index.run_list.covered = first
    for span in written:
        run = files.open(span, check=False)
        assert run is not None, "just written"
        index.run_list.runs.append(span)
        index.add_run(run)


def _add_all(index: TimerIndex, entries: Iterator[int]) -> None:
    for entry in entries:
        index.add(time_of(entry), offset_of(entry), is_recall(entry))


def _pending(store: Store, index: TimerIndex, span: RunRange) -> Iterator[int]:
    for record in records(store, TIMER_TOPIC, max(span.first, store.min_offset(TIMER_TOPIC, 0))):
        if record.queue_offset >= span.end:
            return
        entry = entry_of_record(record)
        if entry is not None and not index.is_done(entry):
            yield entry


def entry_of_record(record: Record) -> int | None:
    """The entry of a message in the timer queue; None if it does not belong there."""
    return entry_of_fields(decode_properties(record.properties), record)


def entry_of_fields(fields: Mapping[str, str], record: Record) -> int | None:
    """The same if its properties are already known."""
    time_ms = entry_ms(fields, record.store_timestamp)
    if time_ms is None or time_ms < 0:
        return None
    recall = TIMER_DELETE_UNIQUE_KEY in fields
    return entry_of(time_ms, record.queue_offset, is_recall=recall)
