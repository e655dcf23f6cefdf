"""The broker's tables on disk, under config/: topics, groups, request modes, consumer offsets, what
groups subscribed to at the last graceful shutdown, and whether the broker is drained.

Topics, groups, request modes and the drain are rewritten whole (`table_saving`). Consumer offsets
change with every commit, so a journal of changes complements their table and is replayed at start,
as are the last commits (`commit_slots`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import msgspec

from sparrowmq.broker.commit_slots import CommitSlots, read_commits
from sparrowmq.broker.consumer_offsets import ConsumerOffsets, updated
from sparrowmq.broker.environment import Environment
from sparrowmq.broker.live_clients import ConsumerGroup, Consumers
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.slices import Slices, in_slices
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.broker_stats import MessageRequestModeTable
from sparrowmq.protocol.drain import DrainTable
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.group_config import SubscriptionGroupTable
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.topic_config import TopicConfigTable
from sparrowmq.store.journal import Journal
from sparrowmq.store.messages import Damage
from sparrowmq.store.store import Store
from sparrowmq.store.table_file import TableFile

Report = Callable[[Damage], None]
T = TypeVar("T", bound=Body)


def _decoder(kind: type[T]) -> Callable[[bytes], T]:
    def decode(data: bytes) -> T:
        try:
            return kind.from_json(data)
        except BodyError as error:
            raise ValueError(str(error)) from error

    return decode


class BrokerTables:
    """The files of all tables."""

    def __init__(self, disk: Disk, report: Report) -> None:
        self._report = report
        self.topics = TableFile(disk, "topics.json", _decoder(TopicConfigTable))
        self.groups = TableFile(disk, "subscriptionGroup.json", _decoder(SubscriptionGroupTable))
        self.modes = TableFile(disk, "messageRequestMode.json", _decoder(MessageRequestModeTable))
        self.drain = TableFile(disk, "drain.json", _decoder(DrainTable))
        self._subscriptions = TableFile(disk, "lastSubscriptions.json", _decoder(LastSubscriptions))
        self.offsets = OffsetsTable(disk, report)

    def load_topics(self, *, store_is_used: bool) -> TopicConfigTable:
        """topics.json. Raises TableMissing."""
        found = self.topics.load(self._report, store_is_used=store_is_used)
        return found if found is not None else TopicConfigTable()

    def load_groups(self, *, store_is_used: bool) -> SubscriptionGroupTable:
        """subscriptionGroup.json. Raises TableMissing."""
        found = self.groups.load(self._report, store_is_used=store_is_used)
        return found if found is not None else SubscriptionGroupTable()

    def load_request_modes(self) -> MessageRequestModeTable:
        """messageRequestMode.json, which exists once a mode was set."""
        found = self.modes.load(self._report, store_is_used=True, may_be_missing=True)
        return found if found is not None else MessageRequestModeTable()

    def load_drain(self) -> DrainTable:
        """drain.json, which exists once the broker was drained. Raises TableMissing."""
        found = self.drain.load(self._report, store_is_used=True, may_be_missing=True)
        return found if found is not None else DrainTable()

    def open_consumers(self, env: Environment, timeout_s: float) -> Consumers:
        """No live consumers yet, only what groups subscribed to at the last graceful shutdown.

        It comes from lastSubscriptions.json and is valid for `timeout_s` after that shutdown.
        """
        found = self._subscriptions.load(self._report, store_is_used=True, may_be_missing=True)
        last = found if found is not None else LastSubscriptions()
        # If the clock was set back meanwhile, they must not be kept longer.
        left_ms = min(last.until_ms - env.clock(), int(timeout_s * 1000))
        consumers = Consumers()
        consumers.remember_subscriptions(last.by_name(), env.monotonic() + left_ms)
        return consumers

    def save_last_subscriptions(self, table: LastSubscriptions) -> None:
        """Durable when this returns. Raises DiskFull or OSError."""
        self._subscriptions.save(table.to_json())


_OWN_MARK = "sparrowmq"
_CHANGES_IN_ENTRY = 10_000
"""Encoding them takes about 3 ms, in which no other thread can run."""
Changes = list[OffsetChange]


class OffsetsTable:
    """consumerOffset.json, the journal of what changed since it was written, and the commits that
    may not be journaled yet."""

    def __init__(self, disk: Disk, report: Report) -> None:
        self._file = TableFile(disk, "consumerOffset.json", _decoder(ConsumerOffsetTable))
        self._journal = Journal(disk, "consumerOffset")
        self._slots = CommitSlots(disk)
        self._report = report

    def load(self, *, store_is_used: bool) -> ConsumerOffsets:
        """Progress of all groups: the table, then what the journal adds, then the last commits.

        A table that Apache's broker wrote is newer than these, which are then dropped. Raises
        TableMissing when a used store has lost both copies.
        """
        table = self._file.load(self._report, store_is_used=store_is_used)
        offsets = ConsumerOffsets({})
        if table is not None:
            offsets = _offsets_of(table)
        if table is None or table.written_by != _OWN_MARK:
            self._journal.discard()
            self._slots.discard()
            # From here on the journal is valid, so the table under it has to be marked as ours.
            self._file.save(_marked(offsets.table()).to_json())
        replay_journal(self._journal, offsets, self._report)
        offsets.merge(self._slots.replay(self._report))
        return offsets

    def open(
        self,
        store: Store,
        log: logging.Logger,
        *,
        is_copy: bool = False,
        progress: Iterable[OffsetChange] = (),
    ) -> ConsumerOffsets:
        """What `load` finds, merged with the later `progress` of slaves, and without progress in
        messages that a power cut took.

        The result is durable before anything is stored: once the queue has grown past the old
        progress and the broker is killed, the two could no longer be told apart.
        """
        offsets = self.load(store_is_used=store.max_log_offset > 0)
        offsets.is_copy = is_copy
        if not is_copy:
            offsets.begin_life(store.epochs.current)
        offsets.merge(progress)
        for key, queue_id, was, end in offsets.clamp(store.max_offset):
            log.warning(
                "progress of %s in queue %d was %d, past the recovered end %d; set to the end",
                key,
                queue_id,
                was,
                end,
            )
        changes = offsets.take_dirty()
        try:
            self._append(changes)
        except DiskFull:
            offsets.mark_dirty(changes)
        else:
            self._slots.clear()
            self._slots.cleared()
        offsets.slots = self._slots
        return offsets

    async def journal(self, offsets: ConsumerOffsets, workers: Workers, slices: Slices) -> None:
        """Make what changed since the last call durable. Raises DiskFull, having lost nothing."""
        changes = await in_slices(offsets.taking_dirty(), slices)
        if changes:
            try:
                await workers.run(self._append, changes)
            except DiskFull:
                offsets.mark_dirty(changes)
                raise

    def _append(self, changes: Changes) -> None:
        for part in range(0, len(changes), _CHANGES_IN_ENTRY):
            self._journal.append(msgspec.json.encode(changes[part : part + _CHANGES_IN_ENTRY]))
        if changes:
            self._journal.sync()

    async def save(self, offsets: ConsumerOffsets, workers: Workers, slices: Slices) -> None:
        """Rewrite the table; then the journal starts over. Raises DiskFull.

        The loop runs while the table is copied, so the changes are taken after that.
        """
        self._slots.begin()
        table = await in_slices(offsets.copying(), slices)
        changes = await in_slices(offsets.taking_dirty(), slices)
        try:
            await workers.run(self._save, changes, table)
        except DiskFull:
            offsets.mark_dirty(changes)
            raise
        self._slots.cleared()

    def _save(self, changes: Changes, table: ConsumerOffsetTable) -> None:
        # The journal first: it must never hold less than a saved table.
        self._append(changes)
        # The copied table may have some of these changes only in part. The journal before this one
        # would add the rest, but it is gone when the table has become the .bak.
        if self._file.save(_marked(updated(table, changes)).to_json()):
            self._journal.rotate()
        # The table has these commits, or the journal of a table that did not change.
        self._slots.clear()

    def close(self) -> None:
        """Close the files of journal and commits."""
        self._journal.close()
        self._slots.close()


def _offsets_of(table: ConsumerOffsetTable) -> ConsumerOffsets:
    return ConsumerOffsets(
        table.offset_table, table.pending_resets, table.rewinds, table.forgotten_rewind or 0
    )


def _marked(table: ConsumerOffsetTable) -> ConsumerOffsetTable:
    return msgspec.structs.replace(table, written_by=_OWN_MARK)


def read_progress(disk: Disk, table: ConsumerOffsetTable) -> Mapping[str, Mapping[int, int]]:
    """Progress as a start would find it: the table, plus journal and commits if it is ours."""
    offsets = _offsets_of(table)
    if table.written_by == _OWN_MARK:
        for entry in Journal(disk, "consumerOffset").read():
            for change in msgspec.json.decode(entry, type=Changes):
                offsets.replay(change)
        offsets.merge(read_commits(disk))
    return offsets.table().offset_table


def progress_without_table(disk: Disk) -> ConsumerOffsets:
    """What journal and commits know, for a table that was lost."""
    offsets = ConsumerOffsets({})
    replay_journal(Journal(disk, "consumerOffset"), offsets, lambda damage: None)
    offsets.merge(read_commits(disk))
    return offsets


def replay_journal(journal: Journal, offsets: ConsumerOffsets, report: Report) -> None:
    """Apply the journal of consumer offsets to its table."""
    for entry in journal.replay(report):
        for change in msgspec.json.decode(entry, type=Changes):
            offsets.replay(change)


class LastSubscriptions(Body, frozen=True, kw_only=True):
    """What groups subscribed to at the last graceful shutdown: config/lastSubscriptions.json.

    Pulls of the Go client do not carry their filter, and its heartbeats come every 30 s: without
    this its consumers would stall for that long after every restart.
    """

    until_ms: int = 0
    """Members that have not come back by then are gone."""
    groups: tuple[ConsumerData, ...] = ()

    def by_name(self) -> dict[str, ConsumerGroup]:
        """Groups as they were, without their members."""
        found = {}
        for data in self.groups:
            group = found[data.group_name] = ConsumerGroup(data.group_name, data)
            group.subscribe(data.subscription_data_set)
        return found


def last_subscriptions(groups: Iterable[ConsumerGroup], until_ms: int) -> LastSubscriptions:
    """The current subscriptions of these groups."""
    return LastSubscriptions(
        until_ms=until_ms,
        groups=tuple(
            ConsumerData(
                group_name=group.name,
                consume_type=group.consume_type,
                message_model=group.message_model,
                consume_from_where=group.from_where,
                subscription_data_set=tuple(group.subscriptions.values()),
            )
            for group in groups
        ),
    )
