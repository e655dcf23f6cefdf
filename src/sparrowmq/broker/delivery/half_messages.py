"""Half messages whose transactions have not ended.

```
half topic   ─────────h──────────h────h──h──►     h: pending here; the rest has ended
                      ^ the first offset that matters after a restart
operations   ───────────── "17,18," ────────►     offsets of halves that have ended
```

Before a check a half message is stored again with a higher count, and so moves to the end; its old
offset ends as well, but an answer that names the old offset still finds it.
"""

import heapq
from collections import deque
from collections.abc import Iterator, Mapping

import msgspec

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.delivery.alarm import Alarm
from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.clock import Clock
from sparrowmq.protocol.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from sparrowmq.protocol.properties import (
    CHECK_IMMUNITY_TIME_S,
    TRANSACTION_CHECK_TIMES,
    UNIQUE_KEY,
    decode_properties,
)
from sparrowmq.protocol.record import Record, RecordError, decode_record
from sparrowmq.store.messages import ReadStatus
from sparrowmq.store.store import ColdRead, Store


class PendingHalf(msgspec.Struct, eq=False):
    """One pending half message."""

    queue_offset: int
    log_offset: int
    due_ms: int
    """When its producers are asked, by the monotonic clock."""
    checks: int = 0
    """How often they have been asked."""
    former_offsets: tuple[int, ...] = ()
    """The queue offsets that it had before it was stored again."""


class PendingHalves:
    """All pending half messages of a broker."""

    def __init__(self) -> None:
        self.alarm = Alarm()
        self.unrecorded_ends: list[int] = []
        """Offsets that have ended and are not in an operation message yet."""
        self._by_offset: dict[int, PendingHalf] = {}
        self._in_order: deque[int] = deque()
        self._due: list[tuple[int, int]] = []
        self._operations: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[PendingHalf]:
        """Iterate in the order of their offsets."""
        known = [(offset, half) for offset, half in self._by_offset.items()]
        return (half for offset, half in known if half.queue_offset == offset)

    def get(self, queue_offset: int) -> PendingHalf | None:
        """The half message that has or had this offset; None if its transaction has ended."""
        return self._by_offset.get(queue_offset)

    def add(self, queue_offset: int, log_offset: int, due_ms: int, checks: int = 0) -> None:
        """A half message was stored."""
        self._add(PendingHalf(queue_offset, log_offset, due_ms, checks))

    def move(self, half: PendingHalf, queue_offset: int, log_offset: int, due_ms: int) -> None:
        """It was stored again, with one more check counted; the old offset has ended."""
        self.unrecorded_ends.append(half.queue_offset)
        half.former_offsets += (half.queue_offset,)
        half.queue_offset, half.log_offset, half.due_ms = queue_offset, log_offset, due_ms
        half.checks += 1
        self._add(half)

    def _add(self, half: PendingHalf) -> None:
        offset, due_ms = half.queue_offset, half.due_ms
        self._by_offset[offset] = half
        self._in_order.append(offset)  # queue offsets only grow
        heapq.heappush(self._due, (due_ms, offset))
        self.alarm.due_at(due_ms)

    def postpone(self, half: PendingHalf, due_ms: int) -> None:
        """Make a half message due at another time."""
        half.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, half.queue_offset))
        self.alarm.due_at(due_ms)

    def end(self, half: PendingHalf) -> None:
        """The transaction has ended: the half message is no longer pending."""
        for offset in half.former_offsets:
            self._by_offset.pop(offset, None)
        self._by_offset.pop(half.queue_offset, None)
        self.unrecorded_ends.append(half.queue_offset)

    def take_due(self, now_ms: int) -> PendingHalf | None:
        """Take a half message that is due; the caller has to move, postpone or end it."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, offset = heapq.heappop(self._due)
            half = self._by_offset.get(offset)
            if half is not None and half.queue_offset == offset and half.due_ms == due_ms:
                return half
        return None

    @property
    def next_due_ms(self) -> int | None:
        """When the next half message may be due."""
        return self._due[0][0] if self._due else None

    def operation_written(self, operation_offset: int, last: int) -> None:
        """An operation message at this offset lists ended half offsets, the latest being `last`."""
        self._operations.append((operation_offset, last))

    def _is_pending(self, offset: int) -> bool:
        half = self._by_offset.get(offset)
        return half is not None and half.queue_offset == offset

    def progress(self, half_end: int, operation_end: int) -> tuple[int, int]:
        """The first half message and the first operation that still matter."""
        while self._in_order and not self._is_pending(self._in_order[0]):
            self._in_order.popleft()
        first = self._in_order[0] if self._in_order else half_end
        first = min([first, *self.unrecorded_ends])
        while self._operations and self._operations[0][1] < first:
            self._operations.popleft()
        return first, self._operations[0][0] if self._operations else operation_end


# ---- recovery: the half messages that no operation has ended


TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
"""The group under whose name the offsets of both topics are stored."""
_BATCH = 1_000
_BATCH_BYTES = 4 * 1024 * 1024


def recover_half_messages(
    store: Store,
    offsets: ConsumerOffsets,
    clock: ClockSteps,
    monotonic: Clock,
    *,
    timeout_ms: int,
    interval_ms: int,
) -> PendingHalves:
    """The half messages that were pending when the store was last written."""
    halves = PendingHalves()
    now_ms = monotonic()
    first = _start(store, offsets, TRANS_HALF_TOPIC)
    ended: set[int] = set()
    for record in records(store, TRANS_OP_HALF_TOPIC, _start(store, offsets, TRANS_OP_HALF_TOPIC)):
        named = [offset for offset in ended_offsets(record) if offset >= first]
        halves.operation_written(record.queue_offset, max(named, default=-1))
        ended.update(named)
    counted: dict[tuple[str, int], int] = {}
    for record in records(store, TRANS_HALF_TOPIC, first):
        if record.queue_offset in ended:
            continue
        fields = decode_properties(record.properties)
        checks = parse_count(fields.get(TRANSACTION_CHECK_TIMES))
        name = fields.get(UNIQUE_KEY, "")
        before = halves.get(counted.get((name, checks - 1), -1))
        if before is not None and name:
            halves.end(before)  # stored again; then the broker was killed before the operation
        wait_ms = interval_ms if checks else immunity_ms(fields, timeout_ms)
        # Not longer than a new one waits, in case the clock has been set back meanwhile.
        left_ms = min(max(0, wait_ms - clock.age_ms(record)), wait_ms)
        halves.add(record.queue_offset, record.log_offset, now_ms + left_ms, checks)
        counted[name, checks] = record.queue_offset
    return halves


def _start(store: Store, offsets: ConsumerOffsets, topic: str) -> int:
    low, high = store.queue_range(topic, 0)
    return min(max(offsets.get(TRANSACTION_GROUP, topic, 0), low), high)


def ended_offsets(record: Record) -> list[int]:
    """The half offsets that an operation message lists: `17,18,`; before 5.0 a single number."""
    parts = record.body.split(b",")
    return [int(part) for part in parts if part.isdigit() and len(part) < 20]


def immunity_ms(fields: Mapping[str, str], timeout_ms: int) -> int:
    """How long after storing a half message its producers are first asked."""
    text = fields.get(CHECK_IMMUNITY_TIME_S, "")
    return max(timeout_ms, parse_count(text) * 1000)


def parse_count(text: str | None) -> int:
    """A number in a property; 0 if it is not one."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 10 else 0


def records(store: Store, topic: str, offset: int, queue_id: int = 0) -> Iterator[Record]:
    """Every readable record of a queue from `offset` on; may wait for the device."""
    end = store.max_offset(topic, queue_id)
    while offset < end:
        found = store.read_queue(topic, queue_id, offset, max_count=_BATCH, max_bytes=_BATCH_BYTES)
        if isinstance(found, ColdRead):
            found = found.load()
        if found.status is ReadStatus.FOUND:
            yield from _decoded(b"".join(found.chunks))
        offset = max(offset + 1, found.next_offset)


def _decoded(data: bytes) -> Iterator[Record]:
    at = 0
    while at < len(data):
        try:
            record = decode_record(data, at, check_crc=False)
        except RecordError:
            return
        at += record.size
        yield record
