"""Which member owns which queue of a group, since when and why, and what moved recently.

Members that use SparrowMQ's client report all of it themselves. For others the owner is read, and
the reason is inferred: the strategy that yields exactly what members hold is most likely theirs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, at_once
from sparrowmq.admin.errors import AdminError
from sparrowmq.admin.groups import find_group
from sparrowmq.admin.lag import committed
from sparrowmq.admin.members import Connected, GroupMember, connected, running_info
from sparrowmq.admin.messages import read_messages
from sparrowmq.admin.rebalance_simulation import SimulatedGroup, shares_of
from sparrowmq.admin.topics import topic_stats
from sparrowmq.admin.values import BrokerFailure, time_of
from sparrowmq.client.errors import counted
from sparrowmq.client.group.rebalance_plan import Reason
from sparrowmq.client.route_table import subscribe_queues
from sparrowmq.client.strategies import NAMED
from sparrowmq.protocol.connections import ConsumerRunningInfo, ProcessQueueInfo
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_topic, is_retry_topic
from sparrowmq.protocol.offsets_body import TopicStats
from sparrowmq.protocol.rebalance_report import RebalanceReport, read_report

_MOST_READ = 8
"""Queues whose first message is read, of a group that may have thousands."""
_STRATEGY = "allocateMessageQueueStrategy"
_JAVA_STRATEGIES = {
    "AllocateMessageQueueAveragely": "AVG",
    "AllocateMessageQueueAveragelyByCircle": "AVG_BY_CIRCLE",
    "AllocateMessageQueueConsistentHash": "CONSISTENT_HASH",
    "AllocateMessageQueueByConfig": "CONFIG",
    "AllocateMessageQueueByMachineRoom": "MACHINE_ROOM",
    "AllocateMachineRoomNearby": "MACHINE_ROOM_NEARBY",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedQueue:
    """A queue and its owner. A queue that several members hold is listed once for each."""

    queue: MessageQueue
    owner: str | None
    """Client id; None where no member that answers holds it."""
    since: datetime | None
    """By the member's clock; None if it does not report it."""
    why: str
    is_inferred: bool
    """Whether `why` is inferred, because the member does not report it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMove:
    """A change that a member reports: of one queue, or of the numbers of queues and members."""

    at: datetime | None
    member: str
    action: str
    """take, drop, wait or share."""
    topic: str
    queue: MessageQueue | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberShare:
    """A member's part in the rebalance."""

    client_id: str
    language: str
    queues: int | None
    """How many it holds; None if it does not answer."""
    strategy: str | None
    """None if it is neither reported nor can be inferred."""
    is_inferred: bool
    failures: Mapping[str, str]
    """Topics for which its last round changed nothing, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceInfo:
    """A group's rebalance as its members report it."""

    group: str
    model: MessageModel | None
    queues: tuple[OwnedQueue, ...]
    members: tuple[MemberShare, ...]
    moves: tuple[MemberMove, ...]
    """Newest first; only from members that report them."""
    silent: Mapping[str, str]
    """Members that did not answer, and why."""
    errors: tuple[BrokerFailure, ...] = ()

    @property
    def strategies(self) -> frozenset[str]:
        """The strategies that members use; more than one is a mistake, because the shares then do
        not fit together."""
        return frozenset(each.strategy for each in self.members if each.strategy)


async def explain(cluster: ClusterCalls, group: str, topic: str | None) -> RebalanceInfo:
    """Owners and reasons in one topic, or in all that live members subscribe to. Raises NotFound
    for a group that no broker knows, and for a topic."""
    found = await _look(cluster, group, topic)
    infos, reports = found.infos, found.reports
    strategies = {each.client_id: _strategy(found, each.client_id) for each in found.members}
    return RebalanceInfo(
        group=group,
        model=found.model,
        queues=tuple(_owned(found, strategies)),
        members=tuple(
            MemberShare(
                client_id=each.client_id,
                language=each.language,
                queues=_held_count(infos.get(each.client_id), found.queues),
                strategy=strategies[each.client_id][0],
                is_inferred=strategies[each.client_id][1],
                failures=reports[each.client_id].failures if each.client_id in reports else {},
            )
            for each in found.members
        ),
        moves=tuple(_moves(reports, topic)),
        silent=found.silent,
        errors=found.errors,
    )


async def live_group(cluster: ClusterCalls, group: str, topic: str | None) -> SimulatedGroup:
    """A live group as the simulator takes it: its members, owners, rates and messages in flight.
    Raises NotFound, and AdminError for a group without live members or that broadcasts."""
    found = await _look(cluster, group, topic)
    if not found.members:
        described = "simulate a described one with --queues and --members"
        raise AdminError(f"group {group} has no live members; {described}")
    if found.model is MessageModel.BROADCASTING:
        raise AdminError(f"group {group} broadcasts: every member reads every queue, none moves")
    if not found.queues:
        raise AdminError(f"group {group} subscribes to no topic that has queues")
    used = Counter(name for each in found.members if (name := _strategy(found, each.client_id)[0]))
    others = {each.client_id for each in found.members if each.client_id not in found.reports}
    infos = found.infos.values()
    stats = await _stats(cluster, found.queues)
    lag = await _lag(cluster, group, found, stats)
    return SimulatedGroup(
        queues=found.queues,
        members=tuple(sorted(each.client_id for each in found.members)),
        others=frozenset(others),
        joins_as_other=len(others) * 2 > len(found.members),
        owners=_single_owners(found),
        strategy=used.most_common(1)[0][0] if used else "",
        per_s=sum(each.topic_put_tps for each in stats),
        handler_s=max(
            *(each.consume_rt / 1000 for info in infos for each in info.status_table.values()),
            await _running_s(cluster, found),
            0.0,
        ),
        in_flight={
            queue: held.cached_msg_count for info in infos for queue, held in info.mq_table.items()
        },
        lag=lag,
        errors=found.errors,
    )


# ---- looking


@dataclass(frozen=True, slots=True)
class _Found:
    model: MessageModel | None
    members: Sequence[GroupMember]
    infos: Mapping[str, ConsumerRunningInfo]
    reports: Mapping[str, RebalanceReport]
    silent: Mapping[str, str]
    queues: tuple[MessageQueue, ...]
    errors: tuple[BrokerFailure, ...]


async def _look(cluster: ClusterCalls, group: str, topic: str | None) -> _Found:
    online = await connected(cluster, check_group(group))
    if not online.members:
        await find_group(cluster, group, online)
    members = online.members
    asks = [partial(running_info, cluster, group, each, online) for each in members]
    infos: dict[str, ConsumerRunningInfo] = {}
    silent: dict[str, str] = {}
    for each, answer in zip(members, await at_once(asks), strict=True):
        if isinstance(answer, AdminError):
            silent[each.client_id] = str(answer)
        else:
            infos[each.client_id] = answer
    reports = {
        client_id: report
        for client_id, info in infos.items()
        if (report := read_report(info.properties)) is not None
    }
    first = next((each for each in online.by_broker.values() if each.connection_set), None)
    model = None if first is None else first.message_model
    queues = await _queues(cluster, online, topic)
    return _Found(model, members, infos, reports, silent, queues, online.errors)


async def _queues(
    cluster: ClusterCalls, online: Connected, topic: str | None
) -> tuple[MessageQueue, ...]:
    if topic is not None:
        route = await cluster.route(check_topic(topic))
        return tuple(sorted(subscribe_queues(topic, route)))
    found: list[MessageQueue] = []
    for name in sorted({each.topic for each in online.subscriptions}):
        if known := await cluster.find_route(name):  # a subscription may come before its topic
            found += subscribe_queues(name, known)
    return tuple(sorted(found))


async def _stats(cluster: ClusterCalls, queues: Sequence[MessageQueue]) -> list[TopicStats]:
    """Of the topics of a group: what their queues hold, and what arrived in the last minute."""
    addresses = await cluster.readable()
    asks = [
        partial(topic_stats, cluster, addresses[broker], topic)
        for topic, broker in sorted({(queue.topic, queue.broker_name) for queue in queues})
        if broker in addresses
    ]
    answers = await at_once(asks)
    return [each for each in answers if not isinstance(each, AdminError)]


async def _lag(
    cluster: ClusterCalls, group: str, found: _Found, stats: Sequence[TopicStats]
) -> dict[MessageQueue, int]:
    """What waits in each queue. Members know their progress at once, brokers a few seconds later:
    they are asked about queues that no member holds."""
    addresses = await cluster.readable()
    ranges = {queue: held for each in stats for queue, held in each.offset_table.items()}
    progress = {queue: _next_offset(held) for queue, held in _held(found).items()}
    unheld = [
        queue
        for queue in found.queues
        if queue not in progress and queue in ranges and queue.broker_name in addresses
    ]
    asks = [partial(committed, cluster, addresses[q.broker_name], group, q) for q in unheld]
    for queue, answer in zip(unheld, await at_once(asks), strict=True):
        if isinstance(answer, int):
            progress[queue] = answer
    return {
        queue: max(0, ranges[queue].max_offset - max(ranges[queue].min_offset, at))
        for queue, at in progress.items()
        if queue in ranges
    }


def _held(found: _Found) -> dict[MessageQueue, ProcessQueueInfo]:
    wanted = set(found.queues)
    return {
        queue: held
        for info in found.infos.values()
        for queue, held in info.mq_table.items()
        if queue in wanted and not held.dropped
    }


def _next_offset(held: ProcessQueueInfo) -> int:
    """Of the first message that a member has not finished."""
    return held.cached_msg_min_offset if held.cached_msg_count else held.commit_offset


async def _running_s(cluster: ClusterCalls, found: _Found) -> float:
    """For how long a handler has had a message without finishing anything. Members report the time
    of calls that ended, so one that never returns would count as none. A member that was idle
    finished nothing either: the age of the message counts where that is less."""
    now_ms = cluster.client.clock()
    busy = [(queue, held) for queue, held in _held(found).items() if held.cached_msg_count]
    busy.sort(key=lambda pair: pair[1].busy_since_ms)
    oldest = busy[:_MOST_READ]
    asks = [partial(read_messages, cluster, q, _next_offset(held), limit=1) for q, held in oldest]
    longest_ms = 0
    for (_, held), read in zip(oldest, await at_once(asks), strict=True):
        if not isinstance(read, AdminError) and len(read):
            begun_ms = max(held.busy_since_ms, read[0].store_timestamp)
            longest_ms = max(longest_ms, now_ms - begun_ms)
    return longest_ms / 1000


def _single_owners(found: _Found) -> dict[MessageQueue, str]:
    wanted = set(found.queues)
    return {
        queue: client_id
        for client_id, info in sorted(found.infos.items())
        for queue, held in info.mq_table.items()
        if queue in wanted and not held.dropped
    }


# ---- reasons


def _strategy(found: _Found, client_id: str) -> tuple[str | None, bool]:
    """The strategy of a member, and whether that is inferred."""
    report = found.reports.get(client_id)
    if report is not None and report.strategy:
        return report.strategy, False
    info = found.infos.get(client_id)
    if info is None:
        return None, True
    # Java reports the object as its class and a hash.
    name = info.properties.get(_STRATEGY, "").partition("@")[0].rpartition(".")[2]
    if name in _JAVA_STRATEGIES:
        return _JAVA_STRATEGIES[name], True
    return _fitting(found, client_id), True


def _fitting(found: _Found, client_id: str) -> str | None:
    """The first strategy that gives a member exactly what it holds."""
    if not found.queues:
        return None
    held = {queue for queue, owner in _single_owners(found).items() if owner == client_id}
    members = [each.client_id for each in found.members]
    for name, strategy in NAMED.items():
        given = shares_of(strategy, found.queues, members, _single_owners(found))
        if {queue for queue, owner in given.items() if owner == client_id} == held:
            return name
    return None


def _owned(
    found: _Found, strategies: Mapping[str, tuple[str | None, bool]]
) -> Iterator[OwnedQueue]:
    holders: dict[MessageQueue, list[str]] = {queue: [] for queue in found.queues}
    for client_id, info in sorted(found.infos.items()):
        for queue, held in info.mq_table.items():
            if queue in holders and not held.dropped:
                holders[queue].append(client_id)
    since = {
        (client_id, each.queue): each
        for client_id, report in found.reports.items()
        for each in report.held
    }
    for queue, owners in holders.items():
        if not owners:
            yield _without_owner(found, queue)
        for owner in owners:
            reported = since.get((owner, queue))
            if reported is None:
                why = _inferred(found, strategies[owner][0], len(owners))
                yield OwnedQueue(queue=queue, owner=owner, since=None, why=why, is_inferred=True)
                continue
            why = reported.why
            if why == Reason.ASSIGNED and reported.share:
                why = f"{strategies[owner][0]}: {reported.share}"
            yield OwnedQueue(
                queue=queue,
                owner=owner,
                since=time_of(reported.since),
                why=why,
                is_inferred=False,
            )


def _inferred(found: _Found, strategy: str | None, owners: int) -> str:
    if found.model is MessageModel.BROADCASTING:
        return Reason.BROADCAST.value
    if owners > 1:
        return "two members hold it: a rebalance is under way, or their strategies differ"
    of = f"{counted(len(found.queues), 'queue')}, {counted(len(found.members), 'member')}"
    if strategy is None:
        return f"no known strategy gives these shares: {of}"
    return f"{strategy}: {of}"


def _without_owner(found: _Found, queue: MessageQueue) -> OwnedQueue:
    """Why no member holds a queue: what a member that waits for it says, else what is seen."""
    for client_id, report in found.reports.items():
        last = next((each for each in reversed(report.moves) if each.queue == queue), None)
        if last is not None and last.action == "wait":
            why = f"{client_id} waits: {last.why}"
            return OwnedQueue(queue=queue, owner=None, since=None, why=why, is_inferred=False)
    if not found.members:
        why = "the group has no live members"
    elif found.silent:
        why = f"a member that does not answer may hold it: {', '.join(sorted(found.silent))}"
    else:
        why = "no member has taken it yet: a rebalance is under way, or strategies differ"
    return OwnedQueue(queue=queue, owner=None, since=None, why=why, is_inferred=True)


def _held_count(info: ConsumerRunningInfo | None, queues: Sequence[MessageQueue]) -> int | None:
    if info is None:
        return None
    wanted = set(queues)
    return sum(queue in wanted and not held.dropped for queue, held in info.mq_table.items())


def _moves(reports: Mapping[str, RebalanceReport], topic: str | None) -> list[MemberMove]:
    found = [
        (
            each.at,
            MemberMove(
                at=time_of(each.at),
                member=client_id,
                action=each.action,
                topic=each.topic,
                queue=each.queue,
                why=f"{each.why}; {each.detail}" if each.detail else each.why,
            ),
        )
        for client_id, report in sorted(reports.items())
        for each in report.moves
        if (not is_retry_topic(each.topic) if topic is None else each.topic == topic)
    ]
    found.sort(key=lambda pair: pair[0])
    # Not sorted in reverse: of moves in one millisecond the later ones come first as well
    return [move for _, move in reversed(found)]


def with_rate(
    group: SimulatedGroup, per_s: float | None, handler_s: float | None
) -> SimulatedGroup:
    """The group with what a user knows better."""
    changed = group if per_s is None else replace(group, per_s=per_s)
    return changed if handler_s is None else replace(changed, handler_s=handler_s)
