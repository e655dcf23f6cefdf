"""Slaves that were not admitted, lie, stall or fail: their master logs it and keeps serving."""

import errno
from collections.abc import Iterator
from typing import Any

import pytest

from sparrowmq.broker.config import Flush, ReplicationMode, ReplicationPeer
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.ha import encode_offset, encode_token
from sparrowmq.protocol.headers.replication import RetireSlave
from sparrowmq.store.commit_log import CommitLog
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.wire import Refused
from tests.broker.replication.fake_slave import FakeSlave
from tests.faults.replication_planted import count_connections

TOPIC = "orders"


@pytest.fixture
def sim() -> Iterator[RunningCluster]:
    """A master without slaves, whose sends want two copies."""
    with SimCluster(replication=ReplicationMode.SYNC, slave_timeout_s=1.0).run() as sim:
        yield sim


def send(sim: RunningCluster, body: bytes = b"a message") -> int:
    """The code that a send is answered with."""
    try:
        sim.wait(sim.client.send(TOPIC, body))
    except Refused as refused:
        return refused.code
    return ResponseCode.SUCCESS


def check_refused(
    sim: RunningCluster, slave: FakeSlave, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    sim.until(lambda: slave.is_closed)
    assert text in caplog.text
    assert not sim.broker.replication.feed.links
    assert send(sim) == ResponseCode.SLAVE_NOT_AVAILABLE


def test_a_slave_without_a_token_is_not_fed(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect(encode_offset(0))
    check_refused(sim, slave, caplog, "follows without having said hello")
    assert slave.received == 0


def test_an_unknown_slave_with_a_longer_log_is_never_sent_data_from_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(replication_peer=ReplicationPeer.APACHE).run() as sim:
        sim.wait(sim.client.send(TOPIC, b"a message"))
        end = sim.broker.store.max_log_offset
        for _ in range(2):  # the second time it lies inside of the log
            slave = FakeSlave(sim, 1)
            slave.connect(encode_offset(end + 100))
            sim.until(lambda: slave.is_closed)  # noqa: B023
            assert slave.received == 0
            sim.wait(sim.client.send(TOPIC, bytes(1_000)))
        assert "it has to start with an empty directory" in caplog.text
        fits = FakeSlave(sim, 2)
        fits.connect(encode_offset(end))
        sim.until(lambda: bool(fits.bodies))


@pytest.mark.parametrize("token", [bytes(16), b"\xff" * 16])
def test_a_guessed_token_is_not_accepted(
    token: bytes, sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    slave = FakeSlave(sim, 1)
    slave.hello()
    slave.connect(encode_token(token), encode_offset(0))
    check_refused(sim, slave, caplog, "follows without having said hello")


def test_a_token_expires_after_ten_seconds(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    slave = FakeSlave(sim, 1)
    token = slave.hello()
    sim.advance(11)
    slave.connect(encode_token(token), encode_offset(0))
    check_refused(sim, slave, caplog, "too late after it")


def test_a_token_works_once(sim: RunningCluster, caplog: pytest.LogCaptureFixture) -> None:
    first, second = FakeSlave(sim, 1), FakeSlave(sim, 2)
    token = first.hello()
    first.connect(encode_token(token), encode_offset(0))
    sim.until(lambda: 1 in sim.broker.replication.feed.links)
    second.connect(encode_token(token), encode_offset(0))
    sim.until(lambda: second.is_closed)
    assert "follows without having said hello" in caplog.text
    assert list(sim.broker.replication.feed.links) == [1]


def test_a_token_is_void_when_its_slave_was_retired(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    slave = FakeSlave(sim, 1)
    token = slave.hello()
    retired = sim.wait(sim.client.call(RetireSlave(broker_id=1)))
    assert retired.code == ResponseCode.SUCCESS
    slave.connect(encode_token(token), encode_offset(0))
    check_refused(sim, slave, caplog, "follows without having said hello")


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        ([encode_offset(1 << 40)], "asks for log offset"),
        ([encode_offset(-1)], "which is negative"),
        ([b"GET / HTTP/1.1\r\n\r\n"], "asks for log offset"),
        ([encode_offset(0), encode_offset(1 << 40)], "was sent bytes up to 0"),
    ],
    ids=["past the end", "negative", "another protocol", "acknowledges more than it was sent"],
)
def test_numbers_that_cannot_be_end_the_connection(
    pieces: list[bytes],
    text: str,
    sim: RunningCluster,
    caplog: pytest.LogCaptureFixture,
) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect(encode_token(slave.hello()))
    for piece in pieces:
        slave.transport.write(piece)
        sim.advance(0.1)
    check_refused(sim, slave, caplog, text)


@pytest.mark.parametrize("pieces", [(), (b"\0\0\0",)], ids=["nothing", "half a number"])
def test_a_silent_connection_is_closed_after_twenty_seconds(
    pieces: tuple[bytes, ...], sim: RunningCluster
) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect(*pieces)
    began_s = sim.now_s
    sim.until(lambda: slave.is_closed)
    assert 19 < sim.now_s - began_s < 22


def test_a_silent_connection_ends_with_the_broker(sim: RunningCluster) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect()
    sim.brokers["broker-a"].stop()
    sim.advance(0.1)
    assert slave.is_closed


def test_a_slave_that_reports_nothing_is_disconnected_and_sends_stop_waiting_for_it(
    sim: RunningCluster,
) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect(encode_token(slave.hello()), encode_offset(0))
    sim.advance(0.1)
    assert send(sim) == ResponseCode.FLUSH_SLAVE_TIMEOUT
    sim.until(lambda: slave.is_closed)
    assert send(sim) == ResponseCode.SLAVE_NOT_AVAILABLE


def test_slaves_of_apaches_are_fed_where_they_are_allowed_and_counted_by_host() -> None:
    settings: dict[str, Any] = {"replication": ReplicationMode.SYNC, "slave_timeout_s": 1.0}
    with SimCluster(replication_peer=ReplicationPeer.APACHE, **settings).run() as sim:
        send(sim, b"before")
        slave = FakeSlave(sim, 1)
        slave.connect(encode_offset(0))
        sim.until(lambda: bool(slave.bodies))
        store = sim.broker.store
        assert b"".join(slave.bodies) == store.read_log(0, store.max_log_offset)
        slave.transport.write(encode_offset(store.max_log_offset))
        again = FakeSlave(sim, 1)
        again.connect(encode_offset(store.max_log_offset))
        sim.until(lambda: slave.is_closed)
        assert len(sim.broker.replication.feed.links) == 1
        sending = sim.client.send(TOPIC, b"after")
        sim.until(lambda: bool(again.bodies))
        again.transport.write(encode_offset(store.max_log_offset))
        sim.wait(sending)


def send_to_a_slave_that_connects_twice() -> int:
    """What a send is answered that wants two slaves, where one has two connections."""
    settings: dict[str, Any] = {
        "replication": ReplicationMode.SYNC,
        "in_sync_replicas": 3,
        "slave_timeout_s": 1.0,
    }
    with SimCluster(**settings).run() as sim:
        slaves = FakeSlave(sim, 1), FakeSlave(sim, 1)
        for slave in slaves:
            slave.connect(encode_token(slave.hello()), encode_offset(0))
            sim.advance(0.1)
        assert not slaves[1].is_closed
        return send(sim)


def test_a_slave_that_connects_twice_is_one_copy() -> None:
    assert send_to_a_slave_that_connects_twice() == ResponseCode.SLAVE_NOT_AVAILABLE


def test_planted_counting_connections_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    count_connections(monkeypatch.setattr)
    assert send_to_a_slave_that_connects_twice() == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_a_report_with_a_lower_offset_does_not_lower_the_confirmed_end(sim: RunningCluster) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect(encode_token(slave.hello()), encode_offset(0))
    sim.until(lambda: 1 in sim.broker.replication.feed.links)
    sending = sim.client.send(TOPIC, b"a message")
    sim.until(lambda: bool(slave.bodies))
    end = sim.broker.store.max_log_offset
    slave.transport.write(encode_offset(end))
    sim.wait(sending)
    slave.transport.write(encode_offset(0))
    sim.advance(0.1)
    assert sim.broker.replication.replicas.confirmed == end
    assert sim.wait(sim.client.pull(TOPIC)).bodies == [b"a message"]
    assert send(sim, b"a second one") == ResponseCode.FLUSH_SLAVE_TIMEOUT


def test_one_chunk_is_in_flight_where_sends_wait(sim: RunningCluster) -> None:
    slave = FakeSlave(sim, 1)
    slave.connect(encode_token(slave.hello()), encode_offset(0))
    sim.advance(0.1)
    for _ in range(5):
        send(sim)
    assert len(slave.bodies) == 1


def test_a_slave_that_does_not_read_costs_its_master_little_memory(sim: RunningCluster) -> None:
    for _ in range(20):
        send(sim, bytes(100_000))
    slave = FakeSlave(sim, 1)
    token = slave.hello()
    slave.connect()
    slave.transport.pause_reading()
    slave.transport.write(encode_token(token) + encode_offset(0))
    sim.advance(3.0)
    (link,) = sim.broker.replication.feed.links.values()
    limit = sim.broker.config.ha_chunk_bytes + 64 * 1024 + 128 * 1024
    assert 0 < link.position <= limit + sim.broker.config.ha_chunk_bytes
    assert not link.writable.is_set()
    assert send(sim) == ResponseCode.FLUSH_SLAVE_TIMEOUT


@pytest.fixture
def pair() -> Iterator[RunningCluster]:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC, slave_timeout_s=1.0).run() as sim:
        sim.until(lambda: bool(sim.broker.replication.feed.links))
        yield sim


def test_a_slave_with_a_full_disk_resumes_when_space_is_free(
    pair: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    slave = pair.brokers["broker-a.1"]
    assert send(pair) == ResponseCode.SUCCESS
    full = slave.disk.fail("write", errno.ENOSPC)
    assert send(pair) != ResponseCode.SUCCESS
    pair.advance(30)
    assert "not following a master" in caplog.text
    assert full.seen
    assert slave.is_running
    slave.disk.heal()
    pair.advance(30)
    assert send(pair) == ResponseCode.SUCCESS


def test_a_slave_with_a_read_only_disk_stops_and_its_master_keeps_serving(
    pair: RunningCluster,
) -> None:
    slave = pair.brokers["broker-a.1"]
    assert send(pair) == ResponseCode.SUCCESS
    slave.disk.is_read_only = True
    assert send(pair) != ResponseCode.SUCCESS
    with pytest.raises(BaseExceptionGroup):
        slave.wait_for_end()
    assert send(pair) == ResponseCode.SLAVE_NOT_AVAILABLE
    slave.disk.heal()
    slave.start()
    pair.advance(10)
    assert send(pair) == ResponseCode.SUCCESS


def test_pages_outside_the_page_cache_are_read_off_the_loop(
    pair: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(pair) == ResponseCode.SUCCESS
    run, read = InlineWorkers.run, CommitLog.read_blocking
    in_worker: list[bool] = []
    reads: list[bool] = []

    async def run_noted(workers: InlineWorkers, function: Any, *arguments: Any) -> Any:
        in_worker.append(True)
        try:
            return await run(workers, function, *arguments)
        finally:
            in_worker.pop()

    def read_noted(log: CommitLog, log_offset: int, length: int) -> bytes:
        reads.append(bool(in_worker))
        return read(log, log_offset, length)

    monkeypatch.setattr(InlineWorkers, "run", run_noted)
    monkeypatch.setattr(CommitLog, "read", lambda *_: None)
    monkeypatch.setattr(CommitLog, "read_blocking", read_noted)
    assert send(pair) == ResponseCode.SUCCESS
    assert reads
    assert all(reads)


def test_a_slave_whose_disk_stalls_buffers_little() -> None:
    with SimCluster(slaves=1, flush=Flush.SYNC, replication=ReplicationMode.ASYNC).run() as sim:
        sim.until(lambda: bool(sim.broker.replication.feed.links))
        slave = sim.brokers["broker-a.1"]
        slave.sync_s = 15.0
        for _ in range(60):
            assert send(sim, bytes(100_000)) == ResponseCode.SUCCESS
        sim.advance(5.0)
        (link,) = sim.broker.replication.feed.links.values()
        held = link.position - slave.broker.store.max_log_offset
        assert 0 < held <= 3 * 1024 * 1024
        assert sim.broker.store.max_log_offset > 6_000_000


def test_a_disk_that_cannot_be_read_ends_a_slaves_connection_not_the_master(
    pair: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    master = pair.brokers["broker-a"]
    assert send(pair) == ResponseCode.SUCCESS
    master.disk.fail("read", path_prefix="commitlog")
    assert send(pair) != ResponseCode.SUCCESS
    assert "cannot be read: [Errno 5]" in caplog.text
    assert master.is_running
    master.disk.heal()
    pair.advance(30)
    assert send(pair) == ResponseCode.SUCCESS
