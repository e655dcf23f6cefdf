"""Where each group stands in each queue.

Changes are journaled within a second and the whole table is saved every few: a crash re-delivers at
most what was consumed since the last journal entry.

A reset is pending until the member that has the queue applies it:

    reset ─┬─ each puller is sent to the new offset once; commits are ignored meanwhile
           └─ ends when a puller that was sent there pulls again, or a member asks for the offset

That it is pending is journaled and saved with the offset: a member may sleep through the reset and
a restart. Which pullers were sent there is not saved: their connections end with the broker.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import NamedTuple

QueueOffsets = dict[int, int]


class OffsetChange(NamedTuple):
    """What is true of a queue now, as the journal says it.

    One value holds the offset and the reset, so that progress is never replayed without the end of
    the reset before it.
    """

    key: str
    """`topic@group`."""
    queue_id: int
    offset: int
    """-1: removed."""
    is_reset: bool = False
    """A reset to the offset is pending. Journals of older versions do not have it."""


class ConsumerOffsets:
    """`topic@group` → queue → next offset, as consumerOffset.json keeps it; and pending resets."""

    def __init__(
        self,
        table: Mapping[str, Mapping[int, int]],
        pending_resets: Mapping[str, Iterable[int]] | None = None,
    ) -> None:
        self._table: dict[str, QueueOffsets] = {key: dict(row) for key, row in table.items()}
        self._dirty: dict[tuple[str, int], None] = {}
        self._resets: dict[tuple[str, int], set[Hashable]] = {
            (key, queue_id): set()
            for key, queue_ids in (pending_resets or {}).items()
            for queue_id in queue_ids
            if queue_id in self._table.get(key, {})
        }
        """Pending ones, to the offset in the table: the pullers that were sent there already."""
        self.pulled: dict[tuple[str, str, int], int] = {}
        """(group, topic, queue) → the offset after what pulls were answered. Only shown: it is
        neither saved nor what a member goes on from. A plain dict, as every pull writes to it."""

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """The stored offset, -1 if there is none."""
        row = self._table.get(f"{topic}@{group}")
        return -1 if row is None else row.get(queue_id, -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An explicit commit: stored, also when it moves back.

        One that comes after a reset and before the member has applied it is ignored.
        """
        if offset >= 0 and (f"{topic}@{group}", queue_id) not in self._resets:
            self._put(f"{topic}@{group}", queue_id, offset)

    def carry(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the offset that a pull carries, unless it is lower than the stored one."""
        key = f"{topic}@{group}"
        row = self._table.get(key)
        if offset <= (-1 if row is None else row.get(queue_id, -1)):
            return
        if self._resets and (key, queue_id) in self._resets:
            return
        # As `_put`, without looking for the row again: this is done for nearly every pull.
        if row is None:
            row = self._table[key] = {}
        row[queue_id] = offset
        self._dirty[key, queue_id] = None

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """An operator's choice; commits are ignored until the queue's member has applied it."""
        key = f"{topic}@{group}"
        self._put(key, queue_id, offset)
        self._resets[key, queue_id] = set()
        self._dirty[key, queue_id] = None
        self.pulled.pop((group, topic, queue_id), None)

    def redirect(self, group: str, topic: str, queue_id: int, puller: Hashable) -> int | None:
        """The offset of a pending reset for a puller that does not know of it; None otherwise.

        Each puller is sent there once. Being sent is not enough to end the reset: the clients of
        Java 4.9 and Go go on committing their old progress for 10 s. The next pull ends it, from
        whatever offset, so that a reader that keeps offsets of its own is not sent away for ever.
        """
        if not self._resets:
            return None
        sent = self._resets.get((f"{topic}@{group}", queue_id))
        if sent is None:
            return None
        if puller in sent:
            self.applied(group, topic, queue_id)
            return None
        sent.add(puller)
        return self.get(group, topic, queue_id)

    def sent_to_reset(
        self, group: str, topic: str, queue_id: int, pullers: Iterable[Hashable]
    ) -> None:
        """These pullers learned of a pending reset by another way than `redirect`."""
        sent = self._resets.get((f"{topic}@{group}", queue_id))
        if sent is not None:
            sent.update(pullers)

    def confirms(
        self, group: str, topic: str, queue_id: int, offset: int, puller: Hashable
    ) -> bool:
        """Whether a commit stores the offset of a pending reset that its sender was sent to."""
        sent = self._resets.get((f"{topic}@{group}", queue_id)) if self._resets else None
        return sent is not None and puller in sent and offset == self.get(group, topic, queue_id)

    def applied(self, group: str, topic: str, queue_id: int) -> None:
        """A member goes on from the stored offset: a pending reset of the queue is over."""
        key = f"{topic}@{group}"
        if self._resets.pop((key, queue_id), None) is not None:
            self._dirty[key, queue_id] = None

    def _put(self, key: str, queue_id: int, offset: int) -> None:
        row = self._table.setdefault(key, {})
        if row.get(queue_id) != offset:
            row[queue_id] = offset
            self._dirty[key, queue_id] = None

    def queues(self, group: str, topic: str) -> QueueOffsets:
        """A copy of a group's offsets in a topic."""
        return dict(self._table.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Topics a group has offsets for."""
        ending = f"@{group}"
        return [key[: -len(ending)] for key in self._table if key.endswith(ending)]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets for a topic."""
        start = f"{topic}@"
        return [key[len(start) :] for key in self._table if key.startswith(start)]

    def remove_group(self, group: str) -> None:
        """Forget everything a group has consumed."""
        self.forget_pulled(group)
        for topic in self.topics_of(group):
            self._remove(f"{topic}@{group}")

    def forget_pulled(self, group: str) -> None:
        """Forget what a group has pulled, not what it has consumed."""
        for key in [key for key in self.pulled if key[0] == group]:
            del self.pulled[key]

    def remove_topic(self, topic: str) -> None:
        """Forget a topic's progress, for every group."""
        for key in [key for key in self.pulled if key[1] == topic]:
            del self.pulled[key]
        for group in self.groups_of(topic):
            self._remove(f"{topic}@{group}")

    def _remove(self, key: str) -> None:
        for queue_id in self._table.pop(key, {}):
            # -1 in the journal: the row is gone
            self._dirty[key, queue_id] = None
            self._resets.pop((key, queue_id), None)

    def take_dirty(self) -> list[OffsetChange]:
        """All changes since the last call."""
        dirty, self._dirty = self._dirty, {}
        return [
            OffsetChange(
                key,
                queue_id,
                self._table.get(key, {}).get(queue_id, -1),
                (key, queue_id) in self._resets,
            )
            for key, queue_id in dirty
        ]

    def mark_dirty(self, changes: Iterable[OffsetChange]) -> None:
        """Changes that could not be journaled after all."""
        for change in changes:
            self._dirty[change.key, change.queue_id] = None

    def replay(self, change: OffsetChange) -> None:
        """Apply a journal entry at start."""
        key, queue_id, offset, is_reset = change
        self._resets.pop((key, queue_id), None)
        if offset >= 0:
            self._table.setdefault(key, {})[queue_id] = offset
            if is_reset:
                self._resets[key, queue_id] = set()
        else:
            row = self._table.get(key, {})
            row.pop(queue_id, None)
            if not row:
                self._table.pop(key, None)

    def clamp(self, max_offset: Callable[[str, int], int]) -> list[tuple[str, int, int, int]]:
        """Take back progress beyond the end of a queue; (topic@group, queue, was, is) of each.

        A power cut may cost messages that were consumed already. New ones get their offsets, and a
        group that stood past the end would never see those.
        """
        lowered = []
        for key, row in self._table.items():
            topic = key.partition("@")[0]
            for queue_id, offset in row.items():
                end = max_offset(topic, queue_id)
                if offset > end:
                    lowered.append((key, queue_id, offset, end))
        for key, queue_id, _, end in lowered:
            self._put(key, queue_id, end)
        return lowered

    def rows(self) -> Iterator[tuple[str, QueueOffsets]]:
        """Everything, as it is saved."""
        return iter([(key, dict(row)) for key, row in self._table.items()])

    def pending_resets(self) -> dict[str, list[int]]:
        """`topic@group` → queues whose reset is pending, as it is saved."""
        pending: dict[str, list[int]] = {}
        for key, queue_id in self._resets:
            pending.setdefault(key, []).append(queue_id)
        return pending
