"""A broker whose loop lags behind refuses sends: busy is better than late."""

from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import SendMessage
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode

A_MOMENT_S = 0.001


@pytest.fixture
def sim() -> Iterator[RunningCluster]:
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"first"))
        yield sim


def answer_to_a_send(sim: RunningCluster) -> tuple[int, str]:
    header = SendMessage(
        producer_group="p",
        topic="orders",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=0,
        flag=0,
        properties="",
    )
    response = sim.wait(sim.client.call(header, b"x"))
    return response.code, response.remark


def node(sim: RunningCluster) -> BrokerNode:
    return sim.brokers["broker-a"]


def test_a_loop_that_lags_turn_after_turn_refuses_sends_until_it_has_caught_up(
    sim: RunningCluster,
) -> None:
    for _ in range(2):
        node(sim).work(0.3)
        sim.advance(A_MOMENT_S)
    code, text = answer_to_a_send(sim)
    assert code == ResponseCode.SYSTEM_BUSY
    assert text == "the broker lags 0.3 s; send again later"
    assert sim.broker.store.max_offset("orders", 0) == 1
    sim.advance(0.2)
    assert answer_to_a_send(sim)[0] == ResponseCode.SUCCESS


def test_one_late_turn_is_a_hiccup(sim: RunningCluster) -> None:
    node(sim).work(0.5)
    sim.advance(A_MOMENT_S)
    assert answer_to_a_send(sim)[0] == ResponseCode.SUCCESS


def test_loop_iterations_of_less_than_200_ms_are_not_late(sim: RunningCluster) -> None:
    for _ in range(10):
        node(sim).work(0.2)
        sim.advance(A_MOMENT_S)
        assert answer_to_a_send(sim)[0] == ResponseCode.SUCCESS


def test_a_broker_starved_of_cpu_by_other_processes_refuses_nothing(sim: RunningCluster) -> None:
    """Refusing would not help: the machine is slow for every process."""
    for _ in range(3):
        sim.host("broker-a").pause()
        sim.advance(0.5)
        sim.host("broker-a").resume()
        sim.advance(A_MOMENT_S)
        assert answer_to_a_send(sim)[0] == ResponseCode.SUCCESS


def test_a_lagging_broker_still_serves_pulls(sim: RunningCluster) -> None:
    for _ in range(2):
        node(sim).work(0.3)
        sim.advance(A_MOMENT_S)
    assert sim.broker.busy_reason
    assert sim.wait(sim.client.pull("orders", offset=0)).bodies == [b"first"]
