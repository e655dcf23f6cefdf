"""Keep-alives keep a session alive: which clients send them, and what does not count as death."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from sparrowmq.broker.live_clients import MemberSessions
from sparrowmq.client.client import core_of
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing import Cluster
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, owned, send
from tests.client.two_members import both_ways, two_members


@both_ways
def test_a_member_that_was_cut_off_for_2_s_continues_without_repeating(orderly: bool) -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=orderly)
        for queue_id in range(4):
            send(sim, *(b"%d" % number for number in range(queue_id, 40, 4)), queue_id=queue_id)
        sim.paths.partition([second.host], [sim.host("broker-a")])
        sim.advance(2)
        sim.paths.heal()
        sim.advance(20)
        assert sorted(first.got + second.got, key=int) == [b"%d" % number for number in range(40)]
        assert (owned(first), owned(second)) == (2, 2)


def session_names(*members: Member) -> set[str]:
    clients = [core_of_consumer(member.consumer) for member in members]
    return {session.name for client in clients for session in client.sessions.live()}


def test_a_frozen_broker_does_not_drop_its_members() -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=False)
        names = session_names(first, second)
        assert len(names) == 2
        sim.host("broker-a").pause()
        sim.advance(30)
        sim.host("broker-a").resume()
        sim.advance(10)
        assert session_names(first, second) == names
        assert (owned(first), owned(second)) == (2, 2)


def test_a_group_that_lost_its_connections_consumes_nothing_twice() -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=False)
        for round_number in range(5):
            for queue_id in range(4):
                send(sim, b"%d %d" % (round_number, queue_id), queue_id=queue_id)
            sim.advance(0.5)
            group = sim.broker.consumers.group(GROUP)
            assert group is not None
            for connection in tuple(group.members):
                connection.abort()
            sim.advance(3)
        sim.advance(10)
        assert len(first.got + second.got) == len(set(first.got + second.got)) == 20


def test_a_broker_without_sessions_gets_no_keepalives() -> None:
    beats: dict[bool, int] = {}
    for has_sessions in (True, False):
        with SimCluster(seed=1, session_timeout_s=4.0 if has_sessions else 0.0).run() as sim:
            create_topic(sim)
            member = Member(sim)
            sim.advance(5)
            connection = next(iter(sim.broker.consumers.group(GROUP).members))  # type: ignore[union-attr]
            before = connection.frames_read
            sim.advance(60)
            beats[has_sessions] = connection.frames_read - before
            assert owned(member) == 1
    # Without: pulls that waited 15 s, heartbeats and renewals
    assert beats[True] > 60 > 30 > beats[False]


def test_a_client_may_do_without() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)

        async def live() -> None:
            client = sim.client_on("quiet")
            core_of(client).config = replace(core_of(client).config, fast_heartbeat=False)
            await client.start()
            async with PushConsumer(GROUP, {TOPIC: "*"}, client=client) as consumer:
                await consumer.start(lambda messages: None)
                await asyncio.sleep(2)
                assert len(sim.broker.sessions) == 0
            await client.stop()

        sim.run(live(), on=sim.host("quiet"))


def test_a_producer_keeps_the_connection_after_the_consumer_sharing_it_has_left() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)

        async def live() -> None:
            client = sim.client_on("shared")
            await client.start()
            async with Producer("shop", client=client) as producer:
                await producer.send(Message(TOPIC, b"1"))
                async with PushConsumer(GROUP, {TOPIC: "*"}, client=client) as consumer:
                    await consumer.start(lambda messages: None)
                    await asyncio.sleep(3)
                    assert len(sim.broker.sessions) == 1
                connection = await core_of(client).peers.connect(sim.brokers["broker-a"].address)
                await asyncio.sleep(20)
                assert connection.is_open
                await producer.send(Message(TOPIC, b"2"))
            await client.stop()

        sim.run(live(), on=sim.host("shared"))


@pytest.mark.slow
@pytest.mark.sparrowmq(session_timeout_s=2.0)
def test_a_handler_that_stops_the_loop_does_not_stop_the_keepalives(
    sparrowmq_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    beaten = threading.Semaphore(0)
    answer = MemberSessions.keep_alive

    def count(self: MemberSessions, name: str) -> bool:
        beaten.release()
        return answer(self, name)

    monkeypatch.setattr(MemberSessions, "keep_alive", count)
    servers = sparrowmq_cluster.name_server
    counted: list[bool] = []

    async def consume() -> None:
        done = asyncio.Event()

        async def handle(messages: Sequence[MessageExt]) -> None:
            # Keeps the loop for itself until keep-alives of more than a session's life were sent.
            counted.extend(beaten.acquire(timeout=60) for _ in range(6))
            done.set()

        async with Producer("shop", name_servers=servers) as producer:
            await producer.send(Message(TOPIC, b"1"))
        first = ConsumeFromWhere.FIRST_OFFSET
        async with PushConsumer(
            GROUP, {TOPIC: "*"}, name_servers=servers, from_where=first
        ) as consumer:
            await consumer.start(handle)
            await done.wait()

    asyncio.run(consume())
    assert counted == [True] * 6
