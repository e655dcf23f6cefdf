"""What the broker exchanges with name servers: it registers itself, and asks for queues of topics.

Every name server learns what this broker has: at the start, after every change of a topic, and
every 30 s. A name server that was lost is tried every two seconds, so that routes are complete soon
after it is back.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.topics import Topics
from sparrowmq.clock import Clock
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.nameserver import GetTopicRoute, RegisterBroker, UnregisterBroker
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.perm import is_readable
from sparrowmq.protocol.registration import RegisterBrokerBody, body_checksum
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.protocol.topic_config import RegisteredTopics

_CALL_S = 3.0
_AGAIN_S = 2.0
"""How often a name server that was lost is tried."""
_FRESH_MS = 30_000
"""As old as a client's own route may be (pollNameServerInterval)."""
_MOST_ROUTES = 10_000
Queues = tuple[MessageQueue, ...]


class BrokerRegistration:
    """Registers this broker with all name servers, also with those that come back."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: Topics,
        peers: Peers,
        *,
        port: int,
        log: logging.Logger,
    ) -> None:
        self._config = config
        self.topics = topics
        self._peers = peers
        self._address = config.address(port)
        self._ha_address = config.address(config.ha_port)
        self._log = log
        self._unreached: set[str] = set()
        self._has_unregistered = False

    async def run(self) -> None:
        """Register for ever, and soon after every change of a topic: changes that come together
        share one round."""
        while True:
            self.topics.changed.clear()
            await self.register_everywhere()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._config.register_interval_s):
                    await self._watch()

    async def _watch(self) -> None:
        """Until a topic changes, register with name servers that were lost."""
        while not self.topics.changed.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await self.topics.changed.wait()
            lost = set(self._config.name_servers) - set(self._peers.known()) | self._unreached
            if lost:
                await self._register_with(sorted(lost))

    async def register_everywhere(self) -> None:
        """One round. Name servers that cannot be reached are reported and tried again by `run`."""
        await self._register_with(self._config.name_servers)

    async def _register_with(self, servers: Iterable[str]) -> None:
        table = self.topics.table()
        topics = RegisteredTopics(
            topic_config_table=table.topic_config_table, data_version=table.data_version
        )
        body = RegisterBrokerBody(topics=topics).encode(compressed=False)
        header = RegisterBroker(
            cluster_name=self._config.cluster_name,
            broker_name=self._config.broker_name,
            broker_id=self._config.broker_id,
            broker_addr=self._address,
            ha_server_addr=self._ha_address,
            enable_acting_master=False,
            compressed=False,
            body_crc32=body_checksum(body),
        )
        await asyncio.gather(*(self._register(server, header, body) for server in servers))

    async def _register(self, server: str, header: RegisterBroker, body: bytes) -> None:
        if self._has_unregistered:
            return  # clients would come back to a broker that is about to end
        try:
            response = await self._peers.call(server, header, body, timeout_s=_CALL_S)
        except NetError as error:
            self._report_failure(server, str(error))
            return
        if response.code != ResponseCode.SUCCESS:
            self._report_failure(server, response.remark)
        elif server in self._unreached:
            self._unreached.discard(server)
            self._log.info("registered with name server %s again", server)

    def _report_failure(self, server: str, reason: str) -> None:
        """Once per outage: a name server may be down for days."""
        if server not in self._unreached:
            self._unreached.add(server)
            self._log.warning("cannot register with name server %s: %s", server, reason)

    async def unregister(self) -> None:
        """Leave all name servers, for good, so that clients stop coming at once."""
        self._has_unregistered = True
        header = UnregisterBroker(
            cluster_name=self._config.cluster_name,
            broker_name=self._config.broker_name,
            broker_id=self._config.broker_id,
            broker_addr=self._address,
        )
        known = [server for server in self._config.name_servers if server not in self._unreached]
        for server in known:
            with suppress(NetError):
                await self._peers.call(server, header, timeout_s=1.0)


class ClusterQueues:
    """Asks name servers when needed. Without one, this broker's topics are all there is."""

    def __init__(self, config: BrokerConfig, topics: Topics, peers: Peers, clock: Clock) -> None:
        self._name_servers = config.name_servers
        self._broker_name = config.broker_name
        self._topics = topics
        self._peers = peers
        self._clock = clock
        self._known: dict[str, tuple[int, Queues]] = {}

    async def queues_of(self, topic: str) -> Queues | None:
        """The sorted queues that can be read; None when the topic has no route.

        While no name server answers, the last known ones: a member that gets fewer queues would
        drop the others.
        """
        if not self._name_servers:
            return self._topics.read_queues(topic, self._broker_name)
        known = self._known.get(topic)
        if known is not None and self._clock() - known[0] < _FRESH_MS:
            return known[1]
        for server in self._name_servers:
            try:
                answer = await self._peers.call(
                    server, GetTopicRoute(topic=topic), timeout_s=_CALL_S
                )
                return self._learn(topic, answer.code, answer.body)
            except (NetError, BodyError):
                continue
        return None if known is None else known[1]

    def _learn(self, topic: str, code: int, body: bytes) -> Queues | None:
        if code != ResponseCode.SUCCESS:
            self._known.pop(topic, None)
            return None
        queues = tuple(
            sorted(
                MessageQueue(topic, data.broker_name, queue_id)
                for data in TopicRoute.from_json(body).queue_datas
                if is_readable(data.perm)
                for queue_id in range(data.read_queue_nums)
            )
        )
        if len(self._known) >= _MOST_ROUTES:
            self._known.clear()
        self._known[topic] = (self._clock(), queues)
        return queues
