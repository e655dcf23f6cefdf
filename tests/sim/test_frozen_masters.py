"""A master is frozen, as by SIGSTOP, and its slave is promoted meanwhile."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.config import ReplicationMode, ReplicationPeer
from sparrowmq.broker.replication.frozen_master import FREEZE_S
from sparrowmq.broker.replication.replication import Role
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused, wire
from tests.sim.replicated import bodies, follows, role

OLD, NEW = "broker-a", "broker-a.1"
TOPIC = "orders"
SETTINGS: dict[ReplicationMode, dict[str, Any]] = {
    ReplicationMode.SYNC: {"in_sync_replicas": 2, "slave_timeout_s": 1.0},
    ReplicationMode.ASYNC: {},
}
PAUSES_S = (0.5, 1.5, 2.5, 3.5, 5.0)
PAUSES = [
    *((pause_s, ReplicationMode.SYNC) for pause_s in PAUSES_S),
    *(
        pytest.param(pause_s, ReplicationMode.ASYNC, marks=pytest.mark.slow)
        for pause_s in PAUSES_S[:-1]
    ),
    (PAUSES_S[-1], ReplicationMode.ASYNC),
]


@pytest.fixture
def sim(request: pytest.FixtureRequest) -> Iterator[RunningCluster]:
    """A master and two slaves; two copies are enough for an acknowledgement."""
    replication = getattr(request, "param", ReplicationMode.SYNC)
    with SimCluster(slaves=2, replication=replication, **SETTINGS[replication]).run() as sim:
        sim.until(lambda: follows(sim, 1) and follows(sim, 2))
        send(sim, b"before")
        yield sim


def send(sim: RunningCluster, body: bytes) -> None:
    """To the old master. Raises Refused."""
    sim.wait(sim.client.send(TOPIC, body, address=sim.brokers[OLD].address))


def promote(sim: RunningCluster) -> None:
    node = sim.brokers[NEW]
    node.stop()
    node.config = replace(node.config, broker_id=0)
    node.start()
    sim.until(lambda: hasattr(node.server, "broker") and role(node) is Role.MASTER)


def part_from_name_server(sim: RunningCluster) -> None:
    (server,) = sim.name_servers.values()
    sim.paths.partition([sim.brokers[OLD].host], [server.host])


def refusal(sim: RunningCluster, body: bytes, resume: str = "") -> str:
    """Send to the old master; what it refuses that with. Resumed, it finds the send waiting."""
    sending = sim.client.send(TOPIC, body, address=sim.brokers[OLD].address)
    if resume:
        sim.advance(0.1)
        sim.brokers[resume].host.resume()
    with pytest.raises(Refused) as refused:
        sim.wait(sending)
    assert refused.value.code == ResponseCode.SYSTEM_BUSY
    return str(refused.value)


def test_requests_in_the_socket_are_refused_after_another_broker_became_the_master(
    sim: RunningCluster,
) -> None:
    """The other slave still follows the old master, and would make it a second copy."""
    end = sim.brokers[OLD].broker.store.max_log_offset
    sim.brokers[OLD].host.pause()
    sim.advance(FREEZE_S + 1)
    promote(sim)
    assert 2 in sim.brokers[OLD].broker.replication.feed.links
    assert "was frozen for" in refusal(sim, b"waits in the socket", resume=OLD)
    for _ in range(50):
        refusal(sim, b"later")
        sim.advance(0.1)
    assert sim.brokers[OLD].broker.store.max_log_offset == end


@pytest.mark.parametrize(("pause_s", "sim"), PAUSES, indirect=["sim"])
def test_no_pause_is_so_short_that_two_masters_acknowledge(
    pause_s: float, sim: RunningCluster
) -> None:
    """The slave is promoted when it begins; what clients send waits in the socket."""
    old = sim.brokers[OLD]
    acknowledged: list[bool] = []

    async def resume() -> None:
        await asyncio.sleep(pause_s)
        old.host.resume()

    async def send_on() -> None:
        async with wire("sender", sim.clock, call_s=20.0) as connections:
            while True:
                with suppress(NetError, Refused):
                    await connections.send(old.address, TOPIC, b"to the old one")
                    acknowledged.append(has_promoted)
                await asyncio.sleep(0.01)

    has_promoted = False
    sim.host("sender").start(send_on())
    sim.advance(1.0)
    old.host.pause()
    sim.host("operator").start(resume())
    with suppress(ExceptionGroup):  # the name servers have heard of the old one
        promote(sim)
        has_promoted = True
    before = len(acknowledged)
    sim.advance(max(pause_s, 10.0))
    assert (len(acknowledged) > before) is not has_promoted


def test_a_report_that_is_read_before_the_timer_fires_confirms_nothing(
    sim: RunningCluster,
) -> None:
    """A resumed process reads its sockets first, and a send is stored then."""
    part_from_name_server(sim)
    promote(sim)
    feed = sim.brokers[OLD].broker.replication.feed
    assert 2 in feed.links
    feed.awake_until_s = sim.now_s
    with pytest.raises(Refused) as refused:
        send(sim, b"stored, and not acknowledged")
    assert refused.value.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize("sim", [ReplicationMode.ASYNC], indirect=True)
def test_a_send_that_is_read_before_the_timer_fires_is_refused_if_it_waits_for_no_slave(
    sim: RunningCluster,
) -> None:
    part_from_name_server(sim)
    promote(sim)
    old = sim.brokers[OLD].broker
    end = old.store.max_log_offset
    old.replication.feed.awake_until_s = sim.now_s
    with pytest.raises(Refused, match="not stored: this broker was frozen for"):
        send(sim, b"for the new master")
    assert old.store.max_log_offset == end


def test_appends_look_at_the_clock_only_where_a_slave_may_have_been_promoted() -> None:
    with SimCluster().run() as sim:
        sim.advance(5)
        assert not sim.broker.store.admission.must_check
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.advance(1)
        assert sim.broker.store.admission.must_check


def test_what_was_reported_meanwhile_counts_when_it_is_still_the_master(
    sim: RunningCluster, caplog: pytest.LogCaptureFixture
) -> None:
    sim.brokers[OLD].broker.replication.feed.awake_until_s = sim.now_s
    send(sim, b"acknowledged when name server and slaves have answered")
    assert "this broker was frozen" in caplog.text


def test_slaves_are_asked_as_well(sim: RunningCluster) -> None:
    """Possibly no name server is reachable: a slave that is a master now reports it itself."""
    sim.brokers[OLD].host.pause()
    sim.advance(FREEZE_S + 1)
    promote(sim)
    part_from_name_server(sim)
    refusal(sim, b"waits in the socket", resume=OLD)
    sim.advance(10)
    assert "is a master now" in refusal(sim, b"later")


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_master_that_is_still_the_master_serves_on(is_alone: bool, sim: RunningCluster) -> None:
    """With the name server, or without any server to ask."""
    sim.brokers[OLD].host.pause()
    sim.advance(FREEZE_S + 1)
    if is_alone:
        part_from_name_server(sim)
        slaves = [sim.brokers[name].host for name in sim.brokers if name != OLD]
        sim.paths.partition([sim.brokers[OLD].host], slaves)
    sim.brokers[OLD].host.resume()
    sim.advance(10)
    sim.paths.heal()
    sim.until(lambda: follows(sim, 1) and follows(sim, 2))
    send(sim, b"after")


def test_name_servers_show_the_slaves_alone_until_a_frozen_master_is_back(
    sim: RunningCluster,
) -> None:
    """So that members that believe the name servers read from a slave soon, too."""
    (server,) = sim.name_servers.values()
    addresses = {name: node.address for name, node in sim.brokers.items()}
    assert set(server.server.table.live) == set(addresses.values())
    sim.brokers[OLD].host.pause()
    sim.advance(20)
    assert set(server.server.table.live) == set(addresses.values()) - {addresses[OLD]}
    sim.brokers[OLD].host.resume()
    sim.advance(5)
    assert set(server.server.table.live) == set(addresses.values())
    send(sim, b"after")


def test_a_short_freeze_changes_nothing(sim: RunningCluster) -> None:
    sim.brokers[OLD].host.pause()
    sim.advance(FREEZE_S / 2)
    sending = sim.client.send(TOPIC, b"waits in the socket")
    sim.brokers[OLD].host.resume()
    sim.wait(sending)
    assert b"waits in the socket" in [
        body for queue_id in range(4) for body in bodies(sim.brokers[NEW], queue_id)
    ]


def test_a_master_whose_slaves_are_apaches_asks_the_name_servers() -> None:
    """It remembers none of them, and one may have been promoted."""
    with SimCluster(replication_peer=ReplicationPeer.APACHE).run() as sim:
        old = sim.brokers[OLD]
        sim.wait(sim.client.send(TOPIC, b"before"))
        new = BrokerNode(sim, replace(old.config, broker_name="second"))
        new.config = replace(old.config, advertise_host=new.host.ip)
        old.host.pause()
        sim.advance(FREEZE_S + 1)
        new.start()
        refusal(sim, b"waits in the socket", resume=OLD)


def test_a_broker_without_slaves_does_not_ask() -> None:
    with SimCluster().run() as sim:
        sim.wait(sim.client.send(TOPIC, b"before"))
        sim.brokers[OLD].host.pause()
        sim.advance(FREEZE_S + 1)
        sending = sim.client.send(TOPIC, b"waits in the socket")
        sim.advance(0.1)
        sim.brokers[OLD].host.resume()
        sim.wait(sending)
