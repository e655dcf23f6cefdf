"""Asks about one topic: its route, queues and readers."""

from dataclasses import replace
from functools import partial

from sparrowmq.admin.brokers import broker_config, runtime_table
from sparrowmq.admin.cluster_calls import ClusterCalls, addresses_of, at_once
from sparrowmq.admin.doctor.facts import ReadingGroup, TopicFacts
from sparrowmq.admin.doctor.findings import NotMade
from sparrowmq.admin.errors import AdminError, NoBrokerAnswers, NotFound, TopicAway
from sparrowmq.admin.limits import Limit, limits
from sparrowmq.admin.members import connected, with_details
from sparrowmq.admin.topics import describe_topic
from sparrowmq.protocol.body import GroupList
from sparrowmq.protocol.headers.connections import GetConsumersOfTopic
from sparrowmq.protocol.headers.statistics import GetConsumeTimeSpan
from sparrowmq.protocol.limits import Scope
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_topic, is_system_group
from sparrowmq.protocol.offsets_body import ConsumeTimeSpan

MOST_READERS = 50
_LIMIT_CHECKS = ("quota-reached", "backlog-refused", "backlog-uncounted")
_READER_CHECKS = ("nobody-consumes", "old-route-in-client", "retention-overtakes-lag")


async def look_at_topic(calls: ClusterCalls, name: str) -> TopicFacts:
    """Everything about a topic. Raises NameServersAway, and ValueError for an invalid name."""
    try:
        route = await calls.route(check_topic(name))
    except (NotFound, TopicAway) as error:
        return TopicFacts(name=name, no_route=str(error), is_lost=isinstance(error, TopicAway))
    facts = TopicFacts(name=name, route=route)
    try:
        described = await describe_topic(calls, name)
    except NoBrokerAnswers as error:
        ids = (
            *("queues-uneven", "queues-differ-by-broker", "auto-created"),
            *(*_LIMIT_CHECKS, *_READER_CHECKS),
        )
        missing = NotMade(ids, f"topic {name}", "no broker that has it answers")
        return replace(facts, errors=error.errors, missing=(missing,))
    addresses = addresses_of(route.broker_datas)
    settings = await at_once([partial(broker_config, calls, each) for each in addresses.values()])
    tables = await at_once([partial(runtime_table, calls, each) for each in addresses.values()])
    info = await calls.info()
    readers, missing_readers = await _readers(calls, name, addresses)
    own_limits, missing_limits = await _limits(calls, name)
    return replace(
        facts,
        settings=described.settings,
        queues=described.queues,
        readers=readers,
        broker_settings={
            broker: answer
            for broker, answer in zip(addresses, settings, strict=True)
            if not isinstance(answer, AdminError)
        },
        masters=tuple(
            sorted(each for each, data in info.broker_addr_table.items() if data.master_addr)
        ),
        limits=own_limits,
        dedup_cuts={
            broker: cut
            for broker, table in zip(addresses, tables, strict=True)
            if not isinstance(table, AdminError) and (cut := _dedup_cut(table, name)) is not None
        },
        missing=(*missing_readers, *missing_limits),
        errors=described.errors,
    )


async def _limits(calls: ClusterCalls, topic: str) -> tuple[tuple[Limit, ...], tuple[NotMade, ...]]:
    try:
        listed = await limits(calls)
    except NoBrokerAnswers as error:
        return (), (NotMade(_LIMIT_CHECKS, f"topic {topic}", str(error)),)
    own = [each for each in listed if (each.scope, each.name) == (Scope.TOPIC.value, topic)]
    missing = [
        NotMade(_LIMIT_CHECKS, f"topic {topic} on {each.broker}", each.reason)
        for each in listed.errors
    ]
    return tuple(own), tuple(missing)


def _dedup_cut(table: dict[str, str], topic: str) -> tuple[int, int, int] | None:
    numbers = table.get(f"dedupCut_{topic}", "").split(",")
    if len(numbers) != 3 or not all(each.isdecimal() for each in numbers):
        return None
    cut, span_ms, asked_ms = map(int, numbers)
    return cut, span_ms, asked_ms


async def _readers(
    calls: ClusterCalls, topic: str, addresses: dict[str, str]
) -> tuple[tuple[ReadingGroup, ...] | None, tuple[NotMade, ...]]:
    async def ask(_: str, address: str) -> frozenset[str]:
        response = await calls.call(address, GetConsumersOfTopic(topic=topic))
        return GroupList.from_json(response.body).group_list

    try:
        answers = await calls.ask_each(addresses, ask)
    except NoBrokerAnswers as error:
        return None, (NotMade(_READER_CHECKS, f"topic {topic}", str(error)),)
    names = sorted(
        {
            name
            for found in answers.by_broker.values()
            for name in found
            if not is_system_group(name)
        }
    )
    asks = [partial(_reader, calls, topic, name, addresses) for name in names[:MOST_READERS]]
    found = await at_once(asks)
    missing = [
        NotMade(_READER_CHECKS, f"group {name} in topic {topic}", str(answer))
        for name, answer in zip(names, found, strict=False)
        if isinstance(answer, AdminError)
    ]
    if len(names) > MOST_READERS:
        rest = f"{len(names) - MOST_READERS} more groups in topic {topic}"
        missing.append(NotMade(_READER_CHECKS, rest, f"at most {MOST_READERS} are asked"))
    return tuple(each for each in found if not isinstance(each, AdminError)), tuple(missing)


async def _reader(
    calls: ClusterCalls, topic: str, group: str, addresses: dict[str, str]
) -> ReadingGroup:
    online = await connected(calls, group)
    details = await with_details(calls, group, online)
    spans = await at_once(
        [partial(_delays_s, calls, topic, group, address) for address in addresses.values()]
    )
    delays: dict[MessageQueue, float] = {}
    for each in spans:
        if not isinstance(each, AdminError):
            delays |= each
    wanted = {each.client_id: each.subscriptions for each in details}
    wanted |= {who: what for who, what in online.unequal.items() if wanted.get(who) is None}
    lacking = [
        who
        for who, what in sorted(wanted.items())
        if what is not None and all(each.topic != topic for each in what)
    ]
    return ReadingGroup(
        group=group,
        members=len(details) - len(lacking),
        lacking=tuple(lacking),
        delays_s=delays,
        held={
            member.client_id: frozenset(
                queue for queue in member.queues or () if queue.topic == topic
            )
            for member in details
        },
    )


async def _delays_s(
    calls: ClusterCalls, topic: str, group: str, address: str
) -> dict[MessageQueue, float]:
    header = GetConsumeTimeSpan(topic=topic, group=group)
    spans = ConsumeTimeSpan.from_json((await calls.call(address, header)).body)
    return {
        each.message_queue: each.delay_time / 1000
        for each in spans.consume_time_span_set
        if each.delay_time > 0
    }
