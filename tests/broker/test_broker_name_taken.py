"""A broker whose name belongs to another master does not start; one that loses its name logs it."""

import logging
from collections.abc import Callable
from dataclasses import replace

import pytest

from sparrowmq.broker.registration import BrokerNameTaken
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused

SAYS = "clients do not find this broker"


def second_with_the_name(sim: RunningCluster, first: BrokerNode) -> BrokerNode:
    """Another machine whose operator took over the first one's configuration."""
    node = BrokerNode(sim, replace(first.config, broker_name="second"))
    node.config = replace(first.config, advertise_host=node.host.ip)
    return node


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Those about the name."""
    texts = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    return [text for text in texts if SAYS in text]


def live_addresses(sim: RunningCluster) -> list[list[str]]:
    return [list(node.server.table.live) for node in sim.name_servers.values() if node.is_running]


@pytest.mark.parametrize("down", [0, 1], ids=["all answer", "one is down"])
def test_a_second_master_does_not_start_while_the_first_one_answers(down: int) -> None:
    with SimCluster(seed=1, name_servers=2).run() as sim:
        first = sim.brokers["broker-a"]
        for node in list(sim.name_servers.values())[:down]:
            node.kill()
        with pytest.raises(ExceptionGroup) as caught:
            second_with_the_name(sim, first).start()
        (error,) = caught.value.exceptions
        assert isinstance(error, BrokerNameTaken)
        assert error.broker_name == "broker-a"
        assert len(error.refusals) == 2 - down
        assert f"has a master at {first.address}" in str(error)
        assert "stop that one first" in str(error)
        assert live_addresses(sim) == [[first.address]] * (2 - down)


@pytest.mark.parametrize(
    "prepare",
    [
        lambda sim: sim.brokers["broker-a"].kill(),
        lambda sim: sim.brokers["broker-a"].stop(),
        lambda sim: sim.brokers["broker-a"].host.pause(),
        lambda sim: [node.kill() for node in sim.name_servers.values()],
    ],
    ids=["first killed", "first stopped", "first silent", "no name server answers"],
)
def test_a_broker_starts_if_no_name_server_reports_that_the_first_answers(
    prepare: Callable[[RunningCluster], object],
) -> None:
    with SimCluster(seed=1).run() as sim:
        second = second_with_the_name(sim, sim.brokers["broker-a"])
        prepare(sim)
        second.start()
        assert second.is_running


def test_a_running_broker_whose_name_was_taken_logs_an_error_at_once_and_every_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(seed=1).run() as sim:
        (name_server,) = sim.name_servers.values()
        first = sim.brokers["broker-a"]
        second = second_with_the_name(sim, first)
        name_server.kill()
        second.start()  # no name server can object
        name_server.start()
        sim.advance(40)
        ((owner,),) = live_addresses(sim)
        other = second if owner == first.address else first
        assert [owner in text for text in errors(caplog)] == [True]
        sim.advance(170)
        assert len(errors(caplog)) == 3
        assert other.is_running, "it may hold messages that consumers still have to get"
        (first if other is second else second).stop()
        sim.advance(31)
        assert live_addresses(sim) == [[other.address]]
        sim.advance(300)
        assert len(errors(caplog)) == 3


def test_a_frozen_master_that_lost_its_name_accepts_no_messages() -> None:
    """Its clients are connected, and ask for routes 30 s later at the earliest: the master that all
    others know would never have what they send until then."""
    with SimCluster(seed=1).run() as sim:
        first = sim.brokers["broker-a"]
        sim.wait(sim.client.send("orders", b"before"))
        second = second_with_the_name(sim, first)
        first.host.pause()
        second.start()
        first.host.resume()
        sim.advance(3)
        with pytest.raises(Refused, match=f"has a master at {second.address}") as refused:
            sim.wait(sim.client.send("orders", b"lost", address=first.address))
        assert refused.value.code == ResponseCode.SYSTEM_BUSY
        assert sim.wait(sim.client.pull("orders", address=first.address)).bodies == [b"before"]
        second.stop()
        sim.advance(31)
        sim.wait(sim.client.send("orders", b"after", address=first.address))
