"""The simulated network obeys the same tests as real sockets, on asyncio's loop and on uvloop."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import pytest
import uvloop

from sparrowmq.testing.simulation import Simulation

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]
MEGABYTE = 1024 * 1024


class Peer(asyncio.Protocol):
    """Keeps what happens to it; `until` waits for it to look a certain way."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.received = bytearray()
        self.events: list[str] = []
        self.lost_by: list[Exception | None] = []
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    async def until_event(self, event: str) -> None:
        await self.until(lambda: event in self.events)

    def note(self, event: str) -> None:
        self.events.append(event)
        self._changed.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have no common base class with asyncio's
        self.transport = cast(asyncio.Transport, transport)
        self.note("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._changed.set()

    def eof_received(self) -> None:
        self.note("eof")

    def pause_writing(self) -> None:
        self.note("pause")

    def resume_writing(self) -> None:
        self.note("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_by.append(exc)
        self.note("lost")


class OneByOne(Peer):
    """Reads a piece and waits to be asked for the next."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.pause_reading()


@asynccontextmanager
async def connected(kind: type[Peer] = Peer) -> AsyncIterator[tuple[Peer, Peer]]:
    """A client and the server's side of its connection."""
    loop = asyncio.get_running_loop()
    accepted: asyncio.Future[Peer] = loop.create_future()

    def accept() -> Peer:
        accepted.set_result(peer := kind())
        return peer

    server = await loop.create_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    _, client = await loop.create_connection(Peer, "127.0.0.1", port)
    assert client.events == ["made"]
    theirs = await accepted
    await theirs.until_event("made")
    server.close()
    await server.wait_closed()
    try:
        yield client, theirs
    finally:
        for peer in (client, theirs):
            peer.transport.abort()
            await peer.until_event("lost")


@pytest.fixture(params=["simulated", "asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run_it(scenario: Coroutine[Any, Any, None]) -> None:
        if request.param == "simulated":
            with Simulation(seed=random.Random(request.node.name).randrange(1000)) as sim:
                sim.run(scenario)
            return
        factory = uvloop.new_event_loop if request.param == "uvloop" else None
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(scenario)

    return run_it


def test_bytes_arrive_in_order_followed_by_the_end_of_the_stream(run: Run[None]) -> None:
    async def scenario() -> None:
        async with connected() as (client, server):
            data = random.Random(1).randbytes(3 * MEGABYTE)
            client.transport.write(data[:10])
            client.transport.write(data[10:])
            client.transport.close()
            assert client.transport.is_closing()
            await server.until_event("lost")
            await client.until_event("lost")
            assert bytes(server.received) == data
            assert server.events == ["made", "eof", "lost"]
            assert server.lost_by == client.lost_by == [None]

    run(scenario())


def test_an_aborted_connection_ends_at_both_sides(run: Run[None]) -> None:
    async def scenario() -> None:
        async with connected() as (client, server):
            client.transport.abort()
            assert client.events == ["made"], "reported later, not inside abort"
            await client.until_event("lost")
            await server.until_event("lost")
            assert client.lost_by == [None]

    run(scenario())


def test_a_reader_that_pauses_pauses_the_writer(run: Run[None]) -> None:
    async def scenario() -> None:
        async with connected() as (client, server):
            client.transport.set_write_buffer_limits(high=100_000, low=10_000)
            server.transport.pause_reading()
            data = random.Random(2).randbytes(16 * MEGABYTE)
            client.transport.write(data)
            assert client.events == ["made", "pause"]
            assert client.transport.get_write_buffer_size() > 100_000
            server.transport.resume_reading()
            await client.until_event("resume")
            assert client.transport.get_write_buffer_size() <= 10_000
            await server.until(lambda: len(server.received) == len(data))
            assert bytes(server.received) == data

    run(scenario())


def test_pausing_inside_a_read_stops_the_next_one(run: Run[None]) -> None:
    async def scenario() -> None:
        async with connected(OneByOne) as (client, server):
            client.transport.write(bytes(MEGABYTE))
            client.transport.close()
            await server.until(lambda: bool(server.received))
            while len(server.received) < MEGABYTE:
                had = len(server.received)
                await asyncio.sleep(0)
                assert len(server.received) == had
                server.transport.resume_reading()
                await server.until(lambda had=had: len(server.received) > had)  # type: ignore[misc]
            assert "eof" not in server.events
            server.transport.resume_reading()
            await server.until_event("lost")

    run(scenario())


def test_nothing_is_read_after_closing(run: Run[None]) -> None:
    class Closer(Peer):
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            assert self.events == ["made"]
            self.transport.close()

    async def scenario() -> None:
        async with connected(Closer) as (client, server):
            client.transport.write(b"first")
            await server.until_event("lost")
            await client.until_event("lost")
            assert b"first".startswith(server.received)
            assert server.events == ["made", "lost"]

    run(scenario())


def test_closing_with_unread_bytes_resets_the_peer(run: Run[None]) -> None:
    async def scenario() -> None:
        async with connected(OneByOne) as (client, server):
            client.transport.write(bytes(MEGABYTE))
            await server.until(lambda: bool(server.received))
            server.transport.close()
            await client.until_event("lost")
            (error,) = client.lost_by
            assert isinstance(error, ConnectionError)

    run(scenario())


def test_a_port_without_a_listener_refuses_connections(run: Run[None]) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Peer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            await loop.create_connection(Peer, "127.0.0.1", port)

    run(scenario())


def test_a_taken_port_cannot_be_listened_on(run: Run[None]) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Peer, "127.0.0.1", 0)
        with pytest.raises(OSError):
            await loop.create_server(Peer, "127.0.0.1", server.sockets[0].getsockname()[1])
        server.close()
        await server.wait_closed()

    run(scenario())


def test_both_ends_know_the_addresses(run: Run[None]) -> None:
    async def scenario() -> None:
        async with connected() as (client, server):
            mine, theirs = client.transport, server.transport
            assert mine.get_extra_info("peername") == theirs.get_extra_info("sockname")
            assert mine.get_extra_info("sockname") == theirs.get_extra_info("peername")
            assert mine.get_extra_info("peername")[0] == "127.0.0.1"
            assert mine.get_extra_info("nothing of that name", "default") == "default"

    run(scenario())


def test_write_buffer_limits_have_sense(run: Run[None]) -> None:
    async def scenario() -> None:
        async with connected() as (client, _):
            assert client.transport.get_write_buffer_size() == 0
            with pytest.raises(ValueError):
                client.transport.set_write_buffer_limits(high=10, low=20)
            with pytest.raises(TypeError):
                client.transport.write("text")  # type: ignore[arg-type]

    run(scenario())
