"""Requests and connections that overloaded users' RocketMQ servers, by report number."""

import asyncio

from sparrowmq.net.endpoint import Limits
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.messages import QueryMessage
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import subscribes, world_with


def test_report_3407_a_hundred_new_topics_are_a_few_registrations() -> None:
    with SimCluster(seed=1).run() as sim:
        sim.advance(1)
        (live,) = sim.name_servers["name-server-1"].server.table.live.values()
        sends = [sim.client.send(f"topic-{number}", b"x") for number in range(100)]
        registered_ms = {live.last_seen_ms}
        for _ in range(2_000):
            sim.advance(0.001)
            (live,) = sim.name_servers["name-server-1"].server.table.live.values()
            registered_ms.add(live.last_seen_ms)
        for send in sends:
            sim.wait(send)
        assert len(registered_ms) - 1 <= 20
        assert live.data_version == sim.broker.topics.table().data_version, "and all are known"


def test_report_7948_a_query_for_everything_brings_a_bounded_answer() -> None:
    with world_with() as world:
        for number in range(200):
            world.send("orders", b"%d" % number, KEYS="same")
        query = QueryMessage(
            topic="orders", key="same", max_num=2**31 - 1, begin_timestamp=0, end_timestamp=2**62
        )
        found = decode_messages(world.done(query).body)
        assert 0 < len(found) <= 64
        assert found[0].body == b"199"
        for _ in range(64):
            world.send("orders", b"x" * 900_000, KEYS="large")
        query = QueryMessage(
            topic="orders", key="large", max_num=64, begin_timestamp=0, end_timestamp=2**62
        )
        answer = world.ask(query)
        assert answer.code == ResponseCode.SUCCESS
        assert len(answer.body) <= 16 * 1024 * 1024


def test_report_8875_probes_that_connect_and_leave_leave_no_connection() -> None:
    with SimCluster(seed=1, limits=Limits(max_connections=20)).run() as sim:
        host, port = sim.brokers["broker-a"].address.split(":")

        async def probe(number: int) -> None:
            _, writer = await asyncio.open_connection(host, int(port))
            if number % 2:
                writer.write(b"2026-11-15 12:00:00")
            writer.transport.abort() if number % 3 else writer.close()

        for number in range(300):
            sim.run(probe(number), on=sim.host("monitor"))
        sim.advance(60)
        assert sim.wait(sim.client.send("orders", b"still there")).queue_offset == 0
        assert len(sim.network.connections(sim.host("broker-a"))) <= 3


def test_report_9737_members_that_come_and_go_are_forgotten() -> None:
    with world_with() as world:
        for number in range(50):
            client = world.client(f"member-{number}")
            client.beat(subscribes(f"group-{number % 5}"), producers=(f"svc-{number}",))
            client.disconnect()
        assert list(world.broker.consumers) == []
        assert list(world.broker.producers.groups()) == []
        assert all(world.broker.producers.find(f"member-{n}") is None for n in range(50))
