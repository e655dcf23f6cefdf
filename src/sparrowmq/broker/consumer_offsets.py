"""Where each group stands in each queue.

A commit is in `CommitSlots` before it is answered, so that a kill undoes none. All changes are
journaled within a second and the whole table is saved every few seconds: a power cut redelivers at
most what was consumed since the last journal entry.

A reset is pending until the member that has the queue applies it:

    reset ─┬─ each puller is sent to the new offset once; commits are ignored meanwhile
           └─ ends when a puller that was sent there pulls again, or a member asks for the offset

The pending state is journaled and saved with the offset: a member may sleep through the reset and a
restart. Which pullers were sent there is not saved: their connections end with the broker.

Brokers of one name merge their tables (`replication/table_rules.py`). For this purpose every offset
that was set back or removed has a number, its rewind:

    changed by a client ──┬─▶ dirty ─┬─▶ unsaved: journaled next
    merged from a slave ──┘          ├─▶ recent, on a master: what slaves ask for
                                     └─▶ unsent, on a slave: sent to the master next
    merged from the master ──────────┬─▶ unsaved
    the master's copy is older ──────┴─▶ unsent
"""

from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar
from weakref import WeakValueDictionary

import msgspec

from sparrowmq.broker.commit_slots import CommitSlots
from sparrowmq.broker.replication.table_rules import OffsetChange, RecentChanges, merged
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable

T = TypeVar("T")
QueueOffsets = dict[int, int]
Place = tuple[str, int]
"""`topic@group` and a queue."""

_KEYS_AT_ONCE = 4096
_MOST_REMOVED = 10_000
"""How many rewinds of removed offsets are kept; each costs about 150 bytes."""


class ConsumerOffsets:
    """`topic@group` → queue → next offset, as consumerOffset.json keeps it; and pending resets."""

    def __init__(
        self,
        table: Mapping[str, Mapping[int, int]],
        pending_resets: Mapping[str, Iterable[int]] | None = None,
        rewinds: Mapping[str, Mapping[int, int]] | None = None,
        forgotten_rewind: int = 0,
    ) -> None:
        self._table: dict[str, QueueOffsets] = {key: dict(row) for key, row in table.items()}
        self._dirty: dict[Place, None] = {}
        self._unsaved: dict[Place, None] = {}
        self.recent: RecentChanges[Place] = RecentChanges()
        """What slaves may lack."""
        self._unsent: dict[Place, None] = {}
        """What the master may lack."""
        self.is_copy = False
        """Whether this is a slave's table, where offsets only move forward."""
        self.slots: CommitSlots | None = None
        """Where commits survive a kill; set once the table has been opened."""
        self._rewinds: dict[Place, int] = {
            (key, queue_id): number
            for key, row in (rewinds or {}).items()
            for queue_id, number in row.items()
        }
        """The number of each place's last rewind, including places whose offset was removed."""
        self._removed = {place for place in self._rewinds if self._offset(place) < 0}
        """Places in `_rewinds` whose offset was removed. Some may have one again: commits, which
        are on the hot path, do not look here."""
        self.forgotten_rewind = forgotten_rewind
        """Rewinds of removed offsets up to this number may have been forgotten."""
        self.last_rewind = max((forgotten_rewind, *self._rewinds.values()))
        """The highest number assigned so far."""
        self._resets: dict[tuple[str, int], set[Hashable]] = {
            (key, queue_id): set()
            for key, queue_ids in (pending_resets or {}).items()
            for queue_id in queue_ids
            if queue_id in self._table.get(key, {})
        }
        """Pending resets to the offset in the table, each with the pullers already sent there."""
        self._known_to: WeakValueDictionary[Place, object] = WeakValueDictionary()
        """Which connection last continued from a stored offset, or stored one."""
        self.pulled: dict[tuple[str, str, int], int] = {}
        """(group, topic, queue) → the offset after the last pulled message. Only for display: it is
        never saved, and no member resumes from it. A plain dict, as every pull writes to it."""

    def get(self, group: str, topic: str, queue_id: int) -> int:
        """The stored offset, -1 if there is none."""
        row = self._table.get(f"{topic}@{group}")
        return -1 if row is None else row.get(queue_id, -1)

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store an explicit commit, even one that moves back, which only a master allows.

        A commit between a reset and the member's applying it is ignored.
        """
        key = f"{topic}@{group}"
        if offset < 0 or (key, queue_id) in self._resets:
            return
        if offset < self._table.get(key, {}).get(queue_id, -1):
            if self.is_copy:
                return
            self._rewind(key, queue_id)
        self._put(key, queue_id, offset)

    def note_known(self, group: str, topic: str, queue_id: int, member: object) -> None:
        """This member knows how far the group is, and may have it moved back."""
        self._known_to[f"{topic}@{group}", queue_id] = member

    def is_known_to(self, group: str, topic: str, queue_id: int, member: object) -> bool:
        """Whether it was this member that last learned or stored how far the group is, and no
        other broker has known more since."""
        return self._known_to.get((f"{topic}@{group}", queue_id)) is member

    def carry(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store the offset that a pull carries, unless it is lower than the stored one."""
        key = f"{topic}@{group}"
        row = self._table.get(key)
        if offset <= (-1 if row is None else row.get(queue_id, -1)):
            return
        if self._resets and (key, queue_id) in self._resets:
            return
        # Like `_put`, without looking up the row again: this runs for nearly every pull.
        if row is None:
            row = self._table[key] = {}
        row[queue_id] = offset
        place = key, queue_id
        self._dirty[place] = None
        if self.slots is not None and not self.slots.update(place, offset):
            self.slots.add(place, offset, self._rewinds.get(place, 0))

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an operator's offset; commits are ignored until the queue's member has applied it."""
        key = f"{topic}@{group}"
        self._rewind(key, queue_id)
        # Not in the slots, which know no resets: it is journaled before it is answered.
        self._table.setdefault(key, {})[queue_id] = offset
        self._resets[key, queue_id] = set()
        self._dirty[key, queue_id] = None
        self.pulled.pop((group, topic, queue_id), None)

    def redirect(self, group: str, topic: str, queue_id: int, puller: Hashable) -> int | None:
        """The offset of a pending reset for a puller that does not know of it; None otherwise.

        Each puller is sent there once. That alone does not end the reset: the Java 4.9 and Go
        clients keep committing their old progress for 10 s. Their next pull ends it, from any
        offset, so that a reader that keeps its own offsets is not redirected forever.
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
        """These pullers learned of a pending reset in some way other than `redirect`."""
        sent = self._resets.get((f"{topic}@{group}", queue_id))
        if sent is not None:
            sent.update(pullers)

    def confirms(
        self, group: str, topic: str, queue_id: int, offset: int, puller: Hashable
    ) -> bool:
        """Whether a commit stores the offset of a pending reset to which its sender was sent."""
        sent = self._resets.get((f"{topic}@{group}", queue_id)) if self._resets else None
        return sent is not None and puller in sent and offset == self.get(group, topic, queue_id)

    def applied(self, group: str, topic: str, queue_id: int) -> None:
        """A member resumes from the stored offset: a pending reset of the queue is over."""
        key = f"{topic}@{group}"
        if self._resets.pop((key, queue_id), None) is not None:
            self._dirty[key, queue_id] = None

    def _rewind(self, key: str, queue_id: int) -> None:
        """Number an offset that is about to be set back or removed; only a master numbers them."""
        if not self.is_copy:
            self.last_rewind += 1
            self._rewinds[key, queue_id] = self.last_rewind
            if self.slots is not None:
                self.slots.rewound((key, queue_id))

    def _put(self, key: str, queue_id: int, offset: int) -> None:
        row = self._table.setdefault(key, {})
        if row.get(queue_id) != offset:
            row[queue_id] = offset
            self._dirty[key, queue_id] = None
            self._keep((key, queue_id), offset)

    def _keep(self, place: Place, offset: int) -> None:
        if self.slots is not None and not self.slots.update(place, offset):
            self.slots.add(place, offset, self._rewinds.get(place, 0))

    def _keep_removal(self, place: Place) -> None:
        """What the slots have of this place does not count any more."""
        if self.slots is not None and self.slots.has(place):
            self._keep(place, -1)

    def queues(self, group: str, topic: str) -> QueueOffsets:
        """A copy of a group's offsets in a topic."""
        return dict(self._table.get(f"{topic}@{group}", {}))

    def topics_of(self, group: str) -> list[str]:
        """Topics a group has offsets for."""
        return [topic for part in self.topics_in_parts(group) for topic in part]

    def topics_in_parts(self, group: str) -> Iterator[list[str]]:
        """The same, some at a time: between two parts the caller may let the loop run."""
        ending, keys = f"@{group}", list(self._table)
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            part = keys[start : start + _KEYS_AT_ONCE]
            yield [key[: -len(ending)] for key in part if key.endswith(ending)]

    def groups_of(self, topic: str) -> list[str]:
        """Groups that have offsets for a topic."""
        start = f"{topic}@"
        return [key[len(start) :] for key in self._table if key.startswith(start)]

    def removing_group(self, group: str) -> Generator[None, None, None]:
        """Forget everything a group has consumed, yielding wherever the loop may run."""
        self.forget_pulled(group)
        for topic in self.topics_of(group):
            self._remove(f"{topic}@{group}")
            yield
        self._forget_rewinds()

    def forget_pulled(self, group: str) -> None:
        """Forget what a group has pulled, not what it has consumed."""
        for key in [key for key in self.pulled if key[0] == group]:
            del self.pulled[key]

    def remove_topic(self, topic: str) -> None:
        """Forget a topic's progress, for every group."""
        self.remove_topics({topic})

    def remove_topics(self, topics: Collection[str]) -> None:
        """Forget the progress in these topics, for every group."""
        for pulled in [key for key in self.pulled if key[1] in topics]:
            del self.pulled[pulled]
        for key in [key for key in self._table if key.partition("@")[0] in topics]:
            self._remove(key)
        self._forget_rewinds()

    def _remove(self, key: str) -> None:
        for queue_id in self._table.pop(key, {}):
            # -1 in the journal: the row is gone
            self._dirty[key, queue_id] = None
            self._resets.pop((key, queue_id), None)
            self._rewind(key, queue_id)
            self._keep_removal((key, queue_id))
            if (key, queue_id) in self._rewinds:
                self._removed.add((key, queue_id))

    def _forget_rewinds(self) -> None:
        if len(self._removed) <= _MOST_REMOVED:
            return
        self._removed = {place for place in self._removed if self._offset(place) < 0}
        if len(self._removed) > _MOST_REMOVED:
            self.forgotten_rewind = self.last_rewind
            for place in self._removed:
                del self._rewinds[place]
            self._removed = set()

    def _offset(self, place: Place) -> int:
        return self._table.get(place[0], {}).get(place[1], -1)

    def _change(self, place: Place) -> OffsetChange:
        is_reset, rewind = place in self._resets, self._rewinds.get(place, 0)
        return OffsetChange(*place, self._offset(place), is_reset, rewind)

    # ---- what changed: for the journal, and for the other brokers of this name

    def _spread(self) -> None:
        if self._dirty:
            self._unsaved.update(self._dirty)
            if self.is_copy:
                self._unsent.update(self._dirty)
            else:
                self.recent.note(self._dirty)
            self._dirty = {}

    def take_dirty(self) -> list[OffsetChange]:
        """All changes since the last call, to be journaled."""
        return finished(self.taking_dirty())

    def taking_dirty(self) -> Generator[None, None, list[OffsetChange]]:
        """The same, yielding wherever the loop may run; it has to be run to its end.

        Each change is as it was at its turn. What changes after its turn is dirty again.
        """
        self._spread()
        unsaved, self._unsaved = self._unsaved, {}
        changes = []
        for place in unsaved:
            changes.append(self._change(place))
            yield
        return changes

    def mark_dirty(self, changes: Iterable[OffsetChange]) -> None:
        """Take back changes that could not be journaled."""
        for change in changes:
            self._unsaved[change.key, change.queue_id] = None

    def changes_since(self, count: int) -> list[OffsetChange] | None:
        """What changed after change number `count` of `recent`; None when that is not known."""
        self._spread()
        places = self.recent.since(count)
        return None if places is None else [self._change(place) for place in places]

    def take_unsent(self, most: int) -> list[OffsetChange]:
        """At most `most` changes that were committed at this slave and that its master may lack."""
        self._spread()
        taken = list(islice(self._unsent, most))
        for place in taken:
            del self._unsent[place]
        return [self._change(place) for place in taken]

    def mark_unsent(self, changes: Iterable[OffsetChange]) -> None:
        """Take back changes that did not reach the master."""
        for change in changes:
            self._unsent[change.key, change.queue_id] = None

    def everything(self) -> list[OffsetChange]:
        """All offsets, and the rewinds of those that were removed."""
        return list(changes_in(self.table()))

    def begin_life(self, number: int) -> None:
        """A master starts. Its rewinds are numbered from here on, above those of all earlier
        masters: a power cut may have erased some of those from the table but not from copies."""
        self.last_rewind = max(self.last_rewind, number)

    def merge(self, changes: Iterable[OffsetChange]) -> None:
        """Take over those changes of another broker that are later than the ones here."""
        self._spread()
        touched = self._unsaved if self.is_copy else self._dirty
        for change in changes:
            place = change.key, change.queue_id
            own = self._change(place)
            if own == change:
                continue
            if merged(own, change) != own:
                self._set(change)
                touched[place] = None
                self._known_to.pop(place, None)
                if not self.is_copy and change.offset >= 0 and not change.is_reset:
                    self._keep(place, change.offset)
            elif self.is_copy:
                self._unsent[place] = None
        self._forget_rewinds()

    def comparing_missing(self, whole: ConsumerOffsetTable) -> Generator[None, None, None]:
        """Handle offsets that a master's whole table lacks, yielding wherever the loop may run:
        removed there, if the master may have forgotten the rewind; otherwise the master never had
        them."""
        forgotten = whole.forgotten_rewind or 0
        rewinds = whole.rewinds or {}
        for key, row in self.rows():
            known, rewound = whole.offset_table.get(key, ()), rewinds.get(key, ())
            for queue_id in row:
                place = key, queue_id
                if queue_id in known or queue_id in rewound:
                    continue
                if self._rewinds.get(place, 0) < forgotten:
                    self._set(OffsetChange(*place, -1))
                    self._unsaved[place] = None
                else:
                    self._unsent[place] = None
            yield

    def replay(self, change: OffsetChange) -> None:
        """Apply a journal entry at startup."""
        self._set(change)

    def _set(self, change: OffsetChange) -> None:
        key, queue_id, offset, is_reset, rewind = change
        self._resets.pop((key, queue_id), None)
        if rewind:
            if self.slots is not None and rewind != self._rewinds.get((key, queue_id)):
                self.slots.rewound((key, queue_id))
            self._rewinds[key, queue_id] = rewind
            self.last_rewind = max(self.last_rewind, rewind)
            if offset < 0:
                self._removed.add((key, queue_id))
        if offset >= 0:
            self._table.setdefault(key, {})[queue_id] = offset
            if is_reset:
                self._resets[key, queue_id] = set()
        else:
            self._keep_removal((key, queue_id))
            row = self._table.get(key, {})
            row.pop(queue_id, None)
            if not row:
                self._table.pop(key, None)

    def clamp(self, max_offset: Callable[[str, int], int]) -> list[tuple[str, int, int, int]]:
        """Reduce progress past the end of a queue; returns (topic@group, queue, was, is) for each.

        A power cut may lose messages that were already consumed. New ones get their offsets, and a
        group positioned past the end would never see them.
        """
        lowered = []
        for key, row in self._table.items():
            topic = key.partition("@")[0]
            for queue_id, offset in row.items():
                end = max_offset(topic, queue_id)
                if offset > end:
                    lowered.append((key, queue_id, offset, end))
        for key, queue_id, _, end in lowered:
            self._rewind(key, queue_id)
            self._put(key, queue_id, end)
        return lowered

    def row_names(self) -> list[str]:
        """All `topic@group` names, for callers that look at one row after another."""
        return list(self._table)

    def row(self, key: str) -> QueueOffsets:
        """A copy of the offsets under one of these names; empty if it is gone."""
        return dict(self._table.get(key, ()))

    def rows(self) -> Iterator[tuple[str, QueueOffsets]]:
        """All rows, as they are saved. Each row is copied only when its turn comes, so the caller
        may let the loop run in between; rows added or removed meanwhile are left out."""
        for key in list(self._table):
            row = self._table.get(key)
            if row is not None:
                yield key, dict(row)

    def pending_resets(self) -> dict[str, list[int]]:
        """`topic@group` → queues whose reset is pending, as it is saved."""
        pending: dict[str, list[int]] = {}
        for key, queue_id in self._resets:
            pending.setdefault(key, []).append(queue_id)
        return pending

    def table(self) -> ConsumerOffsetTable:
        """The whole table, as it is saved and copied."""
        self._spread()
        return finished(self.copying())

    def copying(self) -> Generator[None, None, ConsumerOffsetTable]:
        """A copy of the whole table, yielding wherever the loop may run.

        What changes meanwhile is in the copy or not, or in part: a reset, but not its offset. So
        the copy needs `updated` with all changes since its beginning.
        """
        rows = {}
        for key, row in self.rows():
            rows[key] = row
            yield
        rewinds: dict[str, dict[int, int]] = {}
        for place in list(self._rewinds):
            number = self._rewinds.get(place)
            if number is not None:  # not forgotten meanwhile
                rewinds.setdefault(place[0], {})[place[1]] = number
            yield
        return ConsumerOffsetTable(
            offset_table=rows,
            pending_resets=self.pending_resets() or None,
            rewinds=rewinds or None,
            # Last: rewinds that were forgotten meanwhile may be missing in the copy.
            forgotten_rewind=self.forgotten_rewind or None,
        )


def finished(work: Generator[None, None, T]) -> T:
    """The result of work that is done in one go."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # T, says the generator's type


def updated(table: ConsumerOffsetTable, changes: Iterable[OffsetChange]) -> ConsumerOffsetTable:
    """A copied table after these changes. It takes over the dictionaries of `table`."""
    rows, rewinds = table.offset_table, table.rewinds or {}
    resets = {key: set(queue_ids) for key, queue_ids in (table.pending_resets or {}).items()}
    for key, queue_id, offset, is_reset, rewind in changes:
        row = rows.setdefault(key, {})
        if offset >= 0:
            row[queue_id] = offset
        else:
            row.pop(queue_id, None)
        if not row:
            del rows[key]
        pending = resets.setdefault(key, set())
        if is_reset:
            pending.add(queue_id)
        else:
            pending.discard(queue_id)
        if not pending:
            del resets[key]
        if rewind:
            rewinds.setdefault(key, {})[queue_id] = rewind
    return msgspec.structs.replace(
        table,
        pending_resets={key: sorted(pending) for key, pending in resets.items()} or None,
        rewinds=rewinds or None,
    )


def changes_in(table: ConsumerOffsetTable) -> Iterator[OffsetChange]:
    """Everything in a table, including the rewinds of removed offsets."""
    resets, numbers = table.pending_resets or {}, table.rewinds or {}
    for key, row in table.offset_table.items():
        pending, rewinds = resets.get(key, ()), numbers.get(key, {})
        for queue_id, offset in row.items():
            is_reset = queue_id in pending
            yield OffsetChange(key, queue_id, offset, is_reset, rewinds.get(queue_id, 0))
    for key, rewinds in numbers.items():
        row = table.offset_table.get(key, {})
        for queue_id, number in rewinds.items():
            if queue_id not in row:
                yield OffsetChange(key, queue_id, -1, False, number)
