"""Asks about one consumer group, twice: the second look shows what has moved.

begin ── first look ── (a pause that all groups share) ── second look ── what stands still
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, addresses_of, at_once
from sparrowmq.admin.doctor.facts import GroupFacts, GroupLook
from sparrowmq.admin.doctor.findings import NotMade, shorten
from sparrowmq.admin.doctor.progress import owners_of, progress_of
from sparrowmq.admin.errors import AdminError
from sparrowmq.admin.groups import GroupInfo, GroupTables, describe_group
from sparrowmq.admin.lag import QueueLag, known_lag
from sparrowmq.admin.members import Connected, connected
from sparrowmq.admin.messages import read_messages
from sparrowmq.admin.topics import topic_stats
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.connections import ConsumerRunningInfo
from sparrowmq.protocol.headers.clients import GetConsumerList
from sparrowmq.protocol.headers.consumer_calls import GetConsumerRunningInfo
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import dlq_topic, retry_topic
from sparrowmq.protocol.perm import is_readable
from sparrowmq.protocol.tags import ALL_TAGS

MOST_MEMBERS = 64
MOST_SAMPLED = 8
SAMPLE = 32
_MOST_STACKS = 3
_MEMBER_CHECKS = (
    *("handler-slow", "handler-hangs", "handler-fails", "flow-controlled", "paused"),
    *("one-strategy-differs", "rebalancing-often", "lock-held-by-dead"),
)


class _Owners(Body, frozen=True, kw_only=True):
    owners: dict[int, str] | None = None


@dataclass(frozen=True, slots=True)
class BegunGroup:
    """A group after the first look."""

    info: GroupInfo
    online: Connected
    first: GroupLook


async def begin_group(
    calls: ClusterCalls, name: str, tables: GroupTables | None = None
) -> BegunGroup:
    """The first look. Raises NotFound, NoBrokerAnswers. Pass `tables`, the settings of all groups,
    if many are examined."""
    info = await describe_group(calls, name, tables)
    online = await connected(calls, name)
    return BegunGroup(info, online, await _look(calls, name, online))


async def finish_group(calls: ClusterCalls, begun: BegunGroup) -> GroupFacts:
    """The second look, plus what is needed only for queues that stand still."""
    name, info = begun.info.name, begun.info
    online = await connected(calls, name)
    second = await _look(calls, name, online)
    topics = {each.topic for each in online.subscriptions}
    facts = GroupFacts(
        name=name,
        first=begun.first,
        second=second,
        settings=info.settings,
        members=info.members,
        model=info.model,
        subscriptions=online.subscriptions,
        unequal=online.unequal,
        doubled=online.doubled,
        readable=await _readable(calls, topics),
        locks=await _locks(calls, name, topics, online),
        samples=await _samples(calls, online, second),
        dead_last_ms=(await _ends(calls, dlq_topic(name)))[1],
        missing=tuple(_missing(name, online, second)),
        errors=info.errors,
    )
    return await _with_standing(calls, online, facts)


# ---- one look


async def _look(calls: ClusterCalls, name: str, online: Connected) -> GroupLook:
    found = await known_lag(calls, name, None, online, owners=False)
    queues = {each.queue: each for each in found.queues}
    known = {queue.topic for queue in queues}
    for topic in sorted({each.topic for each in online.subscriptions} - known):
        if await calls.find_route(topic) is None:
            continue
        more = await known_lag(calls, name, topic, online, owners=False)
        queues |= {each.queue: each for each in more.queues}
    at_ms = calls.client.clock()
    members = await _running(calls, name, online)
    look = GroupLook(
        at_ms=at_ms,
        members=members,
        retry_end=(await _ends(calls, retry_topic(name)))[0],
        dead_end=(await _ends(calls, dlq_topic(name)))[0],
    )
    owners = owners_of(look)
    with_owners = (replace(each, owner=owners.get(queue)) for queue, each in queues.items())
    return replace(look, queues=tuple(sorted(with_owners, key=lambda each: each.queue)))


async def _running(
    calls: ClusterCalls, name: str, online: Connected
) -> dict[str, ConsumerRunningInfo | None]:
    members = online.members[:MOST_MEMBERS]
    asks = [
        partial(_running_info, calls, name, each.client_id, online.addresses[each.brokers[0]])
        for each in members
    ]
    return {
        member.client_id: None if isinstance(answer, AdminError) else answer
        for member, answer in zip(members, await at_once(asks), strict=True)
    }


async def _running_info(
    calls: ClusterCalls, name: str, client_id: str, address: str, *, stacks: bool = False
) -> ConsumerRunningInfo:
    header = GetConsumerRunningInfo(consumer_group=name, client_id=client_id, jstack_enable=stacks)
    return ConsumerRunningInfo.from_json((await calls.call(address, header)).body)


async def _ends(calls: ClusterCalls, topic: str) -> tuple[int | None, int]:
    """How many messages a topic ever got (None if not known), and when the last one arrived."""
    route = await calls.find_route(topic)
    if route is None:
        return 0, 0
    addresses = addresses_of(route.broker_datas).values()
    answers = await at_once([partial(topic_stats, calls, each, topic) for each in addresses])
    total, last_ms = 0, 0
    for answer in answers:
        if isinstance(answer, AdminError):
            return None, 0
        for held in answer.offset_table.values():
            total += held.max_offset
            last_ms = max(last_ms, held.last_update_timestamp)
    return total, last_ms


# ---- around it


async def _readable(
    calls: ClusterCalls, topics: Iterable[str]
) -> dict[str, frozenset[MessageQueue]]:
    found = {}
    for topic in sorted(topics):
        route = await calls.find_route(topic)
        found[topic] = frozenset(
            MessageQueue(topic, data.broker_name, number)
            for data in (route.queue_datas if route else ())
            for number in range(data.read_queue_nums if is_readable(data.perm) else 0)
        )
    return found


async def _locks(
    calls: ClusterCalls, name: str, topics: Iterable[str], online: Connected
) -> dict[MessageQueue, str]:
    places = [
        (topic, broker, address)
        for topic in sorted(topics)
        for broker, address in online.addresses.items()
    ]

    async def ask(topic: str, address: str) -> Mapping[int, str]:
        header = GetConsumerList(consumer_group=name, owners_of=topic)
        return _Owners.from_json((await calls.call(address, header)).body).owners or {}

    answers = await at_once([partial(ask, topic, address) for topic, _, address in places])
    return {
        MessageQueue(topic, broker, number): owner
        for (topic, broker, _), answer in zip(places, answers, strict=True)
        if not isinstance(answer, AdminError)
        for number, owner in answer.items()
    }


async def _samples(
    calls: ClusterCalls, online: Connected, look: GroupLook
) -> dict[str, tuple[Mapping[str, str], ...]]:
    """The newest messages of topics that the group filters."""
    found = {}
    for topic in sorted({e.topic for e in online.subscriptions if e.expression != ALL_TAGS}):
        queues = [
            each
            for each in look.queues
            if each.queue.topic == topic and each.broker_offset > each.min_offset
        ]
        newest = sorted(queues, key=lambda each: each.broker_offset, reverse=True)[:MOST_SAMPLED]
        answers = await at_once([partial(_newest, calls, each) for each in newest])
        found[topic] = tuple(
            properties
            for answer in answers
            if not isinstance(answer, AdminError)
            for properties in answer
        )
    return found


async def _newest(calls: ClusterCalls, queue: QueueLag) -> list[Mapping[str, str]]:
    start = max(queue.min_offset, queue.broker_offset - SAMPLE)
    messages = await read_messages(calls, queue.queue, start, limit=SAMPLE)
    return [each.properties for each in messages]


async def _with_standing(calls: ClusterCalls, online: Connected, facts: GroupFacts) -> GroupFacts:
    """Add the age of the messages at which queues stand still, and the stacks of their owners."""
    still = [each for each in progress_of(facts) if each.stands_still and each.owner]
    still = still[:MOST_SAMPLED]
    stored = await at_once(
        [partial(read_messages, calls, each.queue, each.after, limit=1) for each in still]
    )
    places = {each.client_id: online.addresses[each.brokers[0]] for each in online.members}
    owners = sorted({each.owner or "" for each in still} & places.keys())[:_MOST_STACKS]
    ask = partial(_running_info, calls, facts.name, stacks=True)
    asks = [partial(ask, owner, places[owner]) for owner in owners]
    stacks = await at_once(asks)
    return replace(
        facts,
        next_stored_ms={
            each.queue: answer[0].store_timestamp
            for each, answer in zip(still, stored, strict=True)
            if not isinstance(answer, AdminError) and len(answer)
        },
        stacks={
            owner: answer.jstack
            for owner, answer in zip(owners, stacks, strict=True)
            if not isinstance(answer, AdminError) and answer.jstack
        },
    )


def _missing(name: str, online: Connected, look: GroupLook) -> Iterable[NotMade]:
    if brokers := online.without_faults:
        yield NotMade(
            ("doubled-client-id",),
            f"group {name}",
            f"Apache's brokers do not notice it ({shorten(brokers)})",
        )
    silent = [client_id for client_id, info in look.members.items() if info is None]
    if silent:
        subject = f"members {shorten(silent)} of group {name}"
        yield NotMade(_MEMBER_CHECKS, subject, "they do not say what they are doing")
    if len(online.members) > MOST_MEMBERS:
        rest = f"{len(online.members) - MOST_MEMBERS} more members of group {name}"
        yield NotMade(_MEMBER_CHECKS, rest, f"at most {MOST_MEMBERS} are asked")
    mute = [
        client_id
        for client_id, info in look.members.items()
        if info is not None and "allocateMessageQueueStrategy" not in info.properties
    ]
    if mute:
        subject = f"members {shorten(mute)} of group {name}"
        yield NotMade(("one-strategy-differs",), subject, "they do not tell their strategy")
