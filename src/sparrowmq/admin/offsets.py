"""Moving consumer groups: to another place, or to where another group is.

A reset is planned before anything is changed: every queue's old and new offset is read first, and
a dry run ends there. Then each queue is moved separately, so that the result matches the plan. A
broker that does not know the group yet gets it first, as it would with a member's heartbeat.
Brokers move a live group one queue at a time only if they say so; older ones would ignore the queue
and move all of them, so there a group has to be offline, and its offsets are stored like its own
commits. With members online such brokers can only move whole topics to a time.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from sparrowmq.admin.brokers import broker_config, is_sparrow
from sparrowmq.admin.cluster_calls import Answers, ClusterCalls, all_at_once, answered
from sparrowmq.admin.errors import AdminError, NoBrokerAnswers, NotFound, PartlyReset, not_done
from sparrowmq.admin.group_changes import check_offline, check_own, create_request
from sparrowmq.admin.groups import KnownGroup, all_configs, find_group, topics_of_group
from sparrowmq.admin.lag import committed
from sparrowmq.admin.members import connected
from sparrowmq.client.argument_checks import MAX_LONG, check_kind, check_whole, to_ms
from sparrowmq.client.broker_calls import UNKNOWN_EPOCH
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.headers.offsets import (
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.headers.statistics import CloneGroupOffset
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_topic, retry_topic
from sparrowmq.protocol.route import TopicRoute


@dataclass(frozen=True, slots=True)
class MoveBy:
    """Move by this many messages in each queue, forward or, if `messages` is negative, back, up to
    the queue's ends. Moving one queue by one skips a message that no member can handle."""

    messages: int

    def __post_init__(self) -> None:
        check_whole("messages", self.messages, -MAX_LONG, MAX_LONG)
        if self.messages == 0:
            raise ValueError(
                "messages is 0; give a positive number to skip, a negative one to repeat"
            )


ResetTo: TypeAlias = (
    Literal["earliest", "latest"] | datetime | int | Mapping[MessageQueue, int] | MoveBy
)
"""Where a group continues: at an end of each queue, at the first message stored at or after a time
(a datetime with a zone, or milliseconds since 1970), at an offset given for each queue, or a number
of messages from where it is."""


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A queue in which a group continues elsewhere."""

    queue: MessageQueue
    before: int | None
    """None if the group had no progress."""
    after: int
    oldest: int | None = field(default=None, compare=False)
    """The offset of the queue's oldest message; None if that was not asked."""

    @property
    def skipped(self) -> int:
        """Messages that the group will not read. Without progress it has read none of the queue."""
        begin = self.oldest if self.before is None else max(self.before, self.oldest or 0)
        return 0 if begin is None else max(0, self.after - begin)

    @property
    def repeated(self) -> int:
        """Messages that the group will read again."""
        return 0 if self.before is None else max(0, self.before - self.after)


async def offset_at(cluster: ClusterCalls, queue: MessageQueue, when: datetime | int) -> int:
    """The offset of a queue's first message stored at or after a time."""
    check_kind("queue", queue, MessageQueue)
    time_ms = to_ms("when", when)
    address = (await cluster.masters(brokers=[queue.broker_name]))[queue.broker_name]
    return await answered(partial(offset_at_time, cluster, address, queue, time_ms))


async def offset_at_time(
    cluster: ClusterCalls, address: str, queue: MessageQueue, time_ms: int
) -> int:
    """Like `offset_at`, for a broker's address."""
    header = SearchOffset(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=time_ms, epoch=UNKNOWN_EPOCH
    )
    return (await cluster.call(address, header)).header(OffsetFound).offset


async def queue_ends(cluster: ClusterCalls, address: str, queue: MessageQueue) -> tuple[int, int]:
    """The offset of the oldest message, and the one just past the newest."""
    low = GetMinOffset(topic=queue.topic, queue_id=queue.queue_id)
    high = GetMaxOffset(topic=queue.topic, queue_id=queue.queue_id, epoch=UNKNOWN_EPOCH)
    return (
        (await cluster.call(address, low)).header(OffsetFound).offset,
        (await cluster.call(address, high)).header(OffsetFound).offset,
    )


# ---- reset


@dataclass(frozen=True, slots=True)
class ResetPlan:
    """What a reset is about to do, by broker."""

    group: str
    topic: str
    targets: Mapping[str, str]
    by_broker: Mapping[str, Sequence[OffsetMove]]
    time_ms: int | None
    """Set if the reset moves all queues to the same time, which brokers before 5.2 can do while
    members are online; else None."""
    without_group: Mapping[str, SubscriptionGroupConfig]
    """Brokers that have neither the group nor any progress of it in the topic, with the settings
    that they get: the broker, or the topic on it, is newer than the last member."""

    @property
    def moves(self) -> list[OffsetMove]:
        """All moves, in queue order."""
        return _in_order(self.by_broker)


async def reset_offsets(
    cluster: ClusterCalls,
    group: str,
    topic: str,
    to: ResetTo,
    *,
    queues: Collection[MessageQueue],
    dry_run: bool,
) -> list[OffsetMove]:
    """Move a group in a topic. Nothing is moved unless all brokers concerned answer.

    Raises ValueError, NotFound, InUse on brokers that cannot move live groups, PartlyReset.
    """
    plan = await plan_reset(cluster, group, topic, to, queues=queues)
    if not dry_run:
        await apply_reset(cluster, plan)
    return plan.moves


async def plan_reset(
    cluster: ClusterCalls,
    group: str,
    topic: str,
    to: ResetTo,
    *,
    queues: Collection[MessageQueue],
) -> ResetPlan:
    """Read where a group is and where it will go; nothing is moved. Raises ValueError, NotFound,
    and AdminError for an offset that a queue does not have."""
    goal = _checked_goal(topic, to, queues)
    if isinstance(goal, int) and goal > cluster.client.clock():
        when = datetime.fromtimestamp(goal / 1000, UTC).isoformat(timespec="seconds")
        raise ValueError(
            f"`to` is {when}, which is in the future, where no message is yet; 'latest' skips all"
            " that is there now"
        )
    route = await cluster.route(check_topic(topic))
    online = await connected(cluster, check_group(group))
    known = await find_group(cluster, group, online)
    wanted = _queues_to_move(topic, goal, queues, route)
    targets = await cluster.masters(brokers=sorted(wanted))
    answers = await cluster.ask_each(
        targets, lambda name, address: _planned(cluster, address, group, wanted[name], goal)
    )
    by_broker = {
        name: [_in_range(each) for each in planned] for name, planned in answers.all().items()
    }
    is_whole = not queues and not isinstance(goal, Mapping | MoveBy)
    time_ms = _time_of(goal) if is_whole else None
    without_group = groups_to_create(group, topic, known, targets)
    return ResetPlan(group, topic, targets, by_broker, time_ms, without_group)


def groups_to_create(
    group: str, topic: str, known: KnownGroup, targets: Collection[str]
) -> dict[str, SubscriptionGroupConfig]:
    """The settings of the group for the target brokers that lack it, by broker.

    Raises AdminError if a broker did not say whether it has the group.
    """
    silent = tuple(failure for failure in known.errors if failure.broker in targets)
    found = Answers(known.by_broker, silent).all()
    configs = [config for config, _ in found.values() if config is not None]
    config = configs[0] if configs else SubscriptionGroupConfig(group_name=group)
    return {
        name: config
        for name, (own, topics) in found.items()
        if name in targets and own is None and topic not in topics
    }


def _time_of(goal: "Goal") -> int | None:
    """The time by which brokers refer to an end of a queue."""
    if isinstance(goal, int):
        return goal
    return {"earliest": 0, "latest": -1}.get(str(goal))


def _in_order(plan: Mapping[str, Sequence[OffsetMove]]) -> list[OffsetMove]:
    return sorted((move for each in plan.values() for move in each), key=lambda move: move.queue)


Goal: TypeAlias = Literal["earliest", "latest"] | int | Mapping[MessageQueue, int] | MoveBy
"""`ResetTo` with times as milliseconds."""


def _checked_goal(topic: str, to: ResetTo, queues: Collection[MessageQueue]) -> Goal:
    wrong = [queue for queue in queues if queue.topic != topic]
    if wrong:
        raise ValueError(f"{wrong[0]} is not a queue of topic {topic}")
    if isinstance(to, Mapping) and queues:
        raise ValueError("`to` has offsets by queue already; leave `queues` out")
    if isinstance(to, MoveBy):
        return to
    if isinstance(to, Mapping):
        wrong = [queue for queue in to if queue.topic != topic]
        if wrong:
            raise ValueError(f"{wrong[0]} is not a queue of topic {topic}")
        if not to:
            raise ValueError("`to` names no queue")
        return dict(to)
    if isinstance(to, str):
        if to not in ("earliest", "latest"):
            raise ValueError(
                f"`to` is {to!r}, must be 'earliest', 'latest', a time, or offsets by queue"
            )
        return to
    return to_ms("to", to)


def _queues_to_move(
    topic: str, goal: Goal, queues: Collection[MessageQueue], route: TopicRoute
) -> dict[str, list[MessageQueue]]:
    """The queues to move, by broker. Raises NotFound for a queue that the topic does not have."""
    known = {
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        for queue_id in range(data.read_queue_nums)
    }
    wanted = set(goal) if isinstance(goal, Mapping) else set(queues) or known
    for queue in sorted(wanted - known):
        counts = ", ".join(
            f"{data.read_queue_nums} on {data.broker_name}" for data in route.queue_datas
        )
        known_are = f"queues that can be read of topic {topic}: {counts}"
        raise NotFound("queue", queue.place, known_are)
    if not wanted:
        raise AdminError(f"topic {topic} has no queue that can be read")
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in sorted(wanted):
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return by_broker


class _Planned(NamedTuple):
    move: OffsetMove
    low: int
    high: int


async def _planned(
    cluster: ClusterCalls, address: str, group: str, queues: Sequence[MessageQueue], goal: Goal
) -> list[_Planned]:
    async def plan(queue: MessageQueue) -> _Planned:
        before = await committed(cluster, address, group, queue)
        low, high = await queue_ends(cluster, address, queue)
        if isinstance(goal, Mapping):
            after = goal[queue]
        elif isinstance(goal, MoveBy):
            after = min(high, max(low, (low if before is None else before) + goal.messages))
        elif isinstance(goal, int):
            after = min(high, max(low, await offset_at_time(cluster, address, queue, goal)))
        else:
            after = low if goal == "earliest" else high
        return _Planned(OffsetMove(queue, before, after, low), low, high)

    return list((await all_at_once({queue: partial(plan, queue) for queue in queues})).values())


def _in_range(planned: _Planned) -> OffsetMove:
    """Raises AdminError for an offset that the queue does not have."""
    move, low, high = planned
    if not low <= move.after <= high:
        queue = move.queue
        raise AdminError(
            f"nothing was changed: {queue.place} of topic {queue.topic}"
            f" has offsets {low} to {high}, not {move.after}"
        )
    return move


async def apply_reset(cluster: ClusterCalls, plan: ResetPlan) -> None:
    """Carry out the plan. Raises InUse if brokers cannot do that while members are online,
    AdminError if all brokers refused, PartlyReset if some did."""
    targets, group = plan.targets, plan.group
    answers = await cluster.ask_each(
        targets, lambda _, address: _moves_single_queues(cluster, address)
    )
    old = sorted(name for name, moves in answers.all().items() if not moves)
    is_online = bool(old) and bool((await connected(cluster, group)).members)
    if is_online and plan.time_ms is None:
        hint = f"brokers {', '.join(old)} cannot move single queues of it then; stop them first"
        await check_offline(cluster, group, hint)

    await cluster.change_each(
        f"no offset was moved; group {group} is created",
        {name: targets[name] for name in plan.without_group},
        lambda name: create_request(plan.without_group[name]),
    )

    async def move(name: str, address: str) -> None:
        if is_online and name in old:  # brokers before 5.2 tell live members a time
            await cluster.call(address, _time_request(plan))
            return
        for each in plan.by_broker[name]:
            if name in old:
                await cluster.call(address, commit_request(group, each.queue, each.after))
            else:
                await cluster.call(address, _reset_request(group, each))

    await _move_each(cluster, f"group {group} is moved", targets, move, plan.by_broker)


def _time_request(plan: ResetPlan) -> InvokeResetOffset:
    assert plan.time_ms is not None
    return InvokeResetOffset(
        topic=plan.topic, group=plan.group, timestamp=plan.time_ms, is_force=True
    )


async def _move_each(
    cluster: ClusterCalls,
    what: str,
    targets: Mapping[str, str],
    move: Callable[[str, str], Awaitable[None]],
    plan: Mapping[str, Sequence[OffsetMove]],
) -> None:
    """Raises AdminError if all brokers refused, PartlyReset if some did."""
    try:
        moved = await cluster.ask_each(targets, move)
    except NoBrokerAnswers as error:
        raise not_done(error.errors) from error
    if moved.errors:
        done = [each for name in moved.by_broker for each in plan[name]]
        failed = {failure.broker: failure.reason for failure in moved.errors}
        unknown = [failure.broker for failure in moved.errors if failure.may_have_acted]
        raise PartlyReset(what, list(moved.by_broker), failed, done, unknown)


async def _moves_single_queues(cluster: ClusterCalls, address: str) -> bool:
    """Whether a broker respects the queue in a reset: SparrowMQ's do, and Apache's from 5.2 on
    unless that is switched off."""
    if await is_sparrow(cluster, address):
        return True
    config = await broker_config(cluster, address)
    return config.get("useServerSideResetOffset") == "true"


def _reset_request(group: str, move: OffsetMove) -> InvokeResetOffset:
    return InvokeResetOffset(
        topic=move.queue.topic,
        group=group,
        timestamp=-1,
        queue_id=move.queue.queue_id,
        offset=move.after,
    )


def commit_request(group: str, queue: MessageQueue, offset: int) -> UpdateConsumerOffset:
    """What a member sends to store its progress."""
    return UpdateConsumerOffset(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=offset,
    )


# ---- clone


async def clone_offsets(
    cluster: ClusterCalls, source: str, target: str, topic: str | None, *, dry_run: bool
) -> list[OffsetMove]:
    """Give the target, which must be offline, the progress of the source. A broker that does not
    have the target gets it with the source's settings, as it would when a first member connects."""
    if check_group(source) == check_own(target):
        raise ValueError(f"source and target are both {source}")
    if topic is not None:
        await cluster.route(check_topic(topic))
    known = await find_group(cluster, source, await connected(cluster, source))
    await check_offline(cluster, target, "they would commit their own progress over it; stop them")
    targets = await cluster.masters()
    answers = await cluster.ask_each(
        targets,
        lambda name, address: _copies(cluster, name, address, source, target, topic),
    )
    plan = answers.all()
    if not dry_run:
        await _create_where_missing(cluster, target, known, targets, plan)
        await _copy(cluster, targets, source, target, plan)
    return _in_order(plan)


async def _create_where_missing(
    cluster: ClusterCalls,
    target: str,
    known: KnownGroup,
    targets: Mapping[str, str],
    plan: Mapping[str, Sequence[OffsetMove]],
) -> None:
    """Create the group where it is missing: some brokers refuse the progress of a group that they
    do not have, and others remove it. Raises AdminError, PartlyDone."""
    concerned = {name: address for name, address in targets.items() if plan[name]}
    tables = await cluster.ask_each(concerned, lambda _, address: all_configs(cluster, address))
    missing = [name for name, table in tables.all().items() if target not in table]
    settings = _settings_by_broker(known, target)
    await cluster.change_each(
        f"no offset was moved; group {target} is created",
        {name: concerned[name] for name in missing},
        lambda name: create_request(settings.get(name, next(iter(settings.values())))),
    )


def _settings_by_broker(known: KnownGroup, target: str) -> dict[str, SubscriptionGroupConfig]:
    """A known group's settings, renamed for the target; at least one broker's."""
    found = {
        name: msgspec.structs.replace(config, group_name=target)
        for name, (config, _) in known.by_broker.items()
        if config is not None
    }
    return found or {"": SubscriptionGroupConfig(group_name=target)}


async def _copies(
    cluster: ClusterCalls, broker: str, address: str, source: str, target: str, topic: str | None
) -> list[OffsetMove]:
    if topic is not None:
        topics = frozenset({topic})
    else:  # but its retry topic, in which no other group has messages
        topics = await topics_of_group(cluster, address, source) - {retry_topic(source)}
    moves = []
    for name in sorted(topics):
        route = await cluster.find_route(name)
        datas = route.queue_datas if route else ()
        counts = {data.broker_name: data.read_queue_nums for data in datas}
        for queue_id in range(counts.get(broker, 0)):
            queue = MessageQueue(name, broker, queue_id)
            offset = await committed(cluster, address, source, queue)
            if offset is not None:
                before = await committed(cluster, address, target, queue)
                moves.append(OffsetMove(queue, before, offset))
    return moves


async def _copy(
    cluster: ClusterCalls,
    targets: Mapping[str, str],
    source: str,
    target: str,
    plan: Mapping[str, Sequence[OffsetMove]],
) -> None:
    async def copy(name: str, address: str) -> None:
        for topic in sorted({move.queue.topic for move in plan[name]}):
            # Each by its name: Apache's broker copies nothing for a request without one.
            header = CloneGroupOffset(
                src_group=source, dest_group=target, topic=topic, offline=True
            )
            await cluster.call(address, header)

    concerned = {name: address for name, address in targets.items() if plan[name]}
    await _move_each(
        cluster, f"group {target} is moved to where {source} is", concerned, copy, plan
    )
