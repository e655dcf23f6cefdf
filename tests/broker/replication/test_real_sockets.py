"""HA connections over real sockets, with both event loops."""

import asyncio
import errno
import gc
import logging
import random
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import uvloop

from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.follower import Follower, MasterLink
from sparrowmq.broker.replication.slave_link import SlaveLink
from sparrowmq.broker.server import BrokerServer
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import InlineSyncer
from sparrowmq.net.peers import Peers
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.ha import encode_chunk_head, encode_offset
from sparrowmq.store.store import Store
from tests.patience import PATIENCE_S
from tests.store.stores import message, numbers

LOG = logging.getLogger("replication")
MESSAGES = 2_000


def master_in(folder: Path) -> BrokerServer:
    disk = RealDisk(folder)
    return BrokerServer(
        BrokerConfig(data_dir=folder, port=0),
        disk=disk,
        clock=lambda: 1_000,
        rng=random.Random(1),
        workers=InlineWorkers(),
        syncer=InlineSyncer(disk),
        pid=1,
        log=LOG,
    )


async def copy_log(master: BrokerServer, folder: Path) -> list[int]:
    """The numbers of the messages that a slave gets, chunk by chunk."""
    names = ("127.0.0.1:1",)  # a slave has to have one; this one is given its master
    config = replace(master.config, data_dir=folder, broker_id=1, name_servers=names)
    store = Store.open(config.store_config(1), RealDisk(folder), 1_000, is_copy=True)
    async with asyncio.TaskGroup() as tasks:
        peers = Peers(tasks, log=LOG)
        follower = Follower(config, store, peers, port=1, log=LOG)
        async with asyncio.timeout(PATIENCE_S):
            await follower.copy_from(master.address, until=master.broker.store.max_log_offset)
        await peers.close()
    copied = numbers(store)
    store.close()
    return copied


both_loops = pytest.mark.parametrize(
    "loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


@both_loops
def test_a_slave_copies_the_log(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def main() -> list[int]:
        (tmp_path / "slave").mkdir()
        async with master_in(tmp_path / "master").running() as master:
            for number in range(MESSAGES):
                master.broker.store.append(message(number), 1_000)
            return await copy_log(master, tmp_path / "slave")

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == list(range(MESSAGES))


async def probe(port: int, data: bytes = b"") -> None:
    """Connect as a health check does; one that sends something waits until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if data:
        writer.write(data)
        with suppress(ConnectionResetError):
            await reader.read()
    writer.close()


def links() -> int:
    gc.collect()
    return sum(isinstance(each, SlaveLink) for each in gc.get_objects())


@pytest.mark.slow
@both_loops
def test_short_lived_connections_leave_nothing_in_memory(
    loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    async def main() -> int:
        async with master_in(tmp_path / "master").running() as master:
            for _ in range(50):
                await probe(master.broker.replication.ha_port)
            # It is refused, and closed after all that came before.
            await probe(master.broker.replication.ha_port, encode_offset(0))
            return links()

    before = links()
    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) <= before + 1


class _EndNoted(MasterLink):
    """Says when its connection has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.ended = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set()


@both_loops
def test_chunks_sent_before_a_master_died_are_stored_without_a_report(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A frozen slave finds chunks and the end of the connection together. uvloop raises
    for a write to a connection that has ended, and asyncio does not."""

    async def send_and_die(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for at in range(3):
            writer.write(encode_chunk_head(at, 1) + b"x")
        writer.close()

    async def main() -> list[int]:
        taken = []
        async with await asyncio.start_server(send_and_die, "127.0.0.1", 0) as server:
            host, port = server.sockets[0].getsockname()
            _, link = await asyncio.get_running_loop().create_connection(_EndNoted, host, port)
            async with asyncio.timeout(PATIENCE_S):
                await link.ended.wait()
            with suppress(ConnectionError):
                while (chunk := await link.next_chunk()) is not None:
                    taken.append(chunk.log_offset)
                    link.write(encode_offset(chunk.log_offset + 1))
        link.close()
        return taken

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == [0, 1, 2]


def test_a_port_that_is_taken_is_named_with_its_purpose(tmp_path: Path) -> None:
    """An operator who chose a port may not know that the adjacent ones are used too."""

    async def main(taken: int) -> None:
        server = master_in(tmp_path)
        server.config = replace(server.config, ha_port=taken)
        async with server.running():
            pytest.fail("another process listens there")

    with socket.create_server(("127.0.0.1", 0)) as held, pytest.raises(ExceptionGroup) as raised:
        asyncio.run(main(held.getsockname()[1]))
    (error,) = raised.value.exceptions
    assert isinstance(error, OSError)
    assert error.errno == errno.EADDRINUSE
    assert "(slaves copy from it: --ha-port, or port + 1)" in str(error)
