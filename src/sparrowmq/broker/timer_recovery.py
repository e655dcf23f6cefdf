"""Knowing the pending timers again when a broker starts."""

from sparrowmq.broker.timer_check import TimerCheck
from sparrowmq.broker.timer_index import TimerIndex, entry_of
from sparrowmq.broker.timer_runs import RunFiles, RunList, RunRange
from sparrowmq.broker.timer_times import entry_ms
from sparrowmq.broker.transactions_recovery import records
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.properties import TIMER_DELETE_UNIQUE_KEY, decode_properties
from sparrowmq.protocol.record import Record
from sparrowmq.store.disk import Disk
from sparrowmq.store.store import Store


def recover_timers(disk: Disk, store: Store) -> TimerIndex:
    """The runs, and from the queue what is in none of them."""
    files, check = RunFiles(disk), TimerCheck(disk)
    low, high = store.queue_range(TIMER_TOPIC, 0)
    runs = files.load_list()
    if runs.covered > high:
        runs = RunList()  # the log was cut below what the runs stand for
    files.remove_strangers(runs)
    index = TimerIndex(files, check, check.load(), RunList(max(runs.covered, low)))
    for span in runs.runs:
        run = files.open(span, check=True)
        if run is not None:
            index.list.runs.append(span)
            index.add_run(run)
        else:
            _read_queue(store, index, span)
    _read_queue(store, index, RunRange(index.list.covered, high))
    return index


def _read_queue(store: Store, index: TimerIndex, span: RunRange) -> None:
    for record in records(store, TIMER_TOPIC, max(span.first, store.min_offset(TIMER_TOPIC, 0))):
        if record.queue_offset >= span.end:
            return
        entry = entry_of_record(record)
        if entry is not None and not index.is_done(entry):
            index.add(entry)


def entry_of_record(record: Record) -> int | None:
    """The entry of a message in the timer queue; None if it does not belong there."""
    fields = decode_properties(record.properties)
    time_ms = entry_ms(fields, record.store_timestamp)
    if time_ms is None or time_ms < 0:
        return None
    recall = TIMER_DELETE_UNIQUE_KEY in fields
    return entry_of(time_ms, record.queue_offset, is_recall=recall)
