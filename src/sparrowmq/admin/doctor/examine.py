"""The doctor's round: look, wait, look again, decide."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from sparrowmq.admin.cluster_calls import ClusterCalls, at_once
from sparrowmq.admin.doctor.catalogue import CATALOGUE, About
from sparrowmq.admin.doctor.cluster import decide_cluster
from sparrowmq.admin.doctor.cluster_facts import look_at_cluster
from sparrowmq.admin.doctor.facts import ClusterFacts
from sparrowmq.admin.doctor.findings import (
    Decided,
    Examination,
    NotMade,
    examination,
    found,
)
from sparrowmq.admin.doctor.group import decide_group
from sparrowmq.admin.doctor.group_facts import BegunGroup, begin_group, finish_group
from sparrowmq.admin.doctor.message import decide_message
from sparrowmq.admin.doctor.message_facts import look_at_message
from sparrowmq.admin.doctor.topic import decide_topic
from sparrowmq.admin.doctor.topic_facts import look_at_topic
from sparrowmq.admin.errors import AdminError, NameServersAway, NotFound
from sparrowmq.admin.groups import GroupTables, group_tables
from sparrowmq.admin.topics import topic_names
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.client.errors import counted
from sparrowmq.protocol.names import (
    check_topic,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
)

FOR_S = 2.0
"""The time between the two looks."""
MOST_EXAMINED = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to examine."""

    about: About | None = None
    """None for everything."""
    name: str | None = None
    topic: str | None = None
    """Of a message."""
    for_s: float = FOR_S
    limit: int = MOST_EXAMINED
    """How many topics and groups to examine when examining everything; 0 for all."""
    topics_first: Sequence[str] = ()
    groups_first: Sequence[str] = ()
    """Which ones to begin with if not all are examined."""

    def __post_init__(self) -> None:
        if self.for_s < 0:
            raise ValueError(f"for_s is {self.for_s}, must be 0 or more")
        if self.limit < 0:
            raise ValueError(f"limit is {self.limit}, must be 0 (for all) or more")
        if self.about in (About.TOPIC, About.GROUP, About.MESSAGE) and not self.name:
            raise ValueError(f"which {self.about}? give its name")
        if self.about is None and self.name is not None:
            kinds = ", ".join(About)
            raise ValueError(f"give about=… (one of {kinds}) to say what {self.name!r} is")
        if self.topic is not None and self.about is not About.MESSAGE:
            raise ValueError("topic says where a message is; to examine a topic, give its name")


def order_of(
    about: str | None,
    name: str | None,
    *,
    topic: str | None,
    for_s: float,
    limit: int,
    topics_first: Sequence[str] = (),
    groups_first: Sequence[str] = (),
) -> Order:
    """What a caller wants. Raises ValueError."""
    if about is not None and about not in tuple(About):
        raise ValueError(f"about is {about!r}, must be one of {', '.join(About)}")
    kind = None if about is None else About(about)
    return Order(
        about=kind,
        name=name,
        topic=topic,
        for_s=for_s,
        limit=limit,
        topics_first=topics_first,
        groups_first=groups_first,
    )


async def examine(cluster: ClusterCalls, order: Order) -> Examination:
    """Look and decide. If only a part of the cluster answers, that part is examined. Raises
    NotFound for a subject that does not exist, and ValueError."""
    calls = cluster.bounded()
    try:
        match order.about:
            case About.TOPIC:
                return await _topics(calls, [check_topic(order.name or "")])
            case About.GROUP:
                return await _group(calls, order)
            case About.MESSAGE:
                return await _message(calls, order)
            case About.CLUSTER:
                return _of_cluster(await look_at_cluster(calls, order.name))
            case None:
                return await _everything(calls, order)
    except NameServersAway:
        return await _without_name_servers(calls)


async def _without_name_servers(calls: ClusterCalls) -> Examination:
    """Report that no name server answers: without one nothing else can be found."""
    facts = await look_at_cluster(calls, None)
    decided = decide_cluster(facts)
    made = {each.id for each in decided.findings}
    rest = tuple(name for name in CATALOGUE if name not in made)
    not_made = NotMade(rest, "everything else", "no name server answers")
    count = len(facts.name_servers)
    asked = f"asked {counted(count, 'name server')}"
    return examination([decided, Decided(not_made=[not_made])], asked)


def _of_cluster(facts: ClusterFacts) -> Examination:
    return examination([decide_cluster(facts)], _cluster_text(facts), _silent(facts))


def _cluster_text(facts: ClusterFacts) -> str:
    return (
        f"checked {counted(len(facts.name_servers), 'name server')} and"
        f" {counted(len(facts.brokers), 'broker')}"
    )


def _silent(facts: ClusterFacts) -> list[BrokerFailure]:
    return [
        BrokerFailure(each.name, each.address, each.error, each.is_refusal)
        for each in facts.brokers
        if each.error
    ]


# ---- topics, groups, messages


async def _topics(calls: ClusterCalls, names: Sequence[str]) -> Examination:
    decided: list[Decided] = []
    errors: list[BrokerFailure] = []
    answers = await at_once([partial(look_at_topic, calls, name) for name in names])
    for name, facts in zip(names, answers, strict=True):
        if isinstance(facts, NameServersAway):
            raise facts
        if isinstance(facts, AdminError):
            decided.append(_not_examined(About.TOPIC, name, facts))
        else:
            decided.append(decide_topic(facts))
            errors += facts.errors
    text = f"topic {names[0]}" if len(names) == 1 else counted(len(names), "topic")
    return examination([*decided, _silences(About.TOPIC, errors)], f"checked {text}", errors)


async def _group(calls: ClusterCalls, order: Order) -> Examination:
    assert order.name is not None
    begun = await begin_group(calls, order.name)
    await asyncio.sleep(order.for_s)
    facts = await finish_group(calls, begun)
    text = (
        f"checked group {order.name} with {counted(len(facts.members), 'live member')} and"
        f" {counted(len(facts.second.queues), 'queue')}, twice in {facts.window_s:.1f} s"
    )
    decided = [decide_group(facts), _silences(About.GROUP, facts.errors)]
    return examination(decided, text, facts.errors)


async def _groups(
    calls: ClusterCalls, names: Sequence[str], tables: GroupTables, for_s: float
) -> Examination:
    """All groups share one pause."""
    decided: list[Decided] = []
    errors: list[BrokerFailure] = []
    begun: list[BegunGroup] = []
    for name, answer in zip(
        names,
        await at_once([partial(begin_group, calls, name, tables) for name in names]),
        strict=True,
    ):
        if not isinstance(answer, AdminError):
            begun.append(answer)
        elif not isinstance(answer, NotFound):  # deleted meanwhile
            decided.append(_not_examined(About.GROUP, name, answer))
    if begun:
        await asyncio.sleep(for_s)
    for each, facts in zip(
        begun, await at_once([partial(finish_group, calls, each) for each in begun]), strict=True
    ):
        if isinstance(facts, AdminError):
            decided.append(_not_examined(About.GROUP, each.info.name, facts))
        else:
            decided.append(decide_group(facts))
            errors += facts.errors
    return examination(decided, counted(len(names), "group"), errors)


async def _message(calls: ClusterCalls, order: Order) -> Examination:
    assert order.name is not None
    facts = await look_at_message(calls, order.name, order.topic)
    readers = counted(len(facts.readers), "group")
    text = f"checked message {facts.id} of topic {facts.topic} for {readers}"
    decided = [decide_message(facts), _silences(About.MESSAGE, facts.errors)]
    return examination(decided, text, facts.errors)


def _silences(about: About, errors: Sequence[BrokerFailure]) -> Decided:
    """A broker that does not answer is one finding, no matter what was asked. One that refuses has
    answered: what it would have reported was not checked."""
    silent = {each.address: each for each in reversed(errors) if not each.is_refusal}
    refused = [each for each in errors if each.is_refusal]
    ids = tuple(each.id for each in CATALOGUE.values() if each.about is about)
    return Decided(
        [
            found(
                "broker-silent",
                f"broker {each.broker}",
                f"{each.address}: {each.reason}",
                f"sparrowmq broker show {each.broker}",
            )
            for each in silent.values()
        ],
        [NotMade(ids, f"broker {each.broker}", each.reason) for each in refused],
    )


def _not_examined(about: About, name: str, error: AdminError) -> Decided:
    ids = tuple(each.id for each in CATALOGUE.values() if each.about is about)
    return Decided(not_made=[NotMade(ids, f"{about} {name}", str(error))])


# ---- everything


async def _everything(calls: ClusterCalls, order: Order) -> Examination:
    facts = await look_at_cluster(calls, None)
    names = await topic_names(calls)
    own = {each.name for each in facts.brokers}
    own |= {name for each in facts.brokers for name in each.clusters}
    own |= {f"{name}_REPLY_TOPIC" for name in own}
    topics = [name for name in names if name not in own and _is_users(name)]
    try:
        tables = (await group_tables(calls)).by_broker
    except AdminError as error:
        parts = [_of_cluster(facts)]
        not_made = [
            _not_examined(About.TOPIC, "any", error),
            _not_examined(About.GROUP, "any", error),
        ]
        return _together(parts, [*not_made], parts[0].checked)
    listed = {name for table in tables.values() for name in table}
    groups = sorted(name for name in listed if not is_system_group(name))
    some_topics = _some(topics, order.topics_first, order.limit)
    some_groups = _some(groups, order.groups_first, order.limit)
    parts = [
        _of_cluster(facts),
        await _topics(calls, some_topics),
        await _groups(calls, some_groups, tables, order.for_s),
    ]
    counts = [
        _share(len(some_topics), len(topics), "topic"),
        _share(len(some_groups), len(groups), "group"),
    ]
    return _together(parts, [], f"{_cluster_text(facts)}, {' and '.join(counts)}")


def _some(names: Sequence[str], first: Sequence[str], limit: int) -> list[str]:
    known = set(names)
    ordered = dict.fromkeys([*(name for name in first if name in known), *names])
    return [*ordered][: limit or None]


def _is_users(topic: str) -> bool:
    return not (is_system_topic(topic) or is_retry_topic(topic) or is_dlq_topic(topic))


def _share(some: int, all_of_them: int, noun: str) -> str:
    if some == all_of_them:
        return counted(some, noun)
    return f"{some:,} of {counted(all_of_them, noun)} (--limit 0 for all)"


def _together(parts: Sequence[Examination], more: list[Decided], checked: str) -> Examination:
    decided = [Decided(each.findings, each.not_made) for each in parts]
    errors = [error for each in parts for error in each.errors]
    return examination([*decided, *more], checked, errors)
