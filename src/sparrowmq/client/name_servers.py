"""Asking name servers: one at a time, the next when it fails, failing ones ever less often."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from sparrowmq.client.backoff import Backoff
from sparrowmq.client.errors import BrokerRefused, NoRoute
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.route import TopicRoute


class NameServers:
    """The list of name servers, which one is in use, and which ones rest after failures."""

    def __init__(
        self,
        peers: Peers,
        addresses: Sequence[str],
        *,
        first: int = 0,
        timeout_s: float = 3.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._peers = peers
        self._addresses = list(addresses)
        self._current = first % len(self._addresses)
        self._timeout_s = timeout_s
        """For all of them together."""
        self._backoff = backoff if backoff is not None else Backoff()
        self._failures: Counter[int] = Counter()
        self._rests_until_s: dict[int, float] = {}

    @property
    def addresses(self) -> list[str]:
        """All of them."""
        return list(self._addresses)

    async def call(self, header: RequestHeader, body: bytes = b"") -> Response:
        """The answer of the first that answers. Raises the last NetError when none does.

        A silent one leaves the others half of the time that is left.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._timeout_s
        failure: NetError | None = None
        order = self._order(loop.time())
        for index in order:
            left_s = max(0.0, end_s - loop.time())
            limit_s = left_s if index == order[-1] else left_s / 2
            try:
                address = self._addresses[index]
                response = await self._peers.call(address, header, body, timeout_s=limit_s)
            except NetError as error:
                failure = error
                self._leave(index, order, loop.time())
            except asyncio.CancelledError:
                # Nearly always: whoever asked had no more time to wait.
                self._leave(index, order, loop.time())
                raise
            else:
                self._failures.pop(index, None)
                self._rests_until_s.pop(index, None)
                return response
        assert failure is not None
        raise failure

    def _order(self, now_s: float) -> list[int]:
        """The one in use first, then the others in turn; those that rest come last, all the same:
        somebody waits for an answer."""
        count = len(self._addresses)
        turn = [(self._current + step) % count for step in range(count)]
        return sorted(turn, key=lambda index: self._rests_until_s.get(index, now_s) > now_s)

    def _leave(self, index: int, order: Sequence[int], now_s: float) -> None:
        """Go to the next, once: calls that fail together must not go around in a circle."""
        if self._rests_until_s.get(index, now_s) <= now_s:
            self._failures[index] += 1
            self._rests_until_s[index] = now_s + self._backoff.wait_s(self._failures[index])
        if self._current == index:
            self._current = order[(order.index(index) + 1) % len(order)]

    async def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic, None when the name server says that there is none.

        Raises NoRoute when no name server answers, BrokerRefused for any other answer.
        """
        header = GetTopicRoute(topic=topic, accept_standard_json_only=True)
        try:
            response = await self.call(header)
        except NetError as error:
            servers = ", ".join(self._addresses)
            raise NoRoute(topic, f"no name server answers ({servers}): {error}") from error
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            address = self._addresses[self._current]
            raise BrokerRefused(address, response.code, response.remark)
        return TopicRoute.from_json(response.body)
