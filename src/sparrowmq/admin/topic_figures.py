"""What many topics hold and how busy they are, with few requests.

    broker-a ── 21 ▶ settings of all its topics
             ── 202 for each topic that was asked for
             ── 300, 315 for each of them, if rates are wanted

To find the busiest, brokers are asked about each only for the figure that decides; deliveries are
known from all groups together, so that they take no request for each topic (`all_progress.py`).

Each broker is asked separately. One that stops answering is a failure at once, no matter how many
topics there are: a hundred requests would take a hundred times the timeout.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from sparrowmq.admin.all_progress import progress_of_all, stored_offsets
from sparrowmq.admin.cluster_calls import ClusterCalls, while_it_answers
from sparrowmq.admin.errors import AdminError, BrokerRefusal
from sparrowmq.admin.groups import all_configs
from sparrowmq.admin.members import connected
from sparrowmq.admin.topics import TopicSettings, all_topic_configs, settings_of, topic_stats
from sparrowmq.admin.values import BrokerFailure, Listing, time_of
from sparrowmq.client.argument_checks import check_names
from sparrowmq.protocol.body import GroupList
from sparrowmq.protocol.broker_stats import BrokerStatsData, BrokerStatsItem
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.connections import GetConsumersOfTopic
from sparrowmq.protocol.headers.statistics import ViewBrokerStats
from sparrowmq.protocol.offsets_body import TopicStats
from sparrowmq.protocol.topic_config import TopicConfig

N = TypeVar("N", int, float)
_PUT, _SIZE, _GET = "TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS"

Busy: TypeAlias = Literal["in", "out", "size"]
"""Messages per second that are stored or delivered, or bytes that are held."""

_HELD = frozenset({"held"})
_ALL = frozenset({"held", "out", "size"})
_NEEDED: dict[Busy, frozenset[str]] = {
    "in": _HELD,
    "out": frozenset({"out"}),
    "size": frozenset({"held", "size"}),
}
"""What decides which topic is busier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """A topic on the brokers that answered. A figure that none of them reported is None."""

    name: str
    settings: tuple[TopicSettings, ...]
    """The settings on each broker that has the topic."""
    messages: int | None
    stored_per_s: float | None
    """Messages per second in the last minute."""
    last_stored: datetime | None
    """Also None for a topic without messages."""
    delivered_per_s: float | None = None
    """To all groups, in the last minute; None unless rates were requested."""
    size_bytes: int | None = None
    """Approximate: its messages times the mean size of recent ones; None unless rates were
    requested, and if brokers do not count sizes."""


@dataclass(frozen=True, slots=True)
class _OnBroker:
    settings: TopicSettings
    stats: TopicStats
    delivered_per_s: float | None
    mean_bytes: float | None

    @property
    def messages(self) -> int:
        return sum(each.max_offset - each.min_offset for each in self.stats.offset_table.values())


async def topic_figures(
    cluster: ClusterCalls, names: Sequence[str], *, rates: bool
) -> Listing[TopicFigures]:
    """The topics in this order; one that no broker has is without settings."""
    check_names("topics", names)
    return await _listed(cluster, names, _ALL if rates else _HELD)


async def busiest_topics(
    cluster: ClusterCalls, names: Sequence[str], *, by: Busy, most: int
) -> Listing[TopicFigures]:
    """All figures of at most so many of the topics (0: of all), the busiest first."""
    check_names("topics", names)
    if by not in _NEEDED:
        raise ValueError(f"`by` is {by!r}, must be one of {', '.join(_NEEDED)}")
    errors: tuple[BrokerFailure, ...] = ()
    if 0 < most < len(names):
        found = await _listed(cluster, names, _NEEDED[by])
        names, errors = [each.name for each in _busiest_first(found, by)[:most]], found.errors
    listed = await _listed(cluster, names, _ALL)
    failures = dict.fromkeys((*errors, *listed.errors))
    return Listing(tuple(_busiest_first(listed, by)), tuple(failures))


def _busiest_first(listed: Iterable[TopicFigures], by: Busy) -> list[TopicFigures]:
    keys: dict[Busy, Callable[[TopicFigures], float | None]] = {
        "in": lambda each: each.stored_per_s,
        "out": lambda each: each.delivered_per_s,
        "size": lambda each: each.size_bytes,
    }
    return sorted(listed, key=lambda each: (-(keys[by](each) or 0), each.name))


async def _listed(
    cluster: ClusterCalls, names: Sequence[str], parts: frozenset[str]
) -> Listing[TopicFigures]:
    async def ask(broker: str, address: str) -> dict[str, _OnBroker]:
        return await _of_broker(cluster, broker, address, names, parts)

    answers = await cluster.ask_each(await cluster.readable(), ask)
    found = list(answers.by_broker.values())
    return Listing(
        tuple(_figures(name, [each[name] for each in found if name in each]) for name in names),
        answers.errors,
    )


async def _of_broker(
    cluster: ClusterCalls,
    broker: str,
    address: str,
    names: Sequence[str],
    parts: frozenset[str],
) -> dict[str, _OnBroker]:
    table = await all_topic_configs(cluster, address)
    configs = {name: table[name] for name in names if name in table}
    if parts == _NEEDED["out"]:
        try:
            delivered = await _delivered_of_many(cluster, broker, address, configs)
        except (AdminError, ProtocolError):  # it does not serve that: ask about each topic
            delivered = None
        if delivered is not None:
            return {
                name: _OnBroker(settings_of(broker, config), TopicStats(), delivered[name], None)
                for name, config in configs.items()
            }
    asks = {
        name: partial(_on_broker, cluster, broker, address, config, parts)
        for name, config in configs.items()
    }
    return await while_it_answers(asks)


async def _on_broker(
    cluster: ClusterCalls, broker: str, address: str, config: TopicConfig, parts: frozenset[str]
) -> _OnBroker:
    topic = config.topic_name
    stats = await topic_stats(cluster, address, topic) if "held" in parts else TopicStats()
    found = _OnBroker(settings_of(broker, config), stats, None, None)
    if "out" in parts:
        found = replace(found, delivered_per_s=await _delivered_per_s(cluster, address, topic))
    if "size" in parts and found.messages:  # nothing has no size, whatever the mean was
        found = replace(found, mean_bytes=await _mean_bytes(cluster, address, topic))
    return found


async def _delivered_of_many(
    cluster: ClusterCalls, broker: str, address: str, topics: Collection[str]
) -> dict[str, float] | None:
    """Like `_delivered_per_s` for each of these topics; None if asking about each takes less."""
    groups = await all_configs(cluster, address)
    if len(groups) > len(topics):
        return None
    told: dict[tuple[str, str], float] = {}
    for group, by_topic in (await progress_of_all(cluster, address)).items():
        for each in by_topic:
            told |= {(queue.topic, group): each.consume_tps for queue in each.offset_table}
    readers = {
        (topic, group) for topic, group in map(_reader, await stored_offsets(cluster, address))
    }
    online = await while_it_answers(
        {group: partial(connected, cluster, group, {broker: address}) for group in groups}
    )
    readers |= {(one.topic, group) for group, at in online.items() for one in at.subscriptions}
    wanted = {pair for pair in readers if pair[0] in topics}
    more = await while_it_answers(
        {pair: partial(_group_per_s, cluster, address, *pair) for pair in wanted - told.keys()}
    )
    sums = dict.fromkeys(topics, 0.0)
    for pair in wanted:
        sums[pair[0]] += more[pair] if pair in more else told[pair]
    return sums


def _reader(key: str) -> tuple[str, str]:
    topic, _, group = key.partition("@")
    return topic, group


async def _delivered_per_s(cluster: ClusterCalls, address: str, topic: str) -> float:
    groups = await groups_of_topic(cluster, address, topic)
    rates = [await _group_per_s(cluster, address, topic, group) for group in sorted(groups)]
    return sum(rates, 0.0)


async def _group_per_s(cluster: ClusterCalls, address: str, topic: str, group: str) -> float:
    spans = await _spans(cluster, address, _GET, f"{topic}@{group}")
    return 0.0 if spans is None else spans.stats_minute.tps


async def groups_of_topic(cluster: ClusterCalls, address: str, topic: str) -> frozenset[str]:
    """Groups that subscribe to a topic or have progress in it, as one broker knows them."""
    response = await cluster.call(address, GetConsumersOfTopic(topic=topic))
    return GroupList.from_json(response.body).group_list


async def _mean_bytes(cluster: ClusterCalls, address: str, topic: str) -> float | None:
    """Mean size of the messages of the last day or, if the broker has not run that long, of the
    last hour or minute."""
    number = await _spans(cluster, address, _PUT, topic)
    size = await _spans(cluster, address, _SIZE, topic)
    if number is None or size is None:
        return None
    for counted, bytes_ in zip(_longest_first(number), _longest_first(size), strict=True):
        if counted.sum and bytes_.sum:
            return bytes_.sum / counted.sum
    return None


def _longest_first(spans: BrokerStatsData) -> tuple[BrokerStatsItem, ...]:
    return spans.stats_day, spans.stats_hour, spans.stats_minute


async def _spans(
    cluster: ClusterCalls, address: str, name: str, key: str
) -> BrokerStatsData | None:
    """None if nothing was counted: brokers then answer with an error."""
    try:
        response = await cluster.call(address, ViewBrokerStats(stats_name=name, stats_key=key))
    except BrokerRefusal as error:
        if error.code != ResponseCode.SYSTEM_ERROR:
            raise
        return None
    return BrokerStatsData.from_json(response.body)


def _figures(name: str, found: Sequence[_OnBroker]) -> TopicFigures:
    times = [
        each.last_update_timestamp for one in found for each in one.stats.offset_table.values()
    ]
    return TopicFigures(
        name=name,
        settings=tuple(each.settings for each in found),
        messages=_sum(each.messages for each in found),
        stored_per_s=_sum(each.stats.topic_put_tps for each in found),
        last_stored=time_of(max(times, default=None)),
        delivered_per_s=_sum(each.delivered_per_s for each in found),
        size_bytes=_size(found),
    )


def _size(found: Iterable[_OnBroker]) -> int | None:
    """The size on all brokers. One that has none of the topic's messages adds nothing, whatever
    their size was."""
    sizes = [
        0.0 if not each.messages else each.mean_bytes and each.messages * each.mean_bytes
        for each in found
    ]
    total = _sum(sizes)
    return None if total is None else round(total)


def _sum(numbers: Iterable[N | None]) -> N | None:
    """The sum; None if there is nothing to add, or one of the numbers is not known."""
    total: N | None = None
    for each in numbers:
        if each is None:
            return None
        total = each if total is None else total + each
    return total
