"""Starts that failed for RocketMQ users after a power cut or a jump of the clock, by number."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from sparrowmq.broker.topics import plain_topic
from sparrowmq.clock import Clock
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.store.table_file import TableMissing
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.broker.delivery_world import DeliveryWorld

TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
YEARS_MS = 24 * 365 * 24 * 3_600_000


def used_broker() -> DeliveryWorld:
    """A broker whose tables have been saved more than once, stopped in order."""
    world = DeliveryWorld()
    for name in ("orders", "invoices"):
        world.broker.topics.put(plain_topic(name, 4))
        world.broker.groups.find(f"{name}-svc")
        world.send(name, b"body", DELAY="1")
        world.pass_time(2)
        world.broker.offsets.commit(f"{name}-svc", name, 0, 1)
        world.stop()
        world.start()
    world.stop()
    return world


@pytest.mark.parametrize("table", TABLES)
def test_report_9328_a_start_that_cannot_be_names_the_damaged_table_and_the_remedy(
    table: str,
) -> None:
    with used_broker() as world:
        path = f"config/{table}"
        whole = world.disk.files()[path]
        for copy in (path, f"{path}.bak"):
            world.disk.poke(copy, b"\0" * 60)
        with pytest.raises(TableMissing, match=rf"{table}.*sparrowmq store rebuild DIR --table"):
            world.start()
        world.disk.poke(path, whole)
        world.disk = world.disk.killed()
        world.start()
        assert "invoices" in world.broker.topics, "the failed start has not made it worse"


@pytest.mark.parametrize("table", TABLES)
def test_report_7729_a_table_full_of_zeros_is_restored_from_its_backup(table: str) -> None:
    with used_broker() as world:
        path = f"config/{table}"
        world.disk.poke(path, b"\0" * len(world.disk.files()[path]))
        world.start()
        assert "orders" in world.broker.topics
        assert world.broker.offsets.get("orders-svc", "orders", 0) == 1


@pytest.mark.parametrize("call", range(1, 10))
def test_report_9705_a_power_cut_in_the_first_save_after_damage_costs_no_table(call: int) -> None:
    with used_broker() as world:
        world.disk.poke("config/topics.json", b'{"dataVer')
        world.start()
        disk = world.disk
        disk.cut_at(call)
        with suppress(PowerCut):
            world.broker.topics.put(plain_topic("new", 1))
            world.run(asyncio.sleep(0))
        for found in (disk.killed(), *(disk.crashed(Random(seed)) for seed in range(8))):
            world.disk = found
            world.start()
            assert "orders" in world.broker.topics


def test_report_9455_a_broker_that_started_in_2050_is_registered_after_the_clock_is_right() -> None:
    with SimCluster(seed=1).run() as sim:
        node, right = sim.brokers["broker-a"], sim.clock
        table = sim.name_servers["name-server-1"].server.table
        for topic, clock in (("future", lambda: right() + YEARS_MS), ("present", right)):
            node.lose_power()  # without unregistering: the name server remembers the year 2050
            start_with(node, clock)
            sim.wait(sim.new_client(topic).send(topic, b"x"))
            sim.advance(1)
            (live,) = table.live.values()
            assert live.data_version == sim.broker.topics.table().data_version
            route = sim.wait(
                sim.client.call(GetTopicRoute(topic=topic), address=sim.name_server_addresses[0])
            )
            assert route.code == ResponseCode.SUCCESS
            sim.advance(2)


def start_with(node: BrokerNode, clock: Clock) -> None:
    """Start a broker that believes in another time."""
    usual, node.clock = node.clock, clock
    node.start()
    node.clock = usual
