"""The proxy breaks connections in the documented ways."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tests.faults.proxy import Direction, FaultyProxy
from tests.patience import PATIENCE_S


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1000):
            writer.write(data.upper())
            await writer.drain()
    except ConnectionResetError:
        pass
    finally:
        writer.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, text: bytes) -> bytes:
        self.writer.write(text)
        return await self.reader.readexactly(len(text))


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[FaultyProxy, Client]]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, FaultyProxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        client = Client(*await asyncio.open_connection("127.0.0.1", proxy.port))
        yield proxy, client
        client.writer.close()


Scenario = Callable[[FaultyProxy, Client], Awaitable[None]]


def play(scenario: Scenario) -> None:
    async def run() -> None:
        async with asyncio.timeout(PATIENCE_S), connected() as (proxy, client):
            await scenario(proxy, client)

    asyncio.run(run())


def test_bytes_pass_in_both_directions() -> None:
    async def scenario(proxy: FaultyProxy, client: Client) -> None:
        assert await client.say(b"hello") == b"HELLO"
        assert proxy.accepted == 1

    play(scenario)


@pytest.mark.parametrize("direction", [Direction.BOTH, Direction.TO_SERVER, Direction.TO_CLIENT])
def test_a_partition_holds_bytes_back_until_it_heals(direction: Direction) -> None:
    async def scenario(proxy: FaultyProxy, client: Client) -> None:
        assert await client.say(b"before") == b"BEFORE"
        proxy.partition(direction)
        client.writer.write(b"held")
        waiting = asyncio.ensure_future(client.reader.readexactly(4))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        proxy.heal()
        assert await waiting == b"HELD"

    play(scenario)


def test_a_reset_is_not_an_orderly_close() -> None:
    async def scenario(proxy: FaultyProxy, client: Client) -> None:
        assert await client.say(b"x") == b"X"
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            await client.reader.readexactly(1)

    play(scenario)


def test_refused_connections_are_reset() -> None:
    async def scenario(proxy: FaultyProxy, client: Client) -> None:
        assert await client.say(b"x") == b"X"
        proxy.refuse()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        writer.close()
        assert await client.say(b"y") == b"Y"

    play(scenario)


def test_delay_slows_down_and_loses_nothing() -> None:
    async def scenario(proxy: FaultyProxy, client: Client) -> None:
        proxy.delay_s = proxy.close_delay_s = 0.02
        for number in range(3):
            assert await client.say(b"part %d" % number) == b"PART %d" % number
        client.writer.write_eof()
        assert await client.reader.read() == b""

    play(scenario)
