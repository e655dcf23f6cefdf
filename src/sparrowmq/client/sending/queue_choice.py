"""Which queue the next message goes to: round robin, avoiding the broker that failed last."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from sparrowmq.client.argument_checks import check_function, check_kind
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.errors import ClientError, MasterAway, NoRoute
from sparrowmq.client.route_table import cut_route, publish_queues
from sparrowmq.protocol.java import java_hash
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.perm import is_writable
from sparrowmq.protocol.route import TopicRoute

Selector = Callable[[Sequence[MessageQueue], Message], MessageQueue]
"""A user's function that chooses among a topic's queues."""
Chooser = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Picks the queue of one message that is not sent round robin."""


class RoundRobin:
    """Takes queues in turn. The index advances over skipped queues as well."""

    __slots__ = ("_index",)

    def __init__(self, start: int = 0) -> None:
        self._index = start

    def next(self, queues: Sequence[MessageQueue], avoid: str | None = None) -> MessageQueue:
        """The next queue that is not on broker `avoid`; if all are, the next one."""
        first = None
        for _ in queues:
            queue = queues[self._index % len(queues)]
            self._index += 1
            if queue.broker_name != avoid:
                return queue
            first = first or queue
        assert first is not None, "there is no queue"
        return first

    def next_on(
        self, queues: Sequence[MessageQueue], is_usable: Callable[[str], bool]
    ) -> MessageQueue | None:
        """The next queue on a broker that is usable; None when no broker is."""
        for _ in queues:
            queue = queues[self._index % len(queues)]
            self._index += 1
            if is_usable(queue.broker_name):
                return queue
        return None


def queue_for_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """The same key always goes to the same queue, as long as the queues stay the same.

    Java's SelectMessageQueueByHash picks the same queue for a key, so that producers in both
    languages keep one order.
    """
    return queues[abs(java_hash(key)) % len(queues)]


def chooser(
    message: Message, queue: MessageQueue | None, key: str | None, selector: Selector | None
) -> Chooser | None:
    """How a message's queue is chosen; None for round robin.

    Raises ValueError for anything but a message, for more than one way to choose, or for a queue of
    another topic.
    """
    check_kind("message", message, Message)
    if (queue is not None) + (key is not None) + (selector is not None) > 1:
        raise ValueError("queue, key and selector cannot be combined, give one")
    if queue is not None:
        _check_queue(queue, message.topic)
        return lambda _: queue
    if selector is not None:
        check_function("selector", selector)
        return lambda queues: _check_queue(selector(queues, message), message.topic)
    key = message.sharding_key if key is None else key
    if key is None:
        return None
    check_kind("key", key, str)
    return lambda queues: queue_for_key(queues, key)


def queue_on(broker_name: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """A queue on that broker, or any queue if it has none."""
    return next((queue for queue in queues if queue.broker_name == broker_name), queues[0])


def _check_queue(queue: MessageQueue, topic: str) -> MessageQueue:
    check_kind("queue", queue, MessageQueue)
    if queue.topic != topic:
        raise ValueError(f"the queue belongs to topic {queue.topic}, the message to {topic}")
    return queue


# ---- the queues of each topic, computed once per route


class TopicQueues(msgspec.Struct, eq=False):
    """The queues to which one topic is sent."""

    turn: RoundRobin
    route: TopicRoute | None = None
    """The route from which `queues` was computed."""
    queues: list[MessageQueue] = []
    on: frozenset[str] = frozenset()
    """The names of the brokers that the queues are on."""

    @property
    def brokers(self) -> int:
        """How many brokers the queues are on."""
        return len(self.on)


_REFRESH_PAUSE_S = (0.1, 0.3)
"""Between two refreshes of a topic in the background. A new master is registered about 0.6 s after
the old one refuses sends, and all clients of a broker are refused at the same moment."""


class SendQueues:
    """Every topic that this producer has sent to, with its queues."""

    def __init__(self, client: ClientCore, default_queues: int) -> None:
        self._client = client
        self._default_queues = default_queues
        self._topics: dict[str, TopicQueues] = {}
        self._refreshing: set[str] = set()
        """Topics that are refreshed in the background, or were a moment ago."""

    def topics(self) -> set[str]:
        """Topics whose routes have to be kept fresh."""
        return set(self._topics)

    def known(self, topic: str) -> TopicQueues | None:
        """A topic's queues if they are known and still valid, without asking a name server."""
        found = self._topics.get(topic)
        if found is None or not found.queues:
            return None
        return found if found.route is self._client.route_table.get(topic) else None

    async def find(self, topic: str) -> TopicQueues:
        """A topic's queues; asks a name server if necessary. Raises NoRoute."""
        known = self.known(topic)
        if known is not None:
            return known
        if topic not in self._topics:
            start = self._client.rng.randrange(1 << 16)
            self._topics[topic] = TopicQueues(RoundRobin(start))
        table = self._client.route_table
        route = await table.fetch(topic)
        if route is not None and not publish_queues(topic, route):
            # Perhaps a master has come back. Between two masters no broker may have it.
            route = await table.refresh(topic) or route
        if route is None:
            route = await self._borrow_route(topic)
        return self._take(topic, route)

    async def refresh(self, topic: str) -> None:
        """Ask a name server again. Raises NoRoute."""
        table = self._client.route_table
        if table.is_lent(topic, asyncio.get_running_loop().time()):
            # The queues stay, and a broker's address is that of the latest route that names it: a
            # master may have handed over since the topic was created.
            await table.refresh(AUTO_CREATE_TOPIC)
            return
        route = await table.refresh(topic)
        if route is not None:
            self._take(topic, route)

    def refresh_soon(self, topic: str) -> None:
        """Refresh in the background, unless that was begun a moment ago: a send that was refused
        and is not retried does not wait for it, and the sends after it need it."""
        if topic in self._refreshing or self._client.is_ending:
            return
        self._refreshing.add(topic)
        self._client.tasks.create_task(self._refresh_once(topic), name=f"new route of {topic}")

    async def _refresh_once(self, topic: str) -> None:
        try:
            with suppress(ClientError):
                await self.refresh(topic)
            await asyncio.sleep(self._client.rng.uniform(*_REFRESH_PAUSE_S))
        finally:
            self._refreshing.discard(topic)

    def _take(self, topic: str, route: TopicRoute) -> TopicQueues:
        queues = publish_queues(topic, route)
        if not queues:
            is_writable_later = any(is_writable(data.perm) for data in route.queue_datas)
            raise (MasterAway if is_writable_later else NoRoute)(
                topic,
                "it exists, but no broker takes messages for it now: each has no master, or the"
                f" topic is not writable there; look at: sparrowmq topic route {topic}",
            )
        found = self._topics[topic]
        found.route = route
        found.queues = queues
        found.on = frozenset(queue.broker_name for queue in queues)
        return found

    async def _borrow_route(self, topic: str) -> TopicRoute:
        """A topic that does not exist yet uses the route of TBW102, where brokers create topics.

        For the time between two polls, so that every broker gets a message and creates the topic.
        """
        table = self._client.route_table
        default = await table.refresh(AUTO_CREATE_TOPIC)
        if default is None or not publish_queues(topic, default):
            lost = await self._client.name_servers.lost_route(topic)
            missing = (
                "it does not exist and no broker creates topics;"
                f" create it with: sparrowmq topic create {topic}"
            )
            if not lost and not await self._client.name_servers.know_brokers():
                missing = (
                    "no broker is registered with the name server yet; one that runs registers"
                    " within seconds; look at: sparrowmq cluster show"
                )
            raise MasterAway(topic, lost) if lost else NoRoute(topic, missing)
        # Another send that waited for the same route may have stored it already
        known = table.get(topic)
        if known is not None:
            return known
        borrowed = cut_route(default, self._default_queues)
        now_s = asyncio.get_running_loop().time()
        table.lend(topic, borrowed, now_s + self._client.config.route_poll_s)
        return borrowed
