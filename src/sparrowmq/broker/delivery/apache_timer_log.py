"""Pending timers for Apache's broker, in case it takes over the store.

```
timerlog/00000000000000000000   a unit of 52 bytes for each pending message:
   size 4, previous unit of the same second 8, magic 4, time of writing 8, delay 4,
   log offset 8, size of the message 4, hash of the topic 4 (for counts only, here 0), reserved 8
timerwheel                      where the last unit of each second is; Apache rebuilds it
```

Without them Apache reads the timer queue from the offset in config/timercheck, and redelivers
everything after it. They are valid only as long as nothing is delivered, so a graceful shutdown
writes them and the next start removes them.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from sparrowmq.broker.delivery.delay_properties import slot_ms
from sparrowmq.broker.delivery.timer_index import is_recall, offset_of, time_of
from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.store.layout import file_name, file_offset
from sparrowmq.store.store import Store

LOG_DIR = "timerlog"
WHEEL = "timerwheel"
_UNIT = struct.Struct(">iqiqiqiiq")
_NORMAL, _DELETE = 1, 1 | 1 << 2  # TimerMessageStore.MAGIC_DEFAULT, MAGIC_DELETE
_UNITS_AT_ONCE = 1_024
_LONG_AGO_MS = 8 * 24 * 3600 * 1000
"""Apache's wheel reaches a week back: a second before that is never checked."""
_MOST = 100_000
_MOST_SPREAD = 10_000_000
"""More entries would make a shutdown slow; Apache then redelivers some of them."""


def exists(disk: Disk) -> bool:
    """Whether Apache's broker, or we when we stopped, left a timer log or a wheel."""
    names = disk.listdir(LOG_DIR)
    return any(file_offset(name) is not None for name in names) or disk.exists(WHEEL)


def is_quick(store: Store, count: int, spread: int) -> bool:
    """Whether `count` entries among `spread` messages can be written in a second or two.

    They, plus a final one, have to fit into one file of the timer log.
    """
    most = min(_MOST, store.config.timer_log_size // _UNIT.size - 1)
    return count < most and spread < _MOST_SPREAD


def remove(disk: Disk) -> None:
    """Remove both files before they become invalid."""
    for name in disk.listdir(LOG_DIR):
        if file_offset(name) is not None:  # other files are not Apache's
            disk.unlink(f"{LOG_DIR}/{name}")
    disk.unlink(WHEEL)
    if disk.exists(LOG_DIR):
        disk.sync_dir(LOG_DIR)
    disk.sync_dir("")


def write(disk: Disk, store: Store, entries: Sequence[int], now_ms: int) -> None:
    """Write these entries for Apache, durably.

    Raises DiskFull, or OSError.
    """
    disk.mkdir(LOG_DIR)
    path = f"{LOG_DIR}/{file_name(0)}"
    disk.unlink(path)
    file = disk.open(path, create=True)
    try:
        file.truncate(store.config.timer_log_size)  # Apache refuses files of another size
        file.write(0, b"".join(_units(store, entries, now_ms)))
        file.sync()
    finally:
        file.close()
    disk.sync_dir(LOG_DIR)
    disk.sync_dir("")


def _units(store: Store, entries: Sequence[int], now_ms: int) -> Iterator[bytes]:
    written_ms = now_ms // 1000 * 1000
    due = {offset_of(entry): entry for entry in entries}
    last = store.max_offset(TIMER_TOPIC, 0) - 1
    # Apache continues the queue after the message of the last unit, whenever that is due.
    offsets = sorted({*due, last})
    last_unit: dict[int, int] = {}
    at = 0
    for offset, (log_offset, size, _) in _messages(store, offsets):
        entry = due.get(offset)
        if entry is None:
            second_ms = written_ms - _LONG_AGO_MS
        else:
            second_ms = max(_second_ms(entry), written_ms)  # overdue entries are not forgotten
        magic = _DELETE if entry is not None and is_recall(entry) else _NORMAL
        before = last_unit.get(second_ms, -1)
        delay_ms = second_ms - written_ms
        yield _UNIT.pack(_UNIT.size, before, magic, written_ms, delay_ms, log_offset, size, 0, 0)
        last_unit[second_ms] = at
        at += _UNIT.size


def _second_ms(entry: int) -> int:
    """TIMER_OUT_MS of its message: a recall is handled when that second begins."""
    return time_of(entry) if is_recall(entry) else slot_ms(time_of(entry))


def _messages(store: Store, offsets: Iterable[int]) -> Iterator[tuple[int, tuple[int, int, int]]]:
    """Where the messages at these queue offsets, in order, lie in the log."""
    first, units = 0, list[tuple[int, int, int]]()
    for offset in offsets:
        if offset >= first + len(units):
            first = offset
            units = store.units(TIMER_TOPIC, 0, first, _UNITS_AT_ONCE)
        if offset < first + len(units):
            yield offset, units[offset - first]
