"""Whether a consumer's position still means what it meant when the consumer learned it.

A queue that got shorter reuses its offsets for other messages (`store/epochs.py`). A consumer that
comes back with a position past the end of the old messages would skip new ones, so it is sent back:

```
our clients      state the epoch of their position ▶ valid up to the queue's end when that epoch
                 ended; they learn that end, and resume there or at their own progress
Java, Go, ours   that learned the position from a broker without epochs, such as Apache's:
                 in doubt ▶ believed if this connection was sent to the position since;
                 else they resume at what the group has stored or the pull carries, never past
                 the end
```

Commits are judged by the same rule before they are stored. RocketMQ's own tools are exempt: they
read from wherever they are asked to.
"""

from collections import deque

from sparrowmq.net.connection import Connection
from sparrowmq.protocol.names import is_system_group
from sparrowmq.store.epochs import LogEpochs

MAX_UNHANDLED = 2_000
"""Messages that a member without stored progress may have pulled but not handled: the largest span
between the oldest and the newest message in flight that Java and Go clients allow."""
_ANSWERS_KEPT = 16
"""Offsets of a queue that one connection asked for and may use: the oldest is forgotten first."""


class _Sent:
    """Offsets that one connection got from this broker, each with its epoch."""

    __slots__ = ("answers", "positions")

    def __init__(self) -> None:
        self.positions: dict[tuple[str, str, int], tuple[int, int]] = {}
        """(group, topic, queue) → (epoch, position): everything up to it was delivered."""
        self.answers: dict[tuple[str, int], deque[tuple[int, int]]] = {}
        """(topic, queue) → epochs and offsets that the client asked for: it knows exactly these."""


class Positions:
    """Judges positions. Costs nothing while no queue has got shorter."""

    def __init__(self, epochs: LogEpochs) -> None:
        self._epochs = epochs
        self._sent: dict[Connection, _Sent] = {}

    def valid_end(
        self,
        connection: Connection,
        group: str,
        topic: str,
        queue_id: int,
        position: int,
        epoch: int | None,
    ) -> int | None:
        """The end of the messages that the position counts, if it lies past that end; else None."""
        epochs = self._epochs
        if epoch:  # 0: one of our clients, which does not know the epoch
            if epoch == epochs.current:
                return None
            end = epochs.end_since(topic, queue_id, epoch)
            return end if end is not None and position > end else None
        if not epochs.has_doubts or is_system_group(group):
            return None
        ends = [
            doubt.after
            for doubt in epochs.doubts(topic, queue_id)
            if doubt.after < position <= doubt.until
            and not self._was_sent(connection, group, topic, queue_id, position, doubt.epoch)
        ]
        return min(ends, default=None)

    def _was_sent(
        self,
        connection: Connection,
        group: str,
        topic: str,
        queue_id: int,
        position: int,
        since: int,
    ) -> bool:
        sent = self._sent.get(connection)
        if sent is None:
            return False
        epoch, reached = sent.positions.get((group, topic, queue_id), (0, -1))
        if epoch >= since and position <= reached:
            return True
        answers = sent.answers.get((topic, queue_id), ())
        return any(epoch >= since and position == offset for epoch, offset in answers)

    def note_sent(
        self, connection: Connection, group: str, topic: str, queue_id: int, offset: int, epoch: int
    ) -> None:
        """Remember that a member without epochs was sent to an offset of this epoch."""
        if self._is_in_doubt(topic, queue_id, offset):
            sent = self._sent.setdefault(connection, _Sent())
            sent.positions[group, topic, queue_id] = (epoch, offset)

    def note_answer(self, connection: Connection, topic: str, queue_id: int, offset: int) -> None:
        """Remember that a client without epochs asked for an offset of a queue, such as its end."""
        if self._is_in_doubt(topic, queue_id, offset):
            sent = self._sent.setdefault(connection, _Sent())
            answers = sent.answers.setdefault((topic, queue_id), deque(maxlen=_ANSWERS_KEPT))
            answers.append((self._epochs.current, offset))

    def _is_in_doubt(self, topic: str, queue_id: int, offset: int) -> bool:
        epochs = self._epochs
        return epochs.has_doubts and any(
            doubt.after < offset <= doubt.until for doubt in epochs.doubts(topic, queue_id)
        )

    def forget(self, connection: Connection) -> None:
        """A connection ended: a client that comes back may have slept through a restart."""
        self._sent.pop(connection, None)


def resume_offset(end: int, stored: int, carried: int) -> int:
    """Where a member without epochs resumes when the messages it knows end at `end`.

    Progress that the group stored past the end was stored since then. Otherwise every message
    before the end that may not have been handled comes again: the member drops what it has pulled.
    """
    if stored > end:
        return stored
    known = max(stored, carried)
    return min(end, known) if known >= 0 else max(0, end - MAX_UNHANDLED)
