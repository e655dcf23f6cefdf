"""Resets that are written down, and undoing them.

The journal has a record before the first offset moves: a reset that cannot be written down is not
made, and one that was cut short can still be undone. An undo is a reset too, with a record of its
own.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
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
    ResetJournal,
    ResetRecord,
    ended,
    new_record,
    undone,
)
from sparrowmq.protocol.message import MessageQueue


@dataclass(frozen=True, slots=True, kw_only=True)
class JournaledReset:
    """What a reset moved, or would move."""

    moves: tuple[OffsetMove, ...]
    record: ResetRecord | None
    """What the journal has of it; None for a dry run."""
    kept: tuple[MessageQueue, ...] = ()
    """Queues that an undo leaves where they are: the group had no progress there before."""


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
) -> JournaledReset:
    """Move a group and write down where it was."""
    plan = await plan_reset(cluster, group, topic, to, queues=queues)
    if dry_run:
        return JournaledReset(moves=tuple(plan.moves), record=None)
    record = new_record(
        kind=RESET,
        cluster=await _cluster_name(cluster),
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
        journal.write(ended(record, PARTLY))
        raise
    except AdminError:
        journal.forget(record)
        raise
    done = ended(record, DONE)
    journal.write(done)
    return JournaledReset(moves=tuple(plan.moves), record=done)


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
    """Put a group back to where it was before a reset. Raises NotFound, and AdminError if it has
    gone on since, unless `force`."""
    record = journal.find(group, reset_id)
    if record.undone_by and not force:
        raise AdminError(f"reset {record.id} was undone before, by {record.undone_by}")
    name = await _cluster_name(cluster)
    if record.cluster != name:
        raise AdminError(
            f"reset {record.id} was made in cluster {record.cluster}, and this is {name}"
        )
    goal = await _places_before(cluster, record, force=force)
    kept = tuple(move.queue for move in record.moves if move.before is None)
    if not goal:
        raise AdminError(
            f"group {group} had no progress before reset {record.id}: there is nothing to go back"
            f" to; sparrowmq group reset {group} --topic {record.topic} --to earliest begins anew"
        )
    if dry_run:
        plan = await plan_reset(cluster, group, record.topic, goal, queues=())
        return JournaledReset(moves=tuple(plan.moves), record=None, kept=kept)
    made = await journaled_reset(
        cluster,
        group,
        record.topic,
        goal,
        queues=(),
        journal=journal,
        who=who,
        dry_run=False,
    )
    assert made.record is not None
    journal.write(_as_undo(made.record))
    journal.write(undone(record, made.record.id))
    return JournaledReset(moves=made.moves, record=_as_undo(made.record), kept=kept)


def _as_undo(record: ResetRecord) -> ResetRecord:
    return replace(record, kind=UNDO)


async def _cluster_name(cluster: ClusterCalls) -> str:
    return ",".join(sorted((await cluster.info()).cluster_addr_table))


async def _places_before(
    cluster: ClusterCalls, record: ResetRecord, *, force: bool
) -> dict[MessageQueue, int]:
    """Where each queue was, or its oldest message now. Raises AdminError where members have gone
    on."""
    brokers = sorted({move.queue.broker_name for move in record.moves})
    masters = await cluster.masters(brokers=brokers)

    async def look(move: OffsetMove) -> tuple[int | None, int, int]:
        address = masters[move.queue.broker_name]
        low, high = await queue_ends(cluster, address, move.queue)
        return await committed(cluster, address, record.group, move.queue), low, high

    found = await all_at_once({move: partial(look, move) for move in record.moves})
    gone_on = [
        f"{move.queue.broker_name}/{move.queue.queue_id} is at {now}, not {move.after}"
        for move, (now, _, _) in found.items()
        if now != move.after
    ]
    if gone_on and not force:
        raise AdminError(
            f"group {record.group} has gone on since reset {record.id}"
            f" ({'; '.join(gone_on[:3])}{' …' if len(gone_on) > 3 else ''}); nothing was changed:"
            " an undo would deliver or skip other messages than the reset did, --force does it"
        )
    return {
        move.queue: min(high, max(low, move.before))
        for move, (_, low, high) in found.items()
        if move.before is not None
    }
