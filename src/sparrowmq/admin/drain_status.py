"""What a broker has to finish before it can be stopped without losing messages.

SparrowMQ's brokers count it themselves, at one position in their log. For Apache's brokers it is
combined from ordinary answers, between two looks at the end of the log: if the end is the same,
nothing was stored meanwhile, so all the answers were true at once.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from sparrowmq.admin.brokers import runtime_table
from sparrowmq.admin.cluster_calls import ClusterCalls, while_it_answers
from sparrowmq.admin.errors import BrokerRefusal, NoBrokerAnswers, is_unsupported
from sparrowmq.admin.lag import committed
from sparrowmq.admin.topic_figures import groups_of_topic
from sparrowmq.admin.topics import all_topic_configs, is_hidden, topic_stats
from sparrowmq.admin.values import time_of
from sparrowmq.protocol.drain import DrainReport, DrainState, GroupLeft, ReadElsewhere
from sparrowmq.protocol.headers.drain import LookAtDrain
from sparrowmq.protocol.headers.statistics import GetBrokerConsumeStats
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TRANS_HALF_TOPIC,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
)
from sparrowmq.protocol.offsets_body import ConsumeStatsList, OffsetPair, TopicStats

_TRANSACTIONS = "CID_RMQ_SYS_TRANS"
"""The group whose offset tells how far Apache's broker has processed half messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Messages of a topic that a group has not read on one broker."""

    group: str
    topic: str
    messages: int
    members: int | None
    """Live members; None if the broker does not report them."""
    is_paused: bool
    is_ignored: bool
    """Whether the drain does not wait for this group."""
    lacking: int = 0
    """Members that do not subscribe to the topic, although others do: nobody may read their share
    of its queues."""

    @property
    def why(self) -> str:
        """Why it may take forever, in words; empty if members are reading."""
        if self.is_ignored:
            return "ignored"
        if self.is_paused:
            return "paused"
        if self.lacking:
            return f"{self.lacking} of {self.members} members do not subscribe"
        return "no members" if self.members == 0 else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDrain:
    """How far the drain of a broker has got, and what is left."""

    broker: str
    address: str
    is_apache: bool
    """Apache's brokers still take messages while they drain: only the name servers keep producers
    away, and only in memory."""
    state: DrainState
    since: datetime | None
    """When the drain began; None if that is not known."""
    refuses_sends: bool
    """False at first, while connected producers switch to other brokers."""
    is_settled: bool = True
    """False for 40 s after the broker's start: members that are not back yet may have much left."""
    unread: tuple[Unread, ...]
    delayed: int
    last_due: datetime | None
    """When the last delayed message is due; None if none waits, or the broker does not report
    it."""
    half: int
    """Half messages whose transactions have not ended."""
    dead: Mapping[str, int]
    """Group → dead letters, which stay behind."""
    broadcasting: tuple[str, ...] = ()
    """Groups that the drain does not wait for, because only their members know their progress."""
    unclaimed: Mapping[str, int]
    """Topic → messages that no group has ever read and that stay behind."""
    topics: tuple[str, ...] = ()
    """Topics with messages."""
    log_end: int = -1
    """Where the log ended when all of this was true; -1 if it grew meanwhile."""
    unasked: tuple[str, ...] = ()
    """Brokers that did not say which groups read the topics there: those groups may be missing."""
    unconfirmed: tuple[str, ...] = ()
    """Name servers that did not answer when it left; they forget it within two minutes."""
    failure: str = ""
    """Why the broker does not answer at the moment; the other fields are from its last answer."""

    @property
    def left(self) -> int:
        """Messages that groups still have to read, not counting ignored groups."""
        return sum(each.messages for each in self.unread if not each.is_ignored)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left that would finish by itself, and nothing new can arrive."""
        is_done = not (self.left or self.delayed or self.half or self.unasked)
        return is_done and self.is_settled and self.refuses_sends and self.log_end >= 0


async def look_at(
    cluster: ClusterCalls,
    broker: str,
    address: str,
    ignored: Collection[str] = (),
    elsewhere: ReadElsewhere | None = None,
) -> BrokerDrain:
    """How far a broker's drain has got: what groups have not read that it knows, or that read
    `elsewhere`. Raises AdminError if it does not answer."""
    is_apache = False
    elsewhere = elsewhere or ReadElsewhere()
    try:
        response = await cluster.call(address, LookAtDrain(), elsewhere.to_json())
        report = DrainReport.from_json(response.body)
    except BrokerRefusal as error:
        if not is_unsupported(error):
            raise
        report, is_apache = await _apache_report(cluster, broker, address, elsewhere), True
    return BrokerDrain(
        broker=broker,
        address=address,
        is_apache=is_apache,
        state=report.state,
        since=time_of(report.since_ms),
        refuses_sends=report.refuses_sends,
        is_settled=report.is_settled,
        unread=tuple(
            Unread(
                group=each.group,
                topic=each.topic,
                messages=each.left,
                members=None if is_apache else each.members,
                is_paused=each.is_paused,
                is_ignored=each.group in ignored,
                lacking=each.lacking,
            )
            for each in report.groups
        ),
        delayed=report.delayed,
        last_due=time_of(report.last_due_ms),
        half=report.half,
        dead=report.dead,
        broadcasting=report.broadcasting,
        unclaimed=report.unclaimed,
        topics=(*report.claimed, *report.unclaimed),
        log_end=report.log_end,
    )


class DrainView:
    """Looks at a broker's drain again and again, and knows who reads its topics elsewhere.

    A group may have read one of the broker's topics on another broker only: it was stopped before
    its first pull from this broker was answered, or while this broker was away. The broker does not
    know it, and the group would lose its messages. Each topic is asked for once, of all other
    brokers: a group that comes back is then known to the broker itself.
    """

    def __init__(
        self, cluster: ClusterCalls, broker: str, address: str, ignored: Collection[str]
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._address = address
        self._ignored = ignored
        self._elsewhere: dict[str, tuple[str, ...]] = {}

    async def look(self) -> BrokerDrain:
        """What is left now. Raises AdminError if the broker does not answer."""
        found = await self._look_at_broker()
        new = [topic for topic in found.topics if topic not in self._elsewhere]
        if not new or found.state is DrainState.LEFT:
            return found
        silent = await self._ask(new, found.broadcasting)
        return replace(await self._look_at_broker(), unasked=silent)

    async def _look_at_broker(self) -> BrokerDrain:
        known = {topic: groups for topic, groups in self._elsewhere.items() if groups}
        return await look_at(
            self._cluster, self._broker, self._address, self._ignored, ReadElsewhere(groups=known)
        )

    async def _ask(self, topics: Collection[str], broadcasting: Collection[str]) -> tuple[str, ...]:
        """Find the groups that read these topics elsewhere. Returns brokers that did not answer:
        the topics are asked for again."""
        addresses = await self._cluster.readable()
        others = {name: address for name, address in addresses.items() if name != self._broker}

        async def ask(_: str, address: str) -> dict[str, frozenset[str]]:
            asks = {
                topic: partial(groups_of_topic, self._cluster, address, topic) for topic in topics
            }
            return await while_it_answers(asks)

        try:
            answers = await self._cluster.ask_each(others, ask)
        except NoBrokerAnswers:
            return tuple(others)
        if answers.errors:
            return tuple(error.broker for error in answers.errors)
        for topic in topics:
            groups = frozenset[str]().union(*(each[topic] for each in answers.by_broker.values()))
            readers = {group for group in groups if not is_system_group(group)}
            self._elsewhere[topic] = tuple(sorted(readers - set(broadcasting)))
        return ()


# ---- Apache's brokers


async def _apache_report(
    cluster: ClusterCalls, broker: str, address: str, elsewhere: ReadElsewhere
) -> DrainReport:
    before = await runtime_table(cluster, address)
    topics = await all_topic_configs(cluster, address)
    names = [name for name in topics if name == TRANS_HALF_TOPIC or _may_be_left(name)]
    stats = await while_it_answers(
        {name: partial(topic_stats, cluster, address, name) for name in names}
    )
    progress = await _progress(cluster, address)
    half_queue = MessageQueue(TRANS_HALF_TOPIC, broker, 0)
    half = 0
    if TRANS_HALF_TOPIC in stats:
        done = await committed(cluster, address, _TRANSACTIONS, half_queue) or 0
        half = sum(each.max_offset for each in stats[TRANS_HALF_TOPIC].offset_table.values()) - done
    after = await runtime_table(cluster, address)
    log_end = int(after.get("commitLogMaxOffset", "-1"))
    is_same = before.get("commitLogMaxOffset") == after.get("commitLogMaxOffset")
    unread = _unread(progress, elsewhere, stats)
    read = {topic for _, topic in progress} | elsewhere.groups.keys()
    is_wiped = await is_hidden(cluster, broker)
    held = {name: _messages(each) for name, each in stats.items()}
    theirs = {name: count for name, count in held.items() if count and not _is_own(name)}
    return DrainReport(
        state=DrainState.DRAINING if is_wiped else DrainState.SERVING,
        refuses_sends=is_wiped,
        groups=tuple(
            GroupLeft(group=group, topic=topic, left=left)
            for (group, topic), left in sorted(unread.items())
        ),
        delayed=_apache_delayed(after),
        half=max(0, half),
        dead={
            name.removeprefix(DLQ_PREFIX): count
            for name, count in held.items()
            if count and is_dlq_topic(name)
        },
        claimed=tuple(name for name in theirs if name in read),
        unclaimed={name: count for name, count in theirs.items() if name not in read},
        log_end=log_end if is_same else -1,
    )


def _may_be_left(topic: str) -> bool:
    return not is_system_topic(topic) and not topic.endswith("_REPLY_TOPIC")


def _is_own(topic: str) -> bool:
    return topic == TRANS_HALF_TOPIC or is_retry_topic(topic) or is_dlq_topic(topic)


async def _progress(
    cluster: ClusterCalls, address: str
) -> dict[tuple[str, str], dict[MessageQueue, OffsetPair]]:
    """Group and topic → its queues."""
    response = await cluster.call(address, GetBrokerConsumeStats(is_order=False))
    found: dict[tuple[str, str], dict[MessageQueue, OffsetPair]] = {}
    for table in ConsumeStatsList.from_json(response.body).consume_stats_list:
        for group, by_topic in table.items():
            for each in by_topic:
                for queue, pair in each.offset_table.items():
                    if not is_system_group(group) and not is_system_topic(queue.topic):
                        found.setdefault((group, queue.topic), {})[queue] = pair
    return found


def _unread(
    progress: Mapping[tuple[str, str], Mapping[MessageQueue, OffsetPair]],
    elsewhere: ReadElsewhere,
    stats: Mapping[str, TopicStats],
) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for (group, topic), queues in progress.items():
        held = stats[topic].offset_table if topic in stats else {}
        for queue, pair in queues.items():
            low = held[queue].min_offset if queue in held else 0
            left = max(0, pair.broker_offset - max(low, pair.consumer_offset))
            found[group, topic] = found.get((group, topic), 0) + left
    for topic, groups in elsewhere.groups.items():
        for group in groups:
            if (group, topic) not in progress and topic in stats:
                found[group, topic] = _messages(stats[topic])
    for topic, each in stats.items():  # retry topics of groups that have not read from them yet
        group = topic.removeprefix(RETRY_PREFIX)
        if is_retry_topic(topic) and (group, topic) not in progress:
            found[group, topic] = _messages(each)
    return {key: left for key, left in found.items() if left}


def _messages(stats: TopicStats) -> int:
    return sum(each.max_offset - each.min_offset for each in stats.offset_table.values())


def _apache_delayed(runtime: Mapping[str, str]) -> int:
    """Delayed messages of all levels, plus timers if the broker has them."""
    waiting = 0
    for name, value in runtime.items():
        if name.startswith("scheduleMessageOffset_"):
            done, _, end = value.partition(",")
            waiting += max(0, int(end or 0) - int(done or 0))
    timers = runtime.get("timerCongestNum", "")
    return waiting + (int(timers) if timers.isdecimal() else 0)
