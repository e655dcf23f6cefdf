"""Which sends have limits, and what happens to those that do.

A topic without limits is remembered in `topics.checked_for_send`, and its sends never get here:
limits cost nothing if there are none. A quota of a producer group or of clients concerns every
topic. Only clients' sends are counted or refused: retries, dead letters, due delayed messages and
commits are stored by the broker itself.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

from sparrowmq.broker.traffic.backlog import BacklogState, Presence, look
from sparrowmq.broker.traffic.bucket import Bucket, admit, give_back
from sparrowmq.broker.traffic.client_quota import ClientQuota
from sparrowmq.broker.traffic.dedup import Dedup, rule_of
from sparrowmq.broker.traffic.meter import Meter, Metered, Refusals
from sparrowmq.broker.traffic.slowing import Slowing
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Handled, Reply, Request
from sparrowmq.net.slices import Slice
from sparrowmq.protocol.batch import count_messages
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import AnySend, SendBatchMessage, SendLimited
from sparrowmq.protocol.limits import (
    CLIENT_QUOTA,
    BacklogAction,
    Quota,
    Scope,
    backlog_of,
    producer_quotas,
    quota_of,
)
from sparrowmq.protocol.names import is_dlq_topic, is_retry_topic, is_system_topic
from sparrowmq.protocol.topic_config import TopicConfig

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker

Send = Callable[["Broker", Request[AnySend], TopicConfig | None], Handled]
"""A handler of sends; it may get the topic that was admitted."""
Admitted = Callable[["Broker", Request[AnySend], TopicConfig], Handled]
"""A handler of sends that is only called with a topic."""

Sender = tuple[str, str, str]
"""A client id, a producer group, and the topic that it sends to."""

_TICK_S = 1.0
_MOST_SENDERS = 10_000
"""Names in sends are the clients' choice, so what is remembered of them has an end."""
_BACKLOG_RETRY_MS = 1000
"""Backlogs are checked this often."""


class TopicLimits:
    """The limits of one topic, from its configuration."""

    __slots__ = (
        "backlog",
        "buckets",
        "config",
        "has_more_than_quotas",
        "is_deduplicated",
        "meter",
    )

    def __init__(self, config: TopicConfig) -> None:
        self.config = config
        self.meter: Meter | None = None
        self.buckets: tuple[Bucket, ...] = ()
        """The buckets of `meter`."""
        self.backlog: BacklogState | None = None
        self.is_deduplicated = False
        self.has_more_than_quotas = False

    def follow(self, config: TopicConfig, now_ms: int) -> None:
        """The topic has changed; the used part of a quota stays used."""
        self.config = config
        self.is_deduplicated = rule_of(config) is not None
        quota, backlog = quota_of(config.attributes), backlog_of(config.attributes)
        self.meter = _meter(self.meter, Scope.TOPIC, config.topic_name, quota, now_ms)
        self.buckets = () if self.meter is None else self.meter.buckets.row
        if backlog is None:
            self.backlog = None
        elif self.backlog is None or self.backlog.limit != backlog:
            self.backlog = BacklogState(backlog)
        self.has_more_than_quotas = self.is_deduplicated or backlog is not None


def _meter(known: Meter | None, scope: Scope, name: str, quota: Quota, now_ms: int) -> Meter | None:
    if not quota:
        return None
    if known is None:
        return Meter(scope, name, quota, now_ms)
    if known.buckets.quota != quota:
        known.buckets.change(quota, now_ms)
    return known


class Traffic:
    """The limits of one broker."""

    def __init__(self) -> None:
        self.dedup = Dedup()
        self.topics: dict[str, TopicLimits] = {}
        """Topics with a limit that were sent to or listed since they got it."""
        self.producers: dict[str, Meter] = {}
        self.clients: ClientQuota | None = None
        self.concerns_all = False
        """Whether sends to every topic have a quota, that of their producer group or client."""
        self._buckets_of: dict[Sender, tuple[Bucket, ...]] = {}
        """What sends have to obey while `concerns_all`: looked up once a second at most."""
        self.slowing = Slowing()
        self._presence = Presence()
        self._own: TopicConfig | None = None
        """The topic that has the quotas of producer groups and clients."""

    # ---- what has a limit

    def follow(self, broker: "Broker", changed: Iterable[TopicConfig] = ()) -> None:
        """Topics have changed: a new limit applies from now on, not from the next send."""
        for topic in changed:
            if topic.topic_name in self.topics:
                self.limits_of(topic, broker.monotonic())
        self._follow_own_topic(broker)

    def _follow_own_topic(self, broker: "Broker") -> None:
        """Learn the quotas of producer groups and clients, which may have changed."""
        own = broker.topics.get(broker.config.broker_name)
        if own is self._own:
            return
        self._own, now_ms = own, broker.monotonic()
        self._buckets_of.clear()
        attributes = {} if own is None else own.attributes
        concerned_all = self.concerns_all
        quotas = producer_quotas(attributes)
        self.producers = {
            group: meter
            for group, quota in quotas.items()
            if (
                meter := _meter(
                    self.producers.get(group), Scope.PRODUCER_GROUP, group, quota, now_ms
                )
            )
        }
        each = quota_of(attributes, CLIENT_QUOTA)
        if not each:
            self.clients = None
        elif self.clients is None:
            self.clients = ClientQuota(each)
        elif self.clients.quota != each:
            self.clients.change(each, now_ms)
        self.concerns_all = bool(self.producers) or self.clients is not None
        if self.concerns_all != concerned_all:
            broker.topics.forget_checked()

    def watches(self, topic: TopicConfig) -> bool:
        """Whether a send to this topic has a limit of any kind."""
        if self.dedup.watches(topic):  # asked first: it forgets a topic that no longer is
            return True
        if not topic.attributes and not self.concerns_all:
            return False
        name = topic.topic_name
        if is_retry_topic(name) or is_dlq_topic(name) or is_system_topic(name):
            return False
        if self.concerns_all:
            return True
        return bool(quota_of(topic.attributes)) or backlog_of(topic.attributes) is not None

    def limits_of(self, topic: TopicConfig, now_ms: int) -> TopicLimits:
        """The limits of a topic, as it is now."""
        limits = self.topics.get(topic.topic_name)
        if limits is None:
            limits = self.topics[topic.topic_name] = TopicLimits(topic)
        elif limits.config is topic:
            return limits
        limits.follow(topic, now_ms)
        self._buckets_of.clear()
        return limits

    # ---- sends

    def handle(
        self,
        broker: "Broker",
        request: Request[AnySend],
        topic: TopicConfig,
        send: Send,
        *,
        has_quotas_only: bool = False,
    ) -> Handled:
        """Handle a send to a topic that is watched. Raises RequestRefused. `has_quotas_only` when
        everything but quotas was dealt with."""
        now_ms, header = broker.monotonic(), request.header
        limits = self.topics.get(topic.topic_name)
        if limits is None or limits.config is not topic:
            limits = self.limits_of(topic, now_ms)
        if limits.has_more_than_quotas and not has_quotas_only:
            return self._handle_carefully(broker, request, topic, send, limits)
        buckets = limits.buckets
        if self.concerns_all:
            connection = request.connection
            client_id = broker.producers.client_ids.get(connection) or connection.peer
            sender = client_id, header.producer_group, header.topic
            known = self._buckets_of.get(sender)
            buckets = self._look_up(sender, limits, now_ms) if known is None else known
        is_batch = header.batch or type(header) is SendBatchMessage
        count, size = count_messages(request.body) if is_batch else 1, len(request.body)
        if not admit(buckets, count, size, now_ms):
            client_id = broker.producers.client_id(request.connection)
            meters = self._meters(client_id, header.producer_group, limits, now_ms)
            return _over_quota(broker, request, count, meters, now_ms)
        try:
            return send(broker, request, topic)
        except RequestRefused:
            # Nothing was stored, so nothing is used up. A refusal that is awaited keeps its tokens:
            # that message may be stored, such as when the disk failed to sync it.
            give_back(buckets, count, size)
            raise

    def _handle_carefully(
        self,
        broker: "Broker",
        request: Request[AnySend],
        topic: TopicConfig,
        send: Send,
        limits: TopicLimits,
    ) -> Handled:
        """Handle a send to a topic with a largest backlog, or one that is de-duplicated."""
        once: Admitted = partial(self._unless_behind, send)
        if limits.is_deduplicated:  # a duplicate is answered before anything else is counted
            once = partial(self.dedup.handle, send=once, again=send)
        backlog = limits.backlog
        if backlog is not None and backlog.is_over and backlog.limit.action is BacklogAction.SLOW:
            return self.slowing.send_slowly(backlog, once, broker, request, topic)
        return once(broker, request, topic)

    def _unless_behind(
        self, send: Send, broker: "Broker", request: Request[AnySend], topic: TopicConfig
    ) -> Handled:
        now_ms = broker.monotonic()  # a de-duplicated topic may have kept the send waiting
        backlog = self.limits_of(topic, now_ms).backlog
        if backlog is None or not backlog.is_over or backlog.limit.action is BacklogAction.SLOW:
            return self.handle(broker, request, topic, send, has_quotas_only=True)
        text = backlog.refusal(topic.topic_name)
        is_batch = request.header.batch or type(request.header) is SendBatchMessage
        count = count_messages(request.body) if is_batch else 1
        return _refused(request, count, backlog.refusals, now_ms, text, _BACKLOG_RETRY_MS)

    def _look_up(self, sender: Sender, limits: TopicLimits, now_ms: int) -> tuple[Bucket, ...]:
        """The buckets of all quotas that a send has to obey, remembered until any of them may be
        other ones."""
        client_id, group, _ = sender
        if len(self._buckets_of) >= _MOST_SENDERS:
            self._buckets_of.clear()
        meters = self._meters(client_id, group, limits, now_ms)
        found = tuple(chain.from_iterable(meter.buckets.row for meter in meters))
        self._buckets_of[sender] = found
        return found

    def _meters(
        self, client_id: str, group: str, limits: TopicLimits, now_ms: int
    ) -> list[Metered]:
        """All quotas that a send has to obey."""
        found: list[Metered] = [] if limits.meter is None else [limits.meter]
        producers = self.producers.get(group)
        if producers is not None:
            found.append(producers)
        if self.clients is not None:
            found.append(self.clients.of(client_id, now_ms))
        return found

    # ---- every second

    async def run(self, broker: "Broker") -> None:
        """Check backlogs and keep figures, forever."""
        while True:
            await asyncio.sleep(_TICK_S)
            await self.tick(broker)

    async def tick(self, broker: "Broker") -> None:
        """The work of every second, in slices."""
        with broker.slices.begin() as turn:
            for name in tuple(self.topics):
                limits = self.topics.get(name)
                config = broker.topics.get(name)
                if limits is None or config is None or not self.watches(config):
                    self.topics.pop(name, None)
                    continue
                limits = self.limits_of(config, broker.monotonic())
                if limits.meter is not None:
                    limits.meter.tick(broker.monotonic())
                if limits.backlog is not None:
                    await self._look(broker, name, limits.backlog, turn)
                if turn.is_over:
                    await turn.pause()
            for each in self._others(broker):
                each.tick(broker.monotonic())
                self._buckets_of.clear()  # clients may be forgotten
                if turn.is_over:
                    await turn.pause()

    def _others(self, broker: "Broker") -> Iterator[Meter | ClientQuota]:
        """Everything besides topics that has a quota."""
        yield from tuple(self.producers.values())
        if self.clients is not None:
            yield self.clients
        yield from [quota.meter for quota in broker.watched.quotas.values()]

    async def _look(self, broker: "Broker", topic: str, state: BacklogState, turn: Slice) -> None:
        lags, uncounted = await look(broker, topic, state.limit, self._presence, turn)
        if state.judge(lags, uncounted, broker.monotonic()):
            group, lag = state.worst
            what = state.limit.action.value
            if state.is_over:
                text = "topic %s: group %s is at %d of %s; action for sends: %s"
                broker.log.warning(text, topic, group, lag, state.limit.limit_text, what)
            else:
                broker.log.warning(
                    "topic %s: sends are unrestricted again; the action was: %s", topic, what
                )


def _over_quota(
    broker: "Broker",
    request: Request[AnySend],
    count: int,
    meters: Sequence[Metered],
    now_ms: int,
) -> Reply:
    """The refusal, naming the quota with the longest wait; only that quota counts it."""
    worst = max(meters, key=lambda meter: meter.buckets.wait_ms(now_ms))
    text = worst.refusal(now_ms, broker.config.broker_name)
    return _refused(request, count, worst.refusals, now_ms, text, worst.buckets.wait_ms(now_ms))


def _refused(
    request: Request[AnySend], count: int, refusals: Refusals, now_ms: int, text: str, wait_ms: int
) -> Reply:
    refusals.add(count, now_ms, is_oneway=request.is_oneway)
    header = SendLimited(retry_after_ms=wait_ms)
    return Reply(header, code=ResponseCode.FLOW_CONTROL, remark=text)
