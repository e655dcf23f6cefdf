"""`sparrowmq.testing.cluster`: real servers in this process, for users' tests."""

import asyncio
import errno
import gc
import socket
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvloop

from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.broker.replication.log_description import LogDescription
from sparrowmq.clock import system_clock
from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.headers.replication import DescribeLog
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.errors import StoreError
from sparrowmq.testing import async_cluster, cluster, local_cluster
from sparrowmq.testing.held_port import LOOPBACK, HeldPort
from sparrowmq.testing.wire import Refused, Wire, wire
from tests.patience import PATIENCE_S

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def new_loop(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    """Servers and clients of the test run on asyncio's loop, then on uvloop."""
    return LOOPS[request.param]


def cluster_threads() -> set[threading.Thread]:
    """Threads with the loop of a cluster; brokers start others when they need them."""
    return {thread for thread in threading.enumerate() if thread.name == "sparrowmq cluster"}


def talk(
    scenario: Callable[[Wire], Coroutine[Any, Any, None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> None:
    async def with_wire() -> None:
        async with wire("test", system_clock, PATIENCE_S) as connections:
            await scenario(connections)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(with_wire())


def test_what_is_sent_is_pulled(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with cluster(loop_factory=new_loop) as running:
        (address,) = running.broker_addresses.values()

        async def scenario(connections: Wire) -> None:
            bodies = [bytes([number]) * 1000 for number in range(50)]
            for body in bodies:
                await connections.send(address, "orders", body)
            result = await connections.pull(address, "orders", count=100)
            assert result.bodies == bodies

        talk(scenario, new_loop)


def test_large_messages_come_back_whole(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with cluster(loop_factory=new_loop) as running:
        (address,) = running.broker_addresses.values()

        async def scenario(connections: Wire) -> None:
            body = bytes(range(256)) * 4 * 3900
            await asyncio.gather(
                *(connections.send(address, "big", body, queue_id=queue) for queue in range(4))
            )
            for queue in range(4):
                result = await connections.pull(address, "big", queue_id=queue)
                assert result.bodies == [body]

        talk(scenario, new_loop)


def test_a_waiting_pull_wakes(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with cluster(loop_factory=new_loop) as running:
        (address,) = running.broker_addresses.values()

        async def scenario(connections: Wire) -> None:
            await connections.send(address, "orders", b"first")
            async with (
                asyncio.TaskGroup() as tasks,
                wire("consumer", system_clock, PATIENCE_S) as consumer,
            ):
                pull = tasks.create_task(
                    consumer.pull(address, "orders", offset=1, wait_s=PATIENCE_S)
                )
                await asyncio.sleep(0)
                await connections.send(address, "orders", b"second")
                assert (await pull).bodies == [b"second"]

        talk(scenario, new_loop)


def test_the_name_server_knows_every_broker(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with cluster(brokers=3, loop_factory=new_loop) as running:
        assert list(running.broker_addresses) == ["broker-a", "broker-b", "broker-c"]

        async def scenario(connections: Wire) -> None:
            route = await connections.call(running.name_server, GetTopicRoute(topic="TBW102"))
            brokers = TopicRoute.from_json(route.body).broker_datas
            assert {each.broker_name: each.master_addr for each in brokers} == (
                running.broker_addresses
            )

        talk(scenario, new_loop)


def test_a_broker_can_be_stopped_and_restarted_on_its_store(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with cluster(loop_factory=new_loop) as running:
        before = running.broker_addresses
        address = before["broker-a"]

        async def send(connections: Wire) -> None:
            await connections.send(address, "orders", b"kept")

        async def find_nobody(connections: Wire) -> None:
            with pytest.raises(ConnectionLost):
                await connections.pull(address, "orders")

        async def pull(connections: Wire) -> None:
            assert (await connections.pull(address, "orders")).bodies == [b"kept"]

        talk(send, new_loop)
        running.stop_broker("broker-a")
        talk(find_nobody, new_loop)
        running.start_broker("broker-a")
        assert running.broker_addresses == before
        talk(pull, new_loop)


def test_a_topic_is_created_with_its_queues_on_every_broker(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with cluster(brokers=2, loop_factory=new_loop) as running:
        running.create_topic("orders", queues=3)

        async def scenario(connections: Wire) -> None:
            answer = await connections.call(running.name_server, GetTopicRoute(topic="orders"))
            queues = TopicRoute.from_json(answer.body).queue_datas
            assert [(each.broker_name, each.write_queue_nums) for each in queues] == [
                ("broker-a", 3),
                ("broker-b", 3),
            ]

        talk(scenario, new_loop)
        with pytest.raises(ValueError, match="characters that are not allowed"):
            running.create_topic("a topic")


def test_starting_or_stopping_the_wrong_broker_raises_the_reason() -> None:
    with cluster() as running:
        with pytest.raises(ValueError, match=r"no broker is called 'broker-x'.*broker-a"):
            running.stop_broker("broker-x")
        with pytest.raises(RuntimeError, match="broker-a runs already"):
            running.start_broker("broker-a")
        running.stop_broker("broker-a")
        with pytest.raises(RuntimeError, match="broker-a does not run"):
            running.stop_broker("broker-a")


def test_a_temporary_directory_is_deleted_and_a_given_one_stays(tmp_path: Path) -> None:
    with cluster() as running:
        temporary = running.data_dir
        assert (temporary / "broker-a").is_dir()
    assert not temporary.exists()
    for expected in ([], [b"kept"]):
        with cluster(data_dir=tmp_path) as running:
            assert running.data_dir == tmp_path
            address = running.broker_addresses["broker-a"]

            async def look_and_send(
                connections: Wire, address: str = address, expected: list[bytes] = expected
            ) -> None:
                if expected:
                    assert (await connections.pull(address, "orders")).bodies == expected
                await connections.send(address, "orders", b"kept")

            talk(look_and_send)
    assert (tmp_path / "broker-a").is_dir()


def test_two_clusters_do_not_meet() -> None:
    with cluster() as one, cluster() as other:
        assert one.name_server != other.name_server
        assert one.broker_addresses != other.broker_addresses
        assert one.data_dir != other.data_dir


def test_settings_reach_the_brokers_and_wrong_ones_are_named() -> None:
    async def scenario() -> None:
        async with async_cluster(default_queues=3) as running:
            async with wire("test", system_clock, PATIENCE_S) as connections:
                route = await connections.call(running.name_server, GetTopicRoute(topic="TBW102"))
            (queues,) = TopicRoute.from_json(route.body).queue_datas
            assert queues.write_queue_nums == 3

    asyncio.run(scenario())
    with pytest.raises(TypeError, match="no_such_setting"), cluster(no_such_setting=1):
        pass
    with pytest.raises(ValueError, match="brokers is 0"):
        cluster(brokers=0)


def test_a_cluster_that_cannot_start_raises_the_reason_and_leaves_nothing_behind() -> None:
    before = set(threading.enumerate())
    with cluster() as running:
        taken = int(running.broker_addresses["broker-a"].rpartition(":")[2])
        during = cluster_threads()
        with pytest.raises(OSError, match="in use"), cluster(port=taken, vip_alias=False):
            pass
        assert cluster_threads() == during
    # Not counted: a thread of an earlier test may end meanwhile.
    assert set(threading.enumerate()) <= before


def test_a_broker_that_gets_only_one_of_its_ports_releases_it() -> None:
    with HeldPort(beside=(-2,)) as held, socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((LOOPBACK, held.port - 2))
        taken.listen()
        with pytest.raises(OSError, match="in use"), cluster(port=held.port, vip_alias=True):
            pass
        gc.collect()  # a socket left open is an error of this test, not of some other
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((LOOPBACK, held.port))


def test_an_error_in_the_block_is_raised_unchanged() -> None:
    async def scenario() -> None:
        async with async_cluster():
            raise LookupError("the test's own")

    with pytest.raises(LookupError):
        asyncio.run(scenario())
    with pytest.raises(LookupError), cluster():
        raise LookupError("the test's own")


def test_the_async_cluster_runs_on_the_loop_of_the_test() -> None:
    async def scenario() -> None:
        async with (
            async_cluster() as running,
            wire("test", system_clock, PATIENCE_S) as connections,
        ):
            address = running.broker_addresses["broker-a"]
            await connections.send(address, "orders", b"hello")
            await running.stop_broker("broker-a")
            await running.start_broker("broker-a")
            assert (await connections.pull(address, "orders")).bodies == [b"hello"]
            assert cluster_threads() == threads

    threads = cluster_threads()
    asyncio.run(scenario())


class BrokenSyncer:
    """A disk that never gets anything safe."""

    async def sync(self, plan: SyncPlan) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    def close(self) -> None:
        pass


def test_a_broker_that_fails_ends_the_block_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_cluster, "syncer_for", lambda disk: BrokenSyncer())

    async def scenario() -> None:
        async with async_cluster(flush=Flush.SYNC) as running:
            async with wire("test", system_clock, PATIENCE_S) as connections:
                with suppress(Refused, ConnectionLost):
                    await connections.send(running.broker_addresses["broker-a"], "orders", b"x")
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(scenario())
    assert caught.group_contains(StoreError, match="disk is broken")


async def log_of(connections: Wire, address: str) -> LogClaim:
    answer = await connections.call(address, DescribeLog())
    return LogDescription.from_json(answer.body).claim


def test_slaves_follow_when_the_block_begins_and_after_they_were_away() -> None:
    async def scenario() -> None:
        async with (
            async_cluster(brokers=2, slaves=1, replication=ReplicationMode.SYNC) as running,
            wire("test", system_clock, PATIENCE_S) as connections,
        ):
            addresses = running.broker_addresses
            assert list(addresses) == ["broker-a", "broker-b", "broker-a.1", "broker-b.1"]
            await connections.send(addresses["broker-a"], "orders", b"two copies")
            await running.stop_broker("broker-a.1")
            with pytest.raises(Refused) as refused:
                await connections.send(addresses["broker-a"], "orders", b"one copy")
            assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE
            await running.start_broker("broker-a.1")
            await connections.send(addresses["broker-a"], "orders", b"two copies again")
            logs = [
                await log_of(connections, addresses[name]) for name in ("broker-a", "broker-a.1")
            ]
            assert logs[0].end == logs[1].end > 0, "acknowledged, and not on the slave"

    asyncio.run(scenario())


def test_a_slave_whose_next_messages_have_expired_starts_again_empty(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    small = StoreConfig(log_file_size=64 * 1024)

    async def scenario() -> None:
        async with (
            async_cluster(
                slaves=1, data_dir=tmp_path, store=small, replication=ReplicationMode.SYNC
            ) as running,
            wire("test", system_clock, PATIENCE_S) as connections,
        ):
            address = running.broker_addresses["broker-a"]
            await connections.send(address, "orders", b"on both")
            await running.stop_broker("broker-a.1")
            for _ in range(3):
                with pytest.raises(Refused):
                    await connections.send(address, "orders", bytes(40_000))
            await running.stop_broker("broker-a")
            (tmp_path / "broker-a" / "commitlog" / f"{0:020}").unlink()
            await running.start_broker("broker-a")
            before = running.broker_addresses["broker-a.1"]
            await running.start_broker("broker-a.1")
            assert running.broker_addresses["broker-a.1"] == before
            assert (await log_of(connections, before)).begin == small.log_file_size

    with caplog.at_level("INFO", "sparrowmq.testing.broker-a.1"):
        asyncio.run(scenario())
    assert (tmp_path / "broker-a.1" / "aside-1" / "commitlog" / f"{0:020}").exists()
    (line,) = [text for text in caplog.messages if text.startswith("starting again")]
    assert "the old one goes to aside-1" in line


def test_a_number_of_slaves_below_zero_is_named() -> None:
    with pytest.raises(ValueError, match="slaves is -1, must be 0 or more"):
        cluster(slaves=-1)
