"""The queues of topics in the whole cluster, for brokers that assign queues to members."""

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.topics import Topics
from sparrowmq.clock import Clock
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.perm import is_readable
from sparrowmq.protocol.route import TopicRoute

_CALL_S = 3.0
_FRESH_MS = 30_000
"""As old as a client's own route may be (pollNameServerInterval)."""
_MOST_ROUTES = 10_000
Queues = tuple[MessageQueue, ...]


class ClusterQueues:
    """Asks name servers when needed. Without any, only the topics of this broker are known."""

    def __init__(self, config: BrokerConfig, topics: Topics, peers: Peers, clock: Clock) -> None:
        self._name_servers = config.name_servers
        self._broker_name = config.broker_name
        self._topics = topics
        self._peers = peers
        self._clock = clock
        self._known: dict[str, tuple[int, Queues]] = {}

    async def queues_of(self, topic: str) -> Queues | None:
        """The sorted queues that can be read; None if the topic has no route.

        If no name server answers, the last known queues: a member that gets fewer queues would drop
        the others.
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
