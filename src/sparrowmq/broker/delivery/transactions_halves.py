"""Half messages whose transactions have not ended.

```
half topic   ─────────h──────────h────h──h──►     h: pending here; the rest has ended
                      ^ the first offset that matters after a restart
operations   ───────────── "17,18," ────────►     half offsets that have ended
```

A half message that is asked about is stored again with a higher count and moves to the end; its
old offset ends as well, but an answer that names it still finds it.
"""

import heapq
from collections import deque
from collections.abc import Iterator

import msgspec

from sparrowmq.broker.delivery.delay_alarm import Alarm


class Half(msgspec.Struct, eq=False):
    """One pending half message."""

    queue_offset: int
    log_offset: int
    due_ms: int
    """When its producers are asked, by the monotonic clock."""
    checks: int = 0
    """How often they have been."""
    once_at: tuple[int, ...] = ()
    """Queue offsets that it had before it was stored again."""


class Halves:
    """All pending half messages of a broker."""

    def __init__(self) -> None:
        self.alarm = Alarm()
        self.owed: list[int] = []
        """Offsets that have ended without an operation message saying so yet."""
        self._by_offset: dict[int, Half] = {}
        self._in_order: deque[int] = deque()
        self._due: list[tuple[int, int]] = []
        self._operations: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Half]:
        """In the order of their offsets."""
        known = [(offset, half) for offset, half in self._by_offset.items()]
        return (half for offset, half in known if half.queue_offset == offset)

    def get(self, queue_offset: int) -> Half | None:
        """The half message that has or had this offset; None when its transaction has ended."""
        return self._by_offset.get(queue_offset)

    def add(self, queue_offset: int, log_offset: int, due_ms: int, checks: int = 0) -> None:
        """A half message was stored."""
        self._know(Half(queue_offset, log_offset, due_ms, checks))

    def move(self, half: Half, queue_offset: int, log_offset: int, due_ms: int) -> None:
        """It was stored again, with one more check counted; the old offset is owed."""
        self.owed.append(half.queue_offset)
        half.once_at += (half.queue_offset,)
        half.queue_offset, half.log_offset, half.due_ms = queue_offset, log_offset, due_ms
        half.checks += 1
        self._know(half)

    def _know(self, half: Half) -> None:
        offset, due_ms = half.queue_offset, half.due_ms
        self._by_offset[offset] = half
        self._in_order.append(offset)  # queue offsets only grow
        heapq.heappush(self._due, (due_ms, offset))
        self.alarm.due_at(due_ms)

    def postpone(self, half: Half, due_ms: int) -> None:
        """Look at it again then."""
        half.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, half.queue_offset))
        self.alarm.due_at(due_ms)

    def end(self, half: Half) -> None:
        """Its transaction has ended."""
        for offset in half.once_at:
            self._by_offset.pop(offset, None)
        self._by_offset.pop(half.queue_offset, None)
        self.owed.append(half.queue_offset)

    def take_due(self, now_ms: int) -> Half | None:
        """One that is due; it has to be moved, postponed or ended."""
        while self._due and self._due[0][0] <= now_ms:
            due_ms, offset = heapq.heappop(self._due)
            half = self._by_offset.get(offset)
            if half is not None and half.queue_offset == offset and half.due_ms == due_ms:
                return half
        return None

    @property
    def next_due_ms(self) -> int | None:
        """When the next one may be due."""
        return self._due[0][0] if self._due else None

    def noted(self, operation_offset: int, last: int) -> None:
        """An operation message at this offset says which have ended, `last` the latest of them."""
        self._operations.append((operation_offset, last))

    def _is_pending(self, offset: int) -> bool:
        half = self._by_offset.get(offset)
        return half is not None and half.queue_offset == offset

    def progress(self, half_end: int, operation_end: int) -> tuple[int, int]:
        """The first half message and the first operation that still matter."""
        while self._in_order and not self._is_pending(self._in_order[0]):
            self._in_order.popleft()
        first = self._in_order[0] if self._in_order else half_end
        first = min([first, *self.owed])
        while self._operations and self._operations[0][1] < first:
            self._operations.popleft()
        return first, self._operations[0][0] if self._operations else operation_end
