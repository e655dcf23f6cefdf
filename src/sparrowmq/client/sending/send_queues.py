"""The queues each topic is sent to, worked out once per route, and whose turn it is."""

import asyncio

import msgspec

from sparrowmq.client.client import Client
from sparrowmq.client.errors import NoRoute
from sparrowmq.client.route_table import cut_route, publish_queues
from sparrowmq.client.sending.queue_choice import RoundRobin
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.route import TopicRoute


class TopicQueues(msgspec.Struct, eq=False):
    """Where one topic is sent to."""

    turn: RoundRobin
    route: TopicRoute | None = None
    """The route that `queues` was made of."""
    queues: list[MessageQueue] = []
    is_spread: bool = False
    """Whether the queues lie on more than one broker."""


class SendQueues:
    """Every topic that was sent to, with its queues."""

    def __init__(self, client: Client, default_queues: int) -> None:
        self._client = client
        self._default_queues = default_queues
        self._topics: dict[str, TopicQueues] = {}

    def topics(self) -> set[str]:
        """Topics whose routes have to stay fresh."""
        return set(self._topics)

    def known(self, topic: str) -> TopicQueues | None:
        """What is known and still right, without asking anybody."""
        found = self._topics.get(topic)
        if found is None or not found.queues:
            return None
        return found if found.route is self._client.route_table.get(topic) else None

    async def find(self, topic: str) -> TopicQueues:
        """Where a topic is sent to; a name server is asked if need be. Raises NoRoute."""
        known = self.known(topic)
        if known is not None:
            return known
        if topic not in self._topics:
            start = self._client.rng.randrange(1 << 16)
            self._topics[topic] = TopicQueues(RoundRobin(start))
        table = self._client.route_table
        route = await table.fetch(topic)
        if route is not None and not publish_queues(topic, route):
            route = await table.refresh(topic)  # perhaps a master has come back
        if route is None:
            route = await self._borrow_route(topic)
        return self._take(topic, route)

    def _take(self, topic: str, route: TopicRoute) -> TopicQueues:
        queues = publish_queues(topic, route)
        if not queues:
            raise NoRoute(
                topic,
                "it exists, but no broker takes messages for it now: each has no master, or the"
                f" topic is not writable there; look at: sparrowmq topic route {topic}",
            )
        found = self._topics[topic]
        found.route = route
        found.queues = queues
        found.is_spread = len({queue.broker_name for queue in queues}) > 1
        return found

    async def _borrow_route(self, topic: str) -> TopicRoute:
        """A topic nobody has yet is sent along the route of TBW102, where brokers create it.

        For the time between two polls, so that every broker gets a message and creates it.
        """
        table = self._client.route_table
        default = await table.refresh(AUTO_CREATE_TOPIC)
        if default is None or not publish_queues(topic, default):
            raise NoRoute(
                topic,
                "it does not exist and no broker creates topics;"
                f" create it with: sparrowmq topic create {topic}",
            )
        # Whoever waited for the same route may have put it there
        known = table.get(topic)
        if known is not None:
            return known
        borrowed = cut_route(default, self._default_queues)
        now_s = asyncio.get_running_loop().time()
        table.lend(topic, borrowed, now_s + self._client.config.route_poll_s)
        return borrowed
