"""Take the state of a broker's tables, and make a slave's tables equal to it."""

import asyncio
from collections.abc import Iterable, Sequence
from itertools import islice

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.consumer_offsets import changes_in, updated
from sparrowmq.broker.delivery import delay_levels, timer_persistence
from sparrowmq.broker.delivery.clock_steps import ClockStep
from sparrowmq.broker.delivery.timer_files import TimerMark
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.broker.replication.table_state import (
    DeletionsCopied,
    DeliveryCopied,
    GroupsCopied,
    TableCounts,
    TableQuestion,
    TableState,
    TopicsCopied,
)
from sparrowmq.net.slices import in_slices
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.store.store import Store

_OFFSETS_AT_ONCE = 1_000
"""About 5 ms."""


def life_of(store: Store) -> int:
    """The run of a master to which this log belongs; 0 if no master ever started."""
    lineage = store.epochs.lineage
    return lineage[-1].number if lineage else 0


# ---- on the broker that is asked


async def take_state(broker: Broker, question: TableQuestion) -> TableState:
    """The state of everything that a broker with `question.have` lacks, as it is on return."""
    store, offsets = broker.store, broker.offsets
    life, have = life_of(store), question.have
    if have.life != life:
        have = TableCounts()
    progress = await _progress_since(broker, have.offsets)
    counts = TableCounts(
        life=life,
        topics=broker.topics.recent.count,
        groups=broker.groups.recent.count,
        modes=broker.request_modes.changes,
        offsets=offsets.recent.count,
        epoch=store.epochs.current,
    )
    if question.only_progress:
        return TableState(counts=counts, log_end=store.max_log_offset, progress=progress)
    deletions = None
    if have.epoch != counts.epoch:
        deletions = DeletionsCopied(store.epochs.table(), store.deletions)
    return TableState(
        counts=counts,
        log_end=store.max_log_offset,
        topics=_topics(broker, have.topics),
        groups=_groups(broker, have.groups),
        modes=broker.request_modes.table() if have.modes != counts.modes else None,
        progress=progress,
        deletions=deletions,
        delivery=_delivery(broker),
        drain=broker.drain.table(),
        slaves_show_to=broker.replication.slaves_show_to,
    )


async def _progress_since(
    broker: Broker, count: int
) -> Sequence[OffsetChange] | ConsumerOffsetTable | None:
    offsets = broker.offsets
    changed = offsets.changes_since(count)
    if changed is not None:
        return changed or None
    # Send a whole table as a table: a change for each offset would take ten times as long.
    begun = offsets.recent.count
    table = await in_slices(offsets.copying(), broker.slices)
    meanwhile = offsets.changes_since(begun)
    return offsets.table() if meanwhile is None else updated(table, meanwhile)


def _topics(broker: Broker, count: int) -> TopicsCopied | None:
    names = broker.topics.recent.since(count)
    if names == []:
        return None
    table = broker.topics.table()
    known = table.topic_config_table
    if names is None:
        return TopicsCopied(list(known.values()), (), True, table.data_version)
    changed = [known[name] for name in names if name in known]
    removed = [name for name in names if name not in known]
    return TopicsCopied(changed, removed, False, table.data_version)


def _groups(broker: Broker, count: int) -> GroupsCopied | None:
    names = broker.groups.recent.since(count)
    if names == []:
        return None
    table = broker.groups.table()
    known, forbidden = table.subscription_group_table, table.forbidden_table
    if names is None:
        return GroupsCopied(list(known.values()), (), True, forbidden, table.data_version)
    changed = [known[name] for name in names if name in known]
    removed = [name for name in names if name not in known]
    return GroupsCopied(changed, removed, False, forbidden, table.data_version)


def _delivery(broker: Broker) -> DeliveryCopied:
    timers, clock = broker.delivery.timers, broker.delivery.clock
    pending_from = timers.first_pending(broker.store.max_offset(TIMER_TOPIC, 0))
    clock.now_ms()  # notices a step that belongs to this state
    steps = [(step.log_offset, step.by_ms) for step in clock.steps]
    return DeliveryCopied(dict(broker.delivery.levels.offsets), timers.marks, pending_from, steps)


def merge_from_slave(broker: Broker, progress: Iterable[OffsetChange]) -> None:
    """Merge what was committed at a slave, except what is older than this broker's own progress."""
    broker.offsets.merge(change for change in progress if _can_be_of_slave(broker, change))


def _can_be_of_slave(broker: Broker, change: OffsetChange) -> bool:
    """Whether a slave of this master can have made this change: its log is not longer, and rewinds,
    including removals, are made by masters only."""
    topic, queue_id = change.key.partition("@")[0], change.queue_id
    if topic not in broker.topics or not 0 <= queue_id < broker.config.max_queues_per_topic:
        return False
    is_in_queue = 0 <= change.offset <= broker.store.max_offset(topic, queue_id)
    return is_in_queue and change.rewind <= broker.offsets.last_rewind


# ---- on the slave


async def write_epochs(broker: Broker, state: TableState) -> bytes | None:
    """Make the epochs of deletions durable, beside the loop, before they are adopted; returns what
    was written, for `apply_state`. Raises DiskFull or OSError."""
    epochs = None if state.deletions is None else state.deletions.epochs
    draft = None if epochs is None else broker.store.epochs.draft(epochs)
    if draft is not None:
        await broker.workers.run(broker.store.epochs.write, draft)
    return draft


async def apply_state(broker: Broker, state: TableState, epochs: bytes | None) -> None:
    """Make this slave's tables equal to the state, now that its log has reached the state's end.

    A state may be applied repeatedly, and parts that it lacks stay unchanged. The tables are saved
    soon, like a master's; `save_delivery` saves how far delivery has come. Everything changes
    atomically except progress, which is merged offset by offset, in slices short enough for the
    loop.

    Raises DiskFull, or OSError; then the state has to be applied again.
    """
    deleted = _follow_deletions(broker, state, epochs)
    if state.drain is not None:
        broker.drain.follow(state.drain)
    if state.topics is not None:
        deleted |= _follow_topics(broker, state.topics)
    if deleted:
        broker.offsets.remove_topics(deleted)
    for topic in deleted:
        broker.arrivals.end_topic(topic)
    if state.groups is not None:
        copied = state.groups
        removed = set(copied.removed)
        if copied.is_whole:
            kept = {group.group_name for group in copied.changed}
            removed = {group.group_name for group in broker.groups} - kept
        broker.groups.follow(copied.changed, removed, copied.forbidden, copied.version)
    if state.modes is not None:
        broker.request_modes.follow(state.modes)
    if state.delivery is not None:
        copied_marks = [TimerMark(*mark) for mark in state.delivery.timer_marks]
        broker.delivery.levels.follow(state.delivery.levels)
        pending_from = state.delivery.timers_pending_from
        broker.delivery.timers.follow(copied_marks, pending_from, state.log_end)
        if state.delivery.clock_steps is not None:
            broker.delivery.clock.follow(
                [ClockStep(log_offset=at, by_ms=by) for at, by in state.delivery.clock_steps]
            )
    await broker.workers.run(broker.store.save_deletions)
    await _merge_progress(broker, state.progress)


async def _merge_progress(
    broker: Broker, progress: Sequence[OffsetChange] | ConsumerOffsetTable | None
) -> None:
    if isinstance(progress, ConsumerOffsetTable):
        await in_slices(broker.offsets.comparing_missing(progress), broker.slices)
        changes = changes_in(progress)
    else:
        changes = iter(progress or ())
    while part := list(islice(changes, _OFFSETS_AT_ONCE)):
        broker.offsets.merge(part)
        await asyncio.sleep(0)


def _follow_deletions(broker: Broker, state: TableState, written: bytes | None) -> set[str]:
    """Delete what the master deleted; returns the topics. What was stored since then is kept."""
    if state.deletions is None:
        return set()
    # First the epochs, as on the master: positions learned from now on belong to the new ones.
    if state.deletions.epochs is not None:
        broker.store.epochs.adopt(state.deletions.epochs, written)
        broker.store.epochs.save()
    return set(broker.store.follow_deletions(state.deletions.before))


def _follow_topics(broker: Broker, copied: TopicsCopied) -> set[str]:
    """Make the topics equal to the master's; returns those that only this broker had."""
    removed = set(copied.removed)
    if copied.is_whole:
        kept = {topic.topic_name for topic in copied.changed}
        removed = {topic.topic_name for topic in broker.topics} - kept
    gone = {topic for topic in removed if topic in broker.topics}
    broker.topics.follow(copied.changed, removed, copied.version)
    return gone


async def save_delivery(broker: Broker, *, whole: bool = False) -> None:
    """Save how far the master had delivered, once what it delivered is durable in this log.

    `whole` also rewrites the table of delay levels, which otherwise only gets a journal entry.

    Raises DiskFull, having lost nothing.
    """
    await delay_levels.journal_progress(broker)
    await timer_persistence.save_mark(broker)
    if whole:
        await broker.delivery.levels.progress.save(broker.workers)
