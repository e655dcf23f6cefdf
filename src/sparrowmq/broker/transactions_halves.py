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
from collections.abc import Iterable, Iterator

import msgspec

from sparrowmq.broker.delay_alarm import Alarm


class Half(msgspec.Struct, eq=False):
    """One pending half message."""

    queue_offset: int
    log_offset: int
    due_ms: int
    """When its producers are asked."""
    checks: int = 0
    """How often they have been."""
    known_as: list[int] = msgspec.field(default_factory=list)
    """All its queue offsets, the newest last."""


class Halves:
    """All pending half messages of a broker."""

    def __init__(self) -> None:
        self.alarm = Alarm()
        self.owed: list[int] = []
        """Offsets that have ended without an operation message saying so yet."""
        self._by_offset: dict[int, Half] = {}
        self._pending: set[int] = set()
        self._in_order: list[int] = []
        self._due: list[tuple[int, int]] = []
        self._operations: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._pending)

    def __iter__(self) -> Iterator[Half]:
        return iter([self._by_offset[offset] for offset in sorted(self._pending)])

    def get(self, queue_offset: int) -> Half | None:
        """The half message that has or had this offset; None when its transaction has ended."""
        return self._by_offset.get(queue_offset)

    def add(self, queue_offset: int, log_offset: int, due_ms: int, checks: int = 0) -> None:
        """A half message was stored."""
        half = Half(queue_offset, log_offset, due_ms, checks, [queue_offset])
        self._know(half)

    def move(self, half: Half, queue_offset: int, log_offset: int, due_ms: int) -> None:
        """It was stored again, with one more check counted; the old offset is owed."""
        self.owed.append(half.queue_offset)
        self._pending.discard(half.queue_offset)
        half.queue_offset, half.log_offset, half.due_ms = queue_offset, log_offset, due_ms
        half.checks += 1
        half.known_as.append(queue_offset)
        self._know(half)

    def _know(self, half: Half) -> None:
        self._by_offset[half.queue_offset] = half
        self._pending.add(half.queue_offset)
        heapq.heappush(self._in_order, half.queue_offset)
        self.postpone(half, half.due_ms)

    def postpone(self, half: Half, due_ms: int) -> None:
        """Look at it again then."""
        half.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, half.queue_offset))
        self.alarm.due_at(due_ms)

    def end(self, half: Half) -> None:
        """Its transaction has ended."""
        for offset in half.known_as:
            self._by_offset.pop(offset, None)
        self._pending.discard(half.queue_offset)
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

    def noted(self, operation_offset: int, ended: Iterable[int]) -> None:
        """An operation message at this offset says that these have ended."""
        self._operations.append((operation_offset, max(ended, default=-1)))

    def progress(self, half_end: int, operation_end: int) -> tuple[int, int]:
        """The first half message and the first operation that still matter."""
        while self._in_order and self._in_order[0] not in self._pending:
            heapq.heappop(self._in_order)
        first = self._in_order[0] if self._in_order else half_end
        first = min([first, *self.owed])
        while self._operations and self._operations[0][1] < first:
            self._operations.popleft()
        return first, self._operations[0][0] if self._operations else operation_end
