"""A small server on the simulated network, with handlers for every way to answer."""

import asyncio
import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Limits
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.server import Server
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.simulation import Simulation

PORT = 9876
log = logging.getLogger("tests.net")


class Echo(RequestHeader, frozen=True, kw_only=True):
    """Answered at once, with the same text and body."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_KV_CONFIG

    text: str
    number: int = 0


class Echoed(ResponseHeader, frozen=True, kw_only=True):
    text: str


class Counted(ResponseHeader, frozen=True, kw_only=True):
    number: int
    other: int


class Wait(RequestHeader, frozen=True, kw_only=True):
    """Answered after so many milliseconds, by a task."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MAX_OFFSET

    delay_ms: int


class Keep(RequestHeader, frozen=True, kw_only=True):
    """Kept until the test answers it."""

    CODE: ClassVar[RequestCode] = RequestCode.PULL_MESSAGE


class Fail(RequestHeader, frozen=True, kw_only=True):
    """Its handler has a bug, or refuses."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_MIN_OFFSET

    how: str


class Large(RequestHeader, frozen=True, kw_only=True):
    """Answered with so many bytes."""

    CODE: ClassVar[RequestCode] = RequestCode.VIEW_MESSAGE_BY_ID

    size_bytes: int


class Log:
    """What the handlers saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.kept: list[Request[Keep]] = []
        self.cancelled = 0


routes: Routes[Log] = Routes()


@routes.on(Echo)
def echo(context: Log, request: Request[Echo]) -> Reply:
    context.seen.append(f"{request.connection.peer_host} {request.header.text}")
    return Reply(Echoed(text=request.header.text), request.body)


@routes.on(Wait)
async def wait(context: Log, request: Request[Wait]) -> Reply:
    try:
        await asyncio.sleep(request.header.delay_ms / 1000)
    except asyncio.CancelledError:
        context.cancelled += 1
        raise
    return Reply(Echoed(text="waited"))


@routes.on(Keep)
def keep(context: Log, request: Request[Keep]) -> None:
    context.kept.append(request)


@routes.on(Fail)
def fail(context: Log, request: Request[Fail]) -> Reply | Awaitable[Reply]:
    match request.header.how:
        case "refuse":
            raise RequestRefused(ResponseCode.NO_PERMISSION, "you may not")
        case "late":
            return _raise_late()
        case "unencodable":
            return _unencodable()
        case "unencodable late":
            return _answer_late()
        case how:
            raise KeyError(f"secret of {how}")


async def _raise_late() -> Reply:
    raise KeyError("secret")


async def _answer_late() -> Reply:
    return _unencodable()


def _unencodable() -> Reply:
    return Reply(Counted(number="no number", other=1))  # type: ignore[arg-type]


@routes.on(Large)
def large(context: Log, request: Request[Large]) -> Reply:
    context.seen.append("large")
    return Reply(body=bytes(request.header.size_bytes))


class World:
    """A server on host `server`, its connections and what its handlers saw."""

    def __init__(self, sim: Simulation, limits: Limits) -> None:
        self.sim = sim
        self.log = Log()
        self.closed: list[Connection] = []
        self.in_use: set[Connection] = set()
        self.server: Server[Log]
        self.limits = limits
        self.host = sim.host("server")
        self.host.start(self._serve())
        sim.until_idle()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            self.server = Server(
                self.log,
                routes,
                tasks,
                log=log,
                limits=self.limits,
                closed=self.closed.append,
                is_in_use=lambda connection: connection in self.in_use,
            )
            await self.server.listen("0.0.0.0", PORT)
            try:
                await asyncio.Event().wait()
            finally:
                await self.server.close()

    def run(self, work: Any, host: str = "client") -> Any:
        """Run a coroutine of a client to its end."""
        return self.sim.run(work, on=self.sim.host(host))


@contextmanager
def world(seed: int = 1, whole: float = 0.5, **limits: Any) -> Iterator[World]:
    """A running server; `whole` says how often the network does not cut what is sent."""
    conditions = Conditions(latency_s=(0.001, 0.001), whole=whole)
    with Simulation(seed, conditions=conditions) as sim:
        yield World(sim, Limits(**limits))


class Calling:
    """Peers for the length of a block."""

    def __init__(self, **options: Any) -> None:
        self._options = options

    async def __aenter__(self) -> Peers:
        self._tasks = asyncio.TaskGroup()
        await self._tasks.__aenter__()
        self.peers = Peers(self._tasks, log=log, **self._options)
        return self.peers

    async def __aexit__(self, *error: Any) -> None:
        await self.peers.close()
        await self._tasks.__aexit__(None, None, None)
