"""Consumers of RocketMQ users that hung, started late or lost messages, by report number."""

import asyncio
from pathlib import Path
from typing import Any

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset


def test_report_1918_a_consumer_without_network_for_minutes_recovers_by_itself() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim, queues=4)
        member = Member(sim)
        send(sim, b"before")
        sim.advance(5)
        sim.network.isolate(member.host)
        sim.advance(150)
        for queue_id in range(4):
            send(sim, b"meanwhile %d" % queue_id, queue_id=queue_id)
        sim.paths.heal()
        sim.advance(60)
        assert sorted(member.got) == [b"before", *(b"meanwhile %d" % one for one in range(4))]


def test_report_5465_a_group_continues_after_its_broker_was_away_for_minutes() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        member = Member(sim)
        send(sim, b"before")
        sim.advance(5)
        sim.brokers["broker-a"].kill()
        sim.advance(300)
        sim.brokers["broker-a"].start()
        sim.client.disconnect()
        for queue_id in range(4):
            send(sim, b"after %d" % queue_id, queue_id=queue_id)
        sim.advance(60)
        assert sorted(member.got) == [*(b"after %d" % one for one in range(4)), b"before"]


def test_report_1190_a_handler_that_hangs_stops_neither_its_queue_nor_others() -> None:
    async def hang(message: MessageExt) -> None:
        if message.body == b"hangs" and not message.reconsume_times:
            await asyncio.Event().wait()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        member = Member(sim, hang, consume_timeout_s=60)
        send(sim, b"hangs")
        for queue_id in range(2):
            for _ in range(50):
                send(sim, b"fine", queue_id=queue_id)
        sim.advance(5)
        assert member.got.count(b"fine") == 100
        assert stored_offset(sim) == 0, "the queue's progress waits for the message that hangs"
        sim.advance(150)
        assert member.got.count(b"hangs") == 2
        assert stored_offset(sim) == 51


def test_report_2621_an_ordered_consumer_gets_its_first_message_at_once() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        for queue_id in range(4):
            send(sim, b"x", queue_id=queue_id)
        started_s = sim.now_s
        member = Member(sim, orderly=True)
        sim.until(lambda: len(member.got) == 4)
        assert sim.now_s - started_s < 3


def test_report_4016_a_broadcasting_member_gets_messages_sent_while_it_had_no_network(
    tmp_path: Path,
) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim)
        member = Member(
            sim,
            model=MessageModel.BROADCASTING,
            offsets_dir=tmp_path,
            from_where=ConsumeFromWhere.LAST_OFFSET,
        )
        sim.advance(5)
        send(sim, b"before")
        sim.advance(10)
        sim.network.isolate(sim.host("broker-a"))
        sim.advance(240)  # the name server drops the broker, the member its queues
        sim.paths.heal()
        sim.client.disconnect()
        send(sim, b"meanwhile")
        sim.advance(90)
        send(sim, b"after")
        sim.advance(5)
        assert member.got == [b"before", b"meanwhile", b"after"]


def test_report_2837_two_members_that_see_a_join_at_different_times_share_no_message() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=8)
        first = Member(sim, name="first")
        numbers = iter(range(10_000))

        def feed() -> None:
            for queue_id in range(8):
                send(sim, b"%d" % next(numbers), queue_id=queue_id)

        members = [first]
        for name in ("second", "third", "fourth"):
            feed()
            members.append(Member(sim, name=name))
            for _ in range(10):
                feed()
                sim.advance(0.3)
        sim.advance(10)
        got = [body for member in members for body in member.got]
        assert sorted(got) == sorted(set(got)) == sorted(b"%d" % n for n in range(next(numbers)))


def test_report_2085_a_stopping_consumer_finishes_the_messages_in_progress() -> None:
    finished: list[bytes] = []

    async def take_two_seconds(message: MessageExt) -> None:
        await asyncio.sleep(2)
        finished.append(message.body)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(10)))
        member = Member(sim, take_two_seconds, workers=3)
        sim.until(lambda: len(member.got) == 6)
        member.leave()
        assert sorted(finished) == sorted(member.got)
        assert stored_offset(sim) == len(finished)


def test_report_2732_lite_pull_readers_that_join_and_leave_while_pulling_skip_nothing() -> None:
    got: list[bytes] = []

    async def read(sim: RunningCluster, name: str, seconds: float) -> None:
        client = sim.client_on(name, routes)
        await client.start()
        options: dict[str, Any] = {"batch": 2, "from_where": ConsumeFromWhere.FIRST_OFFSET}
        async with LitePullConsumer(GROUP, {TOPIC: "*"}, client=client, **options) as reader:
            end_s = sim.now_s + seconds
            while sim.now_s < end_s:
                got.extend(message.body for message in await reader.poll(timeout_s=0.2))
                await asyncio.sleep(0.2)  # slower than messages come: some wait to be polled
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        readers = [sim.host("stays").start(read(sim, "stays", 120))]
        for number in range(300):
            if number % 30 == 0:  # queues are taken away and given back again and again
                name = f"guest-{number}"
                readers.append(sim.host(name).start(read(sim, name, 1.5)))
            send(sim, b"%d" % number, queue_id=number % 2)
            sim.advance(0.1)
        for reader in readers:
            sim.wait(reader)
        assert set(got) == {b"%d" % number for number in range(300)}
