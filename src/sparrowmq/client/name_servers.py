"""Asking name servers: one at a time, and the next one if it fails."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from sparrowmq.backoff import Backoff
from sparrowmq.client.errors import MasterAway, NameServerRefused, NoNameServer, NoRoute
from sparrowmq.client.outage_log import Outages
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ROUTE_LOST, ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import GetClusterInfo, GetTopicRoute
from sparrowmq.protocol.route import ClusterInfo, TopicRoute

T = TypeVar("T")

NOT_A_NAME_SERVER = "is not a name server, but perhaps a broker"
NAME_SERVER_PORT = "name servers listen on port 9876 by default"

_LAST_LOOK_S = 0.05
"""The last request of a waiting caller starts when this much time is left, or earlier."""
_NO_TIME_S = 1e-6
"""Rounding errors are smaller than this: so short a pause would not end in virtual time."""


class NameServers:
    """The list of name servers and which one is in use."""

    def __init__(
        self,
        peers: Peers,
        addresses: Sequence[str],
        *,
        origin: str = "the argument name_servers",
        outages: Outages | None = None,
        first: int = 0,
        timeout_s: float = 3.0,
    ) -> None:
        """`origin` says where the addresses come from, for the error when none answers."""
        self._peers = peers
        self._addresses = list(addresses)
        self.origin = origin
        self._outages = outages
        many = len(self._addresses) > 1
        self._label = f"{'every' if many else 'the'} name server ({', '.join(addresses)})"
        self._current = first
        self._timeout_s = timeout_s
        """For all of them together."""

    @property
    def addresses(self) -> list[str]:
        """The addresses of all name servers."""
        return list(self._addresses)

    async def call(self, header: RequestHeader, body: bytes = b"") -> Response:
        """The answer of the first that answers. Raises the last NetError if none does.

        A silent one uses half of the remaining time, and leaves the rest to the others.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + self._timeout_s
        failure: NetError | None = None
        count = len(self._addresses)
        first = self._current
        for step in range(count):
            index = (first + step) % count
            left_s = max(0.0, end_s - loop.time())
            limit_s = left_s if step == count - 1 else left_s / 2
            try:
                address = self._addresses[index]
                response = await self._peers.call(address, header, body, timeout_s=limit_s)
                _check_kind(address, header, response)
                if self._outages is not None:
                    self._outages.reached(self._label)
                return response
            except NetError as error:
                failure = error
                self._leave(index)
            except asyncio.CancelledError:
                self._leave(index)  # nearly always: the caller had no more time to wait
                raise
        assert failure is not None
        if self._outages is not None:
            self._outages.failed(self._label, failure)
        try:
            raise failure
        finally:
            del failure  # or it, this frame and a caller's message would keep each other

    def _leave(self, index: int) -> None:
        """Switch to the next, once: calls that fail together must not go around in a circle."""
        if self._current == index:
            self._current = (index + 1) % len(self._addresses)

    def away(self, failure: str, topic: str) -> NoNameServer:
        """The error for a request that none of them answered."""
        return NoNameServer(topic, self._addresses, self.origin, failure)

    async def patiently(
        self,
        ask: Callable[[], Awaitable[T]],
        *,
        topic: str,
        limit_s: float,
        rng: random.Random,
    ) -> T:
        """Call `ask` and return its result. It is repeated, with growing pauses, while no name
        server answers or all masters are away: a server that restarts is away for seconds. Raises
        the last NoNameServer or MasterAway when time is up."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + limit_s
        backoff = Backoff(0.1, 1.0, rng)
        last: NoNameServer | MasterAway | None = None
        failures = 0
        try:
            while True:
                try:
                    async with asyncio.timeout_at(end_s):
                        return await ask()
                except (NoNameServer, MasterAway) as error:
                    last = error
                except TimeoutError:
                    raise last or self.away(f"no answer within {limit_s:g} s", topic) from None
                failures += 1
                latest_s = end_s - loop.time() - _LAST_LOOK_S
                if latest_s < _NO_TIME_S:
                    raise last
                await asyncio.sleep(min(latest_s, backoff.wait_s(failures)))
        finally:
            del last  # as in `call`

    async def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic; None if the name server answers that there is none.

        Raises NoNameServer if none answers, NoRoute if the answer is not a valid route, and
        NameServerRefused for any other answer.
        """
        header = GetTopicRoute(topic=topic, accept_standard_json_only=True)
        try:
            response = await self.call(header)
        except NetError as error:
            raise self.away(str(error), topic) from error
        if response.code == ResponseCode.TOPIC_NOT_EXIST:
            return None
        if response.code != ResponseCode.SUCCESS:
            address = self._addresses[self._current]
            raise NameServerRefused(address, response.code, response.remark)
        try:
            return TopicRoute.from_json(response.body)
        except ProtocolError as error:
            raise NoRoute(topic, f"a name server's answer is not a route: {error}") from error

    async def lost_route(self, topic: str) -> str:
        """What happened to the brokers that had a topic; empty if the name server knows of none.

        For the error about a topic without a route: its brokers may be away.
        """
        try:
            response = await self.call(GetTopicRoute(topic=topic, accept_standard_json_only=True))
        except NetError:
            return ""
        return response.remark if response.remark.startswith(ROUTE_LOST) else ""

    async def know_brokers(self) -> bool:
        """Whether any broker is registered. For the same error: a name server that has just started
        knows none. True where that is not known."""
        try:
            response = await self.call(GetClusterInfo())
            if response.code != ResponseCode.SUCCESS:
                return True
            return bool(ClusterInfo.from_json(response.body).broker_addr_table)
        except (NetError, ProtocolError):
            return True


def _check_kind(address: str, header: RequestHeader, response: Response) -> None:
    """Raises NetError for a server without routes: people mix up the addresses of brokers and name
    servers, and the next address may be right."""
    if not isinstance(header, GetTopicRoute):
        return  # name servers differ in what else they know
    if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        text = f"{address} {NOT_A_NAME_SERVER} ({response.remark}); {NAME_SERVER_PORT}"
        raise NetError(text)
