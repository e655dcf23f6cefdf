"""Intervals keep their length when the clock is set meanwhile, forward or back."""

import pytest

from sparrowmq.protocol.broker_stats import BrokerStatsData
from sparrowmq.protocol.connections import ProducerTable
from sparrowmq.protocol.headers.connections import GetAllProducers
from sparrowmq.protocol.headers.statistics import ViewBrokerStats
from tests.broker.test_client_disconnects import client_ids
from tests.broker.test_queue_handover import JAVA_SUSPENDS_S, answer, owner_and_java, waiting_pull
from tests.broker.test_queue_locks import FIRST, lock
from tests.broker.world import World, subscribes

HOUR_MS = 3_600_000
both_ways = pytest.mark.parametrize("step_ms", (-HOUR_MS, HOUR_MS), ids=("back", "forward"))


@both_ways
def test_a_member_is_forgotten_after_two_minutes_of_silence(world: World, step_ms: int) -> None:
    world.topic("orders", 1)
    member = world.client("member")
    member.beat(subscribes("billing"), producers=("orders-svc",))
    world.sim.advance(60)
    world.sim.set_clock(step_ms)
    world.sim.advance(55)
    assert client_ids(world) == ["member"]
    assert world.broker.producers.members("orders-svc")
    world.sim.advance(20)
    assert client_ids(world) == []
    assert not world.broker.producers.members("orders-svc")


@both_ways
def test_a_lock_lasts_a_minute(world: World, step_ms: int) -> None:
    world.topic("orders")
    owner, other = world.client("owner"), world.client("other")
    assert lock(owner, FIRST) == {FIRST}
    world.sim.advance(30)
    world.sim.set_clock(step_ms)
    world.sim.advance(25)
    assert lock(other, FIRST) == set()
    world.sim.advance(10)
    assert lock(other, FIRST) == {FIRST}


@both_ways
def test_a_pull_waits_for_the_owner_of_its_queue_as_long(world: World, step_ms: int) -> None:
    _, java = owner_and_java(world)
    world.sim.set_clock(step_ms)
    asked = waiting_pull(world, java)
    world.sim.set_clock(step_ms)
    _, _, took_s = answer(world, asked)
    assert 0 < took_s <= JAVA_SUSPENDS_S


@both_ways
def test_a_waiting_pull_waits_as_long(world: World, step_ms: int) -> None:
    world.topic("orders", 1)
    asked = world.sim.client.pull("orders", wait_s=15)
    world.sim.advance(5)
    world.sim.set_clock(step_ms)
    began_s = world.sim.now_s
    world.sim.wait(asked)
    assert 9 < world.sim.now_s - began_s < 11


@both_ways
def test_name_servers_keep_their_brokers(world: World, step_ms: int) -> None:
    (server,) = world.sim.name_servers.values()
    world.sim.set_clock(step_ms)
    world.sim.advance(20)
    assert len(server.server.table.live) == 1


@both_ways
def test_rates_are_counted_on(world: World, step_ms: int) -> None:
    world.topic("orders", 1)
    header = ViewBrokerStats(stats_name="TOPIC_PUT_NUMS", stats_key="orders")
    for count in (1, 2):
        world.send("orders", b"x")
        world.sim.advance(11)
        assert world.read(header, BrokerStatsData).stats_minute.sum == count
        world.sim.set_clock(step_ms)


@both_ways
def test_a_producer_was_seen_when_it_was_by_the_present_clock(world: World, step_ms: int) -> None:
    world.client("producer").beat(producers=("orders-svc",))
    world.sim.advance(5)
    world.sim.set_clock(step_ms)
    (producer,) = world.read(GetAllProducers(), ProducerTable).data["orders-svc"]
    assert 5_000 <= world.sim.clock() - producer.last_update_timestamp < 5_100


@both_ways
def test_subscriptions_of_the_last_run_are_kept_for_two_minutes(world: World, step_ms: int) -> None:
    world.topic("orders", 1)
    world.client("member").beat(subscribes("billing"))
    (node,) = world.sim.brokers.values()
    node.stop()
    node.start()
    world.sim.set_clock(step_ms)
    broker = node.broker
    assert broker.consumers.live_or_last("billing", broker.monotonic) is not None
    world.sim.advance(125)
    assert broker.consumers.live_or_last("billing", broker.monotonic) is None
