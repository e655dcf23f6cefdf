"""Quotas and backlogs follow the tables: a slave that takes over enforces them."""

from typing import Any

from sparrowmq.broker.replication.replication import Role
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.replication import HandOver
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.traffic.limits_world import (
    BACKLOG,
    MESSAGES,
    PRODUCER,
    admitted,
    limit_broker,
    limit_group,
    limit_topic,
    send_header,
    sending,
)
from tests.broker.world import World, subscribes
from tests.sim.replicated import follows, has_all, role

OLD, NEW = "broker-a", "broker-a.1"


def test_a_promoted_slave_enforces_every_limit() -> None:
    with SimCluster(slaves=1).run() as sim:
        world = World(sim)
        sim.until(lambda: follows(sim))
        limit_topic(world, {MESSAGES: 10})
        limit_topic(world, {BACKLOG: "20:refuse:billing"}, "payments")
        limit_broker(world, {PRODUCER.format("other"): 3})
        limit_group(world, {MESSAGES: 7})
        slave = sim.brokers[NEW]
        sim.until(
            lambda: (
                "billing" in slave.broker.watched.quotas
                and "payments" in slave.broker.topics
                and has_all(sim)
            )
        )
        sim.wait(sim.client.call(HandOver(slave_id=1)))
        sim.until(
            lambda: (
                slave.is_running and hasattr(slave.server, "broker") and role(slave) is Role.MASTER
            )
        )

        def passing(count: int, **changes: Any) -> int:
            tasks = [
                sim.client.call(send_header(**changes), b"x", address=slave.address)
                for _ in range(count)
            ]
            found = [sim.wait(task).code for task in tasks]
            return found.count(ResponseCode.SUCCESS)

        assert passing(25) == 10
        assert passing(25, producer_group="other", topic="fresh") == 3
        assert slave.broker.watched.quotas["billing"].meter.buckets.quota.messages == 7
        payments = slave.broker.topics.get("payments")
        assert payments is not None
        backlog = slave.broker.traffic.limits_of(payments, 0).backlog
        assert backlog is not None and backlog.limit.groups == ("billing",)


def test_a_slave_holds_pulls_of_a_group_over_its_quota() -> None:
    with SimCluster(slaves=1).run() as sim:
        world = World(sim)
        sim.until(lambda: follows(sim))
        world.topic("orders", 1)
        world.send("orders", *[b"x"] * 30)
        world.client("member").beat(subscribes("billing"))
        limit_group(world, {MESSAGES: 5})
        slave = sim.brokers[NEW]
        sim.until(lambda: has_all(sim) and "billing" in slave.broker.watched.quotas)
        pull = sim.client.pull("orders", group="billing", address=slave.address, wait_s=1)
        assert len(sim.wait(pull).bodies) == 5
        again = sim.client.pull(
            "orders", group="billing", offset=5, address=slave.address, wait_s=1
        )
        assert 0 < len(sim.wait(again).bodies) <= 5


def test_a_master_that_hands_over_first_writes_the_answers_that_it_holds() -> None:
    with SimCluster(slaves=1).run() as sim:
        world = World(sim)
        sim.until(lambda: follows(sim))
        limit_topic(world, {BACKLOG: "2:slow:billing"})
        world.client("member").beat(subscribes("billing"))
        world.commit("billing", "orders", 0, 0)
        assert admitted(world, 3) == 3
        sim.advance(2)
        tasks = sending(world, 3)
        sim.until(lambda: world.broker.traffic.slowing.held == 3)
        sim.client.call(HandOver(slave_id=1))
        assert [sim.wait(task).code for task in tasks] == [ResponseCode.SUCCESS] * 3
