"""Resets that are recorded in a journal, and undoing them.

The journal has a record before the first offset moves: a reset that cannot be recorded is not made,
and one that was interrupted can still be undone. An undo is a reset too, with its own record.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, all_at_once
from sparrowmq.admin.errors import AdminError, PartlyReset
from sparrowmq.admin.lag import committed
from sparrowmq.admin.offsets import OffsetMove, ResetTo, apply_reset, plan_reset, queue_ends
from sparrowmq.admin.reset_journal import (
    DONE,
    PARTLY,
    RESET,
    UNDO,
    ResetCluster,
    ResetJournal,
    ResetRecord,
    ended,
    new_record,
    undone,
)
from sparrowmq.admin.topics import TopicInfo
from sparrowmq.client.errors import counted
from sparrowmq.protocol.limits import BacklogAction, backlog_of
from sparrowmq.protocol.message import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaledReset:
    """What a reset moved, or would move."""

    moves: tuple[OffsetMove, ...]
    record: ResetRecord | None
    """Its record in the journal; None for a dry run."""
    unread: tuple[MessageQueue, ...] = ()
    """Queues in which the group had no progress before the reset: it had read nothing there.
    Brokers cannot take progress away, so an undo sets them to their oldest message at the reset."""


async def journaled_reset(
    cluster: ClusterCalls,
    group: str,
    topic: str,
    to: ResetTo,
    *,
    queues: Collection[MessageQueue],
    journal: ResetJournal,
    who: str,
    dry_run: bool,
    kind: str = RESET,
) -> JournaledReset:
    """Move a group and record where it was."""
    plan = await plan_reset(cluster, group, topic, to, queues=queues)
    unread = tuple(each.queue for each in plan.moves if each.before is None)
    if dry_run:
        return JournaledReset(moves=tuple(plan.moves), record=None, unread=unread)
    record = new_record(
        kind=kind,
        cluster=await this_cluster(cluster),
        who=who,
        when_ms=cluster.client.clock(),
        group=group,
        topic=topic,
        moves=plan.moves,
    )
    journal.write(record)
    try:
        await apply_reset(cluster, plan)
    except PartlyReset:
        _rewritten(journal, record, ended(record, PARTLY))
        raise
    except AdminError:
        journal.forget(record)
        raise
    now = _rewritten(journal, record, ended(record, DONE))
    return JournaledReset(moves=tuple(plan.moves), record=now, unread=unread)


def _rewritten(journal: ResetJournal, before: ResetRecord, after: ResetRecord) -> ResetRecord:
    """The record that the journal has now. The offsets were moved: a disk that is full by now must
    not make that a failure, and the record before suffices for an undo."""
    try:
        journal.write(after)
    except AdminError:
        return before
    return after


async def undo_reset(
    cluster: ClusterCalls,
    group: str,
    reset_id: str | None,
    *,
    journal: ResetJournal,
    who: str,
    force: bool,
    dry_run: bool,
) -> JournaledReset:
    """Put a group back to where it was before a reset. Raises NotFound, and, unless `force`,
    AdminError if it has moved on since."""
    here = await this_cluster(cluster)
    record = journal.find(group, reset_id, here)
    if record.undone_by and not force:
        raise AdminError(f"reset {record.id} was undone before, by {record.undone_by}")
    _check_made_here(record, here, force=force)
    is_cut = record.state != DONE or journal.has_cut_undo(record)
    goal = await _places_before(cluster, record, may_be_before=is_cut, force=force)
    unread = tuple(move.queue for move in record.moves if move.before is None)
    if dry_run:
        plan = await plan_reset(cluster, group, record.topic, goal, queues=())
        return JournaledReset(moves=tuple(plan.moves), record=None, unread=unread)
    made = await journaled_reset(
        cluster,
        group,
        record.topic,
        goal,
        queues=(),
        journal=journal,
        who=who,
        dry_run=False,
        kind=UNDO,
    )
    assert made.record is not None
    _rewritten(journal, record, undone(record, made.record.id))
    return JournaledReset(moves=made.moves, record=made.record, unread=unread)


async def this_cluster(cluster: ClusterCalls) -> ResetCluster:
    """The current cluster, as the journal records it."""
    info = await cluster.info()
    brokers = info.broker_addr_table.values()
    return ResetCluster(
        names=",".join(sorted(info.cluster_addr_table)),
        name_servers=tuple(cluster.client.name_servers.addresses),
        addresses=frozenset(address for each in brokers for address in each.broker_addrs.values()),
    )


def _check_made_here(record: ResetRecord, here: ResetCluster, *, force: bool) -> None:
    """Raises AdminError for a reset of another cluster. A cluster whose brokers have other
    addresses may have been moved, which `force` confirms."""
    if record.cluster.may_be(here):
        return
    there = record.cluster
    if there.names != here.names:
        raise AdminError(
            f"reset {record.id} was made in cluster {there.names}, and this is {here.names}"
        )
    if not force:
        raise AdminError(
            f"reset {record.id} was made in another cluster called {there.names}"
            f" (name servers {', '.join(there.name_servers)}): none of its brokers is here;"
            " nothing was changed; if this is the same one at other addresses, --force does it"
        )


async def _places_before(
    cluster: ClusterCalls, record: ResetRecord, *, may_be_before: bool, force: bool
) -> dict[MessageQueue, int]:
    """Where each queue was, or its oldest message then or now. Raises AdminError if members have
    moved on. `may_be_before`: the reset or an undo was interrupted, so that some queues may still,
    or again, be there."""
    brokers = sorted({move.queue.broker_name for move in record.moves})
    masters = await cluster.masters(brokers=brokers)

    async def look(move: OffsetMove) -> tuple[int | None, int, int]:
        address = masters[move.queue.broker_name]
        low, high = await queue_ends(cluster, address, move.queue)
        return await committed(cluster, address, record.group, move.queue), low, high

    found = await all_at_once({move: partial(look, move) for move in record.moves})
    goals = {
        move: min(high, max(low, (move.oldest or low) if move.before is None else move.before))
        for move, (_, low, high) in found.items()
    }
    gone_on = [
        f"{move.queue.place} is at {now}, not {move.after}"
        for move, (now, _, _) in found.items()
        if now != move.after and not (may_be_before and now in (move.before, goals[move]))
    ]
    if gone_on and not force:
        raise AdminError(
            f"group {record.group} has moved since reset {record.id}"
            f" ({'; '.join(gone_on[:3])}{' …' if len(gone_on) > 3 else ''}); nothing was changed:"
            " an undo would deliver or skip other messages than the reset did, --force does it"
        )
    return {move.queue: goal for move, goal in goals.items()}


# ---- what it would do to limits

_SENDS = {BacklogAction.REFUSE: "refused", BacklogAction.SLOW: "slowed"}


def tripped_backlogs(info: TopicInfo, group: str, moves: Sequence[OffsetMove]) -> list[str]:
    """How the backlog limits of a topic that name the group would react to these moves, in words,
    one for each broker concerned."""
    after = {each.queue: each.after for each in moves}
    found = []
    for settings in info.settings:
        limit = backlog_of(settings.attributes)
        if limit is None or group not in limit.groups:
            continue
        lags = [
            each.max_offset - after[each.queue]
            for each in info.queues
            if each.queue.broker_name == settings.broker
            and each.max_offset > after.get(each.queue, -1) >= 0
        ]
        does = f"{settings.broker}: sends to {info.name} would be {_SENDS[limit.action]}"
        if limit.is_time and lags:
            text = f"{does} if the first message that waits then is {limit.limit_text} old"
            found.append(text)
        elif not limit.is_time and sum(lags) >= limit.most:
            found.append(
                f"{does}: {group} would be {counted(sum(lags), 'message')} behind, at most"
                f" {limit.limit_text} are allowed"
            )
    return found
