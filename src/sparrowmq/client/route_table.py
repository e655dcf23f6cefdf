"""Topic routes as a client sees them: which queues to send to, which to read, where brokers are.

`RouteTable` caches them; `client/route_polls.py` keeps them fresh.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from sparrowmq.client.errors import ClientError, NoRoute
from sparrowmq.client.name_servers import NameServers
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.perm import is_readable, is_writable
from sparrowmq.protocol.route import MASTER_ID, TopicRoute


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues to which a topic can be sent: writable queues of brokers that have a master, by
    name.

    An order configuration replaces the list and keeps a dead broker's queues. Raises NoRoute for an
    order configuration that cannot be parsed.
    """
    if route.order_topic_conf:
        return _ordered_queues(topic, route.order_topic_conf)
    with_master = {b.broker_name for b in route.broker_datas if b.master_addr is not None}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if is_writable(data.perm) and data.broker_name in with_master
        for queue_id in range(data.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """The queues from which a topic can be read."""
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if is_readable(data.perm)
        for queue_id in range(data.read_queue_nums)
    ]


def cut_route(route: TopicRoute, most_queues: int) -> TopicRoute:
    """The route with at most this many queues on each broker."""
    cut = tuple(
        msgspec.structs.replace(
            data,
            read_queue_nums=min(data.read_queue_nums, most_queues),
            write_queue_nums=min(data.write_queue_nums, most_queues),
        )
        for data in route.queue_datas
    )
    return msgspec.structs.replace(route, queue_datas=cut)


def _ordered_queues(topic: str, configuration: str) -> list[MessageQueue]:
    queues = []
    for part in filter(None, configuration.split(";")):
        broker, _, count = part.partition(":")
        if not count.isdecimal():
            text = f"its order configuration {configuration!r} must be like broker-a:4;broker-b:4"
            raise NoRoute(topic, f"{text}; an operator has to fix it at the name servers")
        queues += [MessageQueue(topic, broker, queue_id) for queue_id in range(int(count))]
    return queues


class FoundBroker(NamedTuple):
    """A broker to ask; its id may differ from the requested one."""

    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether it is the master, which keeps the progress of groups."""
        return self.broker_id == MASTER_ID


class RouteTable:
    """Cached routes. They stay usable while every name server is down."""

    def __init__(self, name_servers: NameServers) -> None:
        self._name_servers = name_servers
        self._routes: dict[str, TopicRoute] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._lent_until_s: dict[str, float] = {}
        self._asked: dict[str, asyncio.Future[TopicRoute | None]] = {}
        self._gone: set[str] = set()
        """Topics that had no route when they were last asked for; the last one stays in use."""
        self.changed: list[Callable[[str], None]] = []
        """Called with a topic whose route is new or has changed."""

    def get(self, topic: str) -> TopicRoute | None:
        """The cached route."""
        return self._routes.get(topic)

    async def fetch(self, topic: str) -> TopicRoute | None:
        """The cached route, fetched if there is none; None if the topic does not exist."""
        return self._routes.get(topic) or await self.refresh(topic)

    async def refresh(self, topic: str) -> TopicRoute | None:
        """Ask a name server now. A topic that vanished keeps its last route. Raises NoRoute.

        A caller that asks while a request is in flight shares its answer: a thousand sends to a new
        topic cause one request.
        """
        asked = self._asked.get(topic)
        if asked is None:
            return await self._ask(topic)
        await asyncio.wait((asked,))
        if asked.cancelled():  # that caller gave up
            return await self.refresh(topic)
        try:
            return asked.result()
        finally:
            del asked  # as in NameServers.call

    async def _ask(self, topic: str) -> TopicRoute | None:
        asked = self._asked[topic] = asyncio.get_running_loop().create_future()
        try:
            route = await self._name_servers.route(topic)
            if route is not None:
                self._gone.discard(topic)
                self.put(topic, route)
            elif topic in self._routes:
                self._gone.add(topic)
            asked.set_result(route)
        except ClientError as error:
            asked.set_exception(error)
            asked.exception()  # seen: nothing else may wait for it
            raise
        finally:
            asked.cancel()
            del self._asked[topic], asked
        return route

    def put(self, topic: str, route: TopicRoute) -> None:
        """Store a route, and call the listeners if it differs."""
        for broker in route.broker_datas:
            self._addresses[broker.broker_name] = dict(broker.broker_addrs)
        if self._routes.get(topic) != route:
            self._routes[topic] = route
            for listener in self.changed:
                listener(topic)

    def lend(self, topic: str, route: TopicRoute, until_s: float) -> None:
        """Use another topic's route for one that is about to be created.

        Polls leave it alone until then: the first of them would find the topic on the broker that
        got its first message, and no other broker would ever get one.
        """
        self._lent_until_s[topic] = until_s
        self.put(topic, route)

    def is_lent(self, topic: str, now_s: float) -> bool:
        """Whether the topic uses another topic's route for now."""
        return now_s < self._lent_until_s.get(topic, now_s)

    def master(self, broker_name: str) -> str | None:
        """Address of a broker name's master."""
        return self._addresses.get(broker_name, {}).get(MASTER_ID)

    def find(self, broker_name: str, broker_id: int = MASTER_ID) -> FoundBroker | None:
        """One broker; if there is none with that id the master, and without one the first slave."""
        known = self._addresses.get(broker_name)
        if not known:
            return None
        if broker_id not in known:
            broker_id = min(known)
        return FoundBroker(broker_id, known[broker_id])

    def another(self, broker_name: str, broker_id: int) -> int:
        """Which broker of the name to try when this one failed: a slave after the master, and the
        master after a slave."""
        others = self._addresses.get(broker_name, {}).keys() - {broker_id}
        return min(others, default=MASTER_ID)

    def has_another(self, broker_name: str, broker_id: int) -> bool:
        """Whether the name has a broker besides this one."""
        known = self._addresses.get(broker_name, {})
        return len(known) > 1 or (len(known) == 1 and broker_id not in known)

    def address(self, broker_name: str) -> str | None:
        """Address of a broker name's master, or of a slave if there is no master."""
        found = self.find(broker_name)
        return None if found is None else found.address

    def topics_naming(self, address: str) -> set[str]:
        """Topics whose routes name a broker by this address."""
        return {
            topic
            for topic, route in self._routes.items()
            if any(address in data.broker_addrs.values() for data in route.broker_datas)
        }

    def is_gone(self, topic: str) -> bool:
        """Whether a name server knew no route when it was last asked for the topic's."""
        return topic in self._gone

    def label(self, address: str) -> str:
        """What a log calls the broker at this address."""
        names = (name for name, at in self._addresses.items() if address in at.values())
        name = next(names, None)
        return f"broker {name}" if name is not None else f"the broker at {address}"

    def all_addresses(self) -> list[tuple[str, int, str]]:
        """(broker name, id, address) of every broker any route names."""
        return [
            (name, broker_id, address)
            for name, addresses in self._addresses.items()
            for broker_id, address in addresses.items()
        ]
