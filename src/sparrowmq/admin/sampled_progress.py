"""The lag of all groups in a bounded number of requests, for figures that are sampled repeatedly.

    every broker ── 21, 317, 43 ▶ what it says of all its groups together (`all_progress.py`)
                 ── 202 for at most 64 topics ▶ where queues begin of which 317 does not say it

Where a queue begins matters only if messages were deleted before the group read them. If a broker
still tells when the last read message was stored, it has all those after it.

What cannot be had this way is left out, never guessed: groups without any progress (their members
may wait for whole topics), those that a broker tells differently, those in more topics than are
asked about. All are left out if a broker does not serve 317, as Apache's before 5.0 with some
settings, or needs too long for it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import partial

from sparrowmq.admin.all_progress import ToldProgress, queue_lag, ranges_of, told_of
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import AdminError, NoBrokerAnswers, Unreachable
from sparrowmq.admin.lag import GroupLag, QueueLag
from sparrowmq.admin.topics import all_topic_configs
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import TopicOffset
from sparrowmq.protocol.perm import is_readable

MOST_TOPICS = 64
"""How many topics a broker is asked about in one sample."""

_Place = tuple[str, str]
"""A broker and a topic."""
_Ranges = Mapping[MessageQueue, TopicOffset]


async def sampled_lags(cluster: ClusterCalls, groups: Collection[str]) -> list[GroupLag]:
    """The lag of these groups, without those that are left out; a broker that does not answer is in
    the `errors` of all. Raises AdminError."""
    answers = await cluster.ask_each(await cluster.readable(), partial(_ask, cluster))
    told = {name: each for name, each in answers.by_broker.items() if each is not None}
    if len(told) < len(answers.by_broker):
        return []
    needed = {
        group: needs
        for group in groups
        if not any(group in each.apart for each in told.values())
        and (needs := _places_needed(told, group)) is not None
    }
    asked = {name: _topics_asked(name, needed) for name in told}
    try:
        found = await cluster.ask_each(
            {name: told[name].address for name, topics in asked.items() if topics},
            lambda name, address: ranges_of(cluster, address, asked[name]),
        )
    except NoBrokerAnswers as error:
        ranges, errors = dict[str, _Ranges](), tuple(error.errors)
    else:
        ranges, errors = dict[str, _Ranges](found.by_broker), found.errors
    failures = (*answers.errors, *errors)
    answering = {name: each for name, each in told.items() if not _is_in(name, errors)}
    return [
        _lag(group, answering, ranges, failures)
        for group, places in needed.items()
        if all(topic in asked[name] for name, topic in places)
    ]


def _is_in(name: str, errors: Collection[BrokerFailure]) -> bool:
    return any(each.broker == name for each in errors)


async def _ask(cluster: ClusterCalls, _: str, address: str) -> ToldProgress | None:
    """None if the broker answers, but not about all groups."""
    configs = await all_topic_configs(cluster, address)
    try:
        return await told_of(cluster, address, configs)
    except Unreachable:
        raise
    except AdminError:
        return None


def _places_needed(told: Mapping[str, ToldProgress], group: str) -> set[_Place] | None:
    """Where it has to be known what the queues hold; None for a group without any progress."""
    listed = {name: each.topics_of(group) for name, each in told.items()}
    topics = set[str]().union(*listed.values())
    if not topics:
        return None
    places = {
        (name, queue.topic)
        for name, each in told.items()
        for queue, pair in each.queues_of(group)
        if pair.lag > 0 and pair.last_timestamp <= 0
    }
    return places | set(_unread(told, group, topics))


def _unread(told: Mapping[str, ToldProgress], group: str, topics: set[str]) -> Iterator[_Place]:
    """The group's topics on the brokers on which it has no progress in them."""
    for name, each in told.items():
        for topic in topics - each.topics_of(group):
            config = each.configs.get(topic)
            if config is not None and is_readable(config.perm):
                yield name, topic


def _topics_asked(broker: str, needed: Mapping[str, Collection[_Place]]) -> set[str]:
    counts = Counter(
        topic for places in needed.values() for name, topic in places if name == broker
    )
    return {topic for topic, _ in counts.most_common(MOST_TOPICS)}


def _lag(
    group: str,
    told: Mapping[str, ToldProgress],
    ranges: Mapping[str, _Ranges],
    errors: tuple[BrokerFailure, ...],
) -> GroupLag:
    queues = [
        queue_lag(each, group, queue, pair, ranges.get(name, {}))
        for name, each in told.items()
        for queue, pair in each.queues_of(group)
    ]
    topics = {each.queue.topic for each in queues}
    unread = [
        QueueLag(
            queue=queue,
            min_offset=held.min_offset,
            broker_offset=held.max_offset,
            consumer_offset=None,
            last_consumed=None,
            owner=None,
        )
        for name, topic in _unread(told, group, topics)
        for queue, held in ranges.get(name, {}).items()
        if queue.topic == topic
    ]
    return GroupLag(
        group=group,
        queues=(*queues, *unread),
        consumed_per_s=sum(each.rate_of(group) for each in told.values()),
        errors=errors,
    )
