"""The queues of a topic on all brokers, as the name servers know them."""

from collections.abc import Callable, Sequence

from sparrowmq.clock import Clock
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.perm import is_readable
from sparrowmq.protocol.route import TopicRoute

Queues = tuple[MessageQueue, ...]

_FRESH_MS = 30_000
"""As old as a client's own route may be (pollNameServerInterval)."""
_CALL_S = 3.0
_MOST_ROUTES = 10_000


class TopicRoutes:
    """Routes, asked for when needed. `own_queues` is all there is without a name server."""

    def __init__(
        self,
        name_servers: Sequence[str],
        peers: Peers,
        *,
        clock: Clock,
        own_queues: Callable[[str], Queues | None],
    ) -> None:
        self._name_servers = name_servers
        self._peers = peers
        self._clock = clock
        self._own_queues = own_queues
        self._known: dict[str, tuple[int, Queues]] = {}

    async def queues_of(self, topic: str) -> Queues | None:
        """The sorted queues that can be read; None when the topic has no route.

        While no name server answers, the last known ones: a member that is told of fewer queues
        would drop the others.
        """
        if not self._name_servers:
            return self._own_queues(topic)
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
