"""Messages of one queue between pull and commit.

Progress is the smallest offset that is not consumed: a commit never passes a message in work.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from sparrowmq.protocol.message_ext import MessageExt


class ProcessQueue:
    """Messages that were pulled and not yet consumed, in offset order."""

    __slots__ = ("_messages", "_next_offset", "_started_s", "is_dropped", "size_bytes")

    def __init__(self) -> None:
        # Pulled in order, so the first key is the smallest offset.
        self._messages: dict[int, MessageExt] = {}
        self._next_offset = -1
        self._started_s: dict[int, float] = {}
        self.size_bytes = 0
        self.is_dropped = False
        """The queue was given up or lost: take nothing from it; late results do not count."""

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[MessageExt]:
        return iter(self._messages.values())

    @property
    def span(self) -> int:
        """From the oldest to the newest offset in work."""
        if not self._messages:
            return 0
        return self._next_offset - 1 - next(iter(self._messages))

    @property
    def progress(self) -> int:
        """The offset to commit; -1 when nothing was ever pulled."""
        return next(iter(self._messages)) if self._messages else self._next_offset

    @property
    def oldest(self) -> MessageExt | None:
        """The message that holds progress back."""
        return next(iter(self._messages.values()), None)

    @property
    def newest_offset(self) -> int:
        """The newest offset that was pulled; -1 when nothing was."""
        return self._next_offset - 1 if self._next_offset > 0 else -1

    @property
    def oldest_start_s(self) -> float | None:
        """When the oldest call of a handler that still runs began; None when none does."""
        return min(self._started_s.values(), default=None)

    def first(self, count: int) -> list[MessageExt]:
        """The oldest messages; they stay in the queue."""
        return list(islice(self._messages.values(), count))

    def started(self, messages: Iterable[MessageExt], now_s: float) -> None:
        """A handler starts on these messages."""
        for message in messages:
            self._started_s[message.queue_offset] = now_s

    def expired(self, before_s: float) -> MessageExt | None:
        """The oldest message, if a handler has had it since before `before_s`."""
        oldest = self.oldest
        if oldest is None:
            return None
        return oldest if self._started_s.get(oldest.queue_offset, before_s) < before_s else None

    def put(self, messages: Sequence[MessageExt]) -> None:
        """Add pulled messages."""
        for message in messages:
            if message.queue_offset not in self._messages:
                self._messages[message.queue_offset] = message
                self.size_bytes += len(message.record.body)
        if messages:
            self._next_offset = max(self._next_offset, messages[-1].queue_offset + 1)

    def remove(self, messages: Iterable[MessageExt]) -> int:
        """Remove messages that are done or were sent back. Returns the progress afterwards."""
        for message in messages:
            found = self._messages.pop(message.queue_offset, None)
            self._started_s.pop(message.queue_offset, None)
            if found is not None:
                self.size_bytes -= len(found.record.body)
        return self.progress

    def replace(self, message: MessageExt) -> None:
        """Replace a message by a copy with another reconsume count."""
        if message.queue_offset in self._messages:
            self._messages[message.queue_offset] = message
            self._started_s.pop(message.queue_offset, None)

    def contains(self, message: MessageExt) -> bool:
        """Whether a message is still in work."""
        return message.queue_offset in self._messages

    def clear(self) -> None:
        """Forget everything: the queue restarts at another offset."""
        self._messages.clear()
        self._started_s.clear()
        self.size_bytes = 0
        self._next_offset = -1
