"""Knowing the pending timers again when a broker starts."""

from collections.abc import Iterator, Mapping

from sparrowmq.broker.delivery import timer_apache
from sparrowmq.broker.delivery.timer_check import TimerCheck
from sparrowmq.broker.delivery.timer_entries import entry_of, is_recall, offset_of, time_of
from sparrowmq.broker.delivery.timer_index import TimerIndex
from sparrowmq.broker.delivery.timer_runs import RunFiles, RunList, RunRange
from sparrowmq.broker.delivery.timer_times import entry_ms
from sparrowmq.broker.delivery.transactions_recovery import records
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.properties import TIMER_DELETE_UNIQUE_KEY, decode_properties
from sparrowmq.protocol.record import Record
from sparrowmq.store.disk import Disk
from sparrowmq.store.errors import DiskFull
from sparrowmq.store.flushing import sync_plan
from sparrowmq.store.store import Store


def recover_timers(disk: Disk, store: Store) -> TimerIndex:
    """The runs, and from the queue what is in none of them. Raises OSError."""
    files, check = RunFiles(disk), TimerCheck(disk)
    low, high = store.queue_range(TIMER_TOPIC, 0)
    runs, saved = files.load_list(), check.load()
    # Damage may have cut the queue: what comes next takes offsets that were noted as delivered.
    marks = [mark.within(high) for mark in saved]
    if runs.covered > high:
        files.remove_list()
        runs = RunList()
    files.remove_strangers(runs)
    index = TimerIndex(files, check, marks, RunList(max(runs.covered, low)))
    for span in runs.runs:
        run = files.open(span, check=True)
        if run is not None:
            index.list.runs.append(span)
            index.add_run(run)
        else:
            index.lost_from = min(index.lost_from, span.first)
            _add_all(index, _pending(store, index, span))
    if high - index.list.covered > 2 * index.run_entries:
        _write_runs(disk, store, files, index, high)
    _add_all(index, _pending(store, index, RunRange(index.list.covered, high)))
    if marks != saved or timer_apache.is_there(disk):
        check.save(index.marks, index.first_pending(high))
        timer_apache.forget(disk)
    return index


def _write_runs(disk: Disk, store: Store, files: RunFiles, index: TimerIndex, high: int) -> None:
    """Read a long queue without runs, such as Apache's, in no more memory than a short one."""
    # As for every run: what it stands for must be durable before it is.
    plan = store.begin_flush(urgent=True)
    if plan is not None:
        sync_plan(disk, plan)
        store.finish_flush(plan)
    first = index.list.covered
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
        files.save_list(RunList(first, [*index.list.runs, *written]))
    except DiskFull:
        return  # then they stay in memory
    index.list.covered = first
    for span in written:
        run = files.open(span, check=False)
        assert run is not None, "just written"
        index.list.runs.append(span)
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
    """The same where its properties are known already."""
    time_ms = entry_ms(fields, record.store_timestamp)
    if time_ms is None or time_ms < 0:
        return None
    recall = TIMER_DELETE_UNIQUE_KEY in fields
    return entry_of(time_ms, record.queue_offset, is_recall=recall)
