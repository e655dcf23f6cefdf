"""What all consumers share: a client, subscriptions, a lifecycle, a membership."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any

from sparrowmq.client.argument_checks import check_time, to_ms
from sparrowmq.client.broker_calls import max_offset, min_offset, offset_at
from sparrowmq.client.client import Client, core_of
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import FROM_ENVIRONMENT, config_of
from sparrowmq.client.errors import NoRoute, NotStarted
from sparrowmq.client.group.broker_requests import MemberCalls, routes
from sparrowmq.client.group.member_settings import ConsumerSettings, MemberSettings, with_start
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.group.rate_limit import Rate, RateLimit, chosen_rate
from sparrowmq.client.group.running_info import ConsumeRates
from sparrowmq.client.lifecycle import Lifecycle
from sparrowmq.client.members import ConsumerIdentity, StartedConsumer
from sparrowmq.client.route_table import subscribe_queues
from sparrowmq.client.subscriptions import Subscriptions, check_subscriptions, report_differences
from sparrowmq.protocol.connections import ConsumeDirectlyResult
from sparrowmq.protocol.heartbeat import ConsumeType
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import retry_topic


class GroupConsumer(Lifecycle):
    """Base of the consumers. Brokers and the client talk to `MemberCalls`.

    `async with` starts the consumer's own client if none was given, and stops the consumer at the
    end. For consumers where it starts nothing but the client, call `start` inside the block.
    """

    _member: Membership
    """Its place in the group, set by the start."""

    def __init__(
        self, group: str, subscriptions: Subscriptions, given: ConsumerSettings, **kind: Any
    ) -> None:
        """`given` holds the user's settings, `kind` those of this kind of consumer
        (MemberSettings)."""
        super().__init__()
        chosen: dict[str, Any] = {**given}
        servers = chosen.pop("name_servers", FROM_ENVIRONMENT)
        client: Client | None = chosen.pop("client", None)
        limit = chosen.pop("max_per_second", None), chosen.pop("share_rate", False)
        own = config_of(servers, chosen.pop("config", None), has_client=client is not None)
        self._settings = MemberSettings(group=group, **with_start(chosen), **kind)
        self._client = ClientCore(own, routes=routes) if client is None else core_of(client)
        self._subscriptions = subscriptions
        self._rates = ConsumeRates()
        self._rate_limit = RateLimit(self._rate_of(*limit))
        has_handler = self._settings.consume_type is ConsumeType.PASSIVELY
        self._as_started = StartedConsumer(
            group,
            subscriptions,
            is_broadcasting=self._settings.is_broadcasting,
            is_orderly=self._settings.is_orderly if has_handler else None,
        )
        self._owns_client = client is None
        self._is_started = False

    # ---- lifecycle

    async def _open(self) -> None:
        await self._client.make_ready(is_own=self._owns_client)

    async def stop(self) -> None:
        """Leave the group, and stop the client unless it is shared."""
        await self._starting.until_none()
        await self._leave(0.0)

    async def _reach(self, wait_s: float | None) -> None:
        """Wait for a name server; None means do not wait. Raises NoNameServer when time is up."""
        if wait_s is None:
            return
        check_time("wait_s", wait_s)
        topic = min(self._subscriptions.topics, default=retry_topic(self.group))  # any will do
        client = self._client
        await client.name_servers.patiently(
            lambda: client.route_table.refresh(topic), topic=topic, limit_s=wait_s, rng=client.rng
        )

    async def _start_with(self, make: Callable[[], Membership], wait_s: float | None) -> None:
        """Start the client, wait for a name server if asked to, and join the group."""
        with self._starting:
            await self._client.make_ready(is_own=self._owns_client)
            await self._reach(wait_s)
            await self._join(make)

    async def _join(self, make: Callable[[], Membership]) -> None:
        """Raises ValueError if it is running, or this process already has such a member or one of
        another model, order or subscription, and BrokerRefused if a broker rejects a
        subscription."""
        if self._is_started:
            raise ValueError("the consumer is running already")
        if self.group in self._client.consumers:
            raise ValueError(f"this client has a consumer of group {self.group} already")
        client = self._client
        servers = frozenset(client.config.name_servers)
        client.process_consumers.enter(
            self._as_started, ConsumerIdentity(client.client_id, servers, client.pid)
        )
        try:
            await check_subscriptions(self._client, self.group, self._subscriptions.all())
            await report_differences(self._client, self.group, self._subscriptions.all())
        except BaseException:
            client.process_consumers.leave(self._as_started)
            raise
        self._member = make()
        calls = MemberCalls(self._member, self._rates, self._consume_directly)
        self._client.consumers[self.group] = calls
        self._is_started = True
        await self._member.join()

    async def _leave(self, within_s: float, overdue: Callable[[], None] = lambda: None) -> None:
        """Finish within a deadline, store progress, unlock, unregister. Does nothing if not
        started."""
        await self._stop_once(partial(self._leave_now, within_s, overdue))

    async def _leave_now(self, within_s: float, overdue: Callable[[], None]) -> None:
        try:
            if self._is_started:
                self._is_started = False
                await self._member.leave(within_s, overdue)
                await self._end_trace()
        finally:
            self._client.process_consumers.leave(self._as_started)
            if self._owns_client:
                await self._client.stop()

    async def _end_trace(self) -> None:
        """Send the rest of the trace, for consumers that have one. By now every handler has ended,
        and the client is still running."""

    @property
    def failure(self) -> BaseException | None:
        """What ended this consumer without `stop`, also logged; None while it is alive."""
        return self._client.failure

    # ---- what users ask

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._settings.group

    async def _consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Consume one message on an operator's request. Raises ValueError if there is no
        handler."""
        raise ValueError(f"group {self.group} has no handler here that could consume a message")

    def assignment(self) -> list[MessageQueue]:
        """The queues this member holds now. Raises NotStarted."""
        return sorted(self._running().held)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic. Raises NoRoute."""
        self._running_here()
        route = await self._client.route_table.fetch(topic)
        if route is None:
            lost = await self._client.name_servers.lost_route(topic)
            missing = "it does not exist; send to it, or create it with: sparrowmq topic create"
            raise NoRoute(topic, lost or f"{missing} {topic}")
        # A broker keeps progress only for groups that it has heard of.
        await self._client.heartbeats.reach_new_brokers(route)
        return sorted(subscribe_queues(topic, route))

    async def offset_range(self, queue: MessageQueue) -> tuple[int, int]:
        """The oldest offset of a queue, and the offset of its next message."""
        self._running_here()
        return await min_offset(self._client, queue), (await max_offset(self._client, queue)).offset

    async def offset_at(self, queue: MessageQueue, timestamp_ms: datetime | int) -> int:
        """The offset of the first message stored at or after a time: a datetime with a zone, or
        milliseconds since 1970."""
        self._running_here()
        time_ms = to_ms("timestamp_ms", timestamp_ms)
        return (await offset_at(self._client, queue, time_ms)).offset

    def limit_rate(self, max_per_second: float | None, *, share_rate: bool = False) -> None:
        """From now on take at most this many messages per second, like the settings of these names;
        None removes the limit. Raises ValueError."""
        self._rate_limit.change(self._rate_of(max_per_second, share_rate))

    def _rate_of(self, max_per_second: float | None, share_rate: bool) -> Rate | None:
        return chosen_rate(
            max_per_second,
            share_rate,
            is_broadcasting=self._settings.is_broadcasting,
            has_topics=self._has_topics,
        )

    @property
    def _has_topics(self) -> bool:
        """Whether this member gets queues by its topics, now or once it subscribes to some."""
        return True

    async def _subscriptions_changed(self) -> None:
        if self._is_started:
            await check_subscriptions(self._client, self.group, self._subscriptions.all())
            await self._client.heartbeats.send_everywhere()
            self._member.wake()

    def _running(self) -> Membership:
        if not self._is_started:
            raise NotStarted("the consumer is not running: use `async with`, or start() it")
        self._client.check_alive()
        return self._member

    def _running_here(self) -> Membership:
        """Like `_running`, for calls that wait: they must come from the loop it was started on."""
        member = self._running()
        self._client.check_loop()
        return member


# ---- what users do not see, for the other parts of the client, for tools and for tests


def core_of_consumer(consumer: GroupConsumer) -> ClientCore:
    """The client core of a consumer."""
    return consumer._client


def membership_of(consumer: GroupConsumer) -> Membership:
    """A consumer's place in its group. The consumer must have been started."""
    return consumer._member
