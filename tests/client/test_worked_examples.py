"""Examples of docs/behaviour.md that need a whole cluster."""

import asyncio
from itertools import pairwise
from pathlib import Path

from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import retry_topic
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, owned, send, stored_offset


def test_global_order_one_queue_two_members_one_of_them_idle() -> None:
    seen: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        await asyncio.sleep(0.01)
        seen.append(message.body)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=1)
        members = [Member(sim, handle, name=name, orderly=True) for name in ("a", "b")]

        async def produce(first: int, last: int) -> None:
            client = sim.client_on("producer")
            await client.start()
            async with Producer("shop", client=client) as producer:
                for number in range(first, last):
                    await producer.send(Message(TOPIC, b"%d" % number))  # one after the other
            await client.stop()

        sim.run(produce(0, 100), on=sim.host("producer"))
        sim.advance(5)
        owner, idle = sorted(members, key=owned, reverse=True)
        assert (owned(owner), owned(idle)) == (1, 0)
        assert (len(owner.got), idle.got) == (100, [])
        owner.leave()
        sim.run(produce(100, 200), on=sim.host("producer"))
        sim.advance(5)
        assert len(idle.got) == 100
        assert seen == [b"%d" % number for number in range(200)]


def test_a_member_that_dies_before_1001_is_done_has_1001_to_1010_delivered_again() -> None:
    handled: list[bytes] = []

    async def all_but_the_first(message: MessageExt) -> None:
        if message.body == b"1001":
            await asyncio.Event().wait()
        handled.append(message.body)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(1001, 1011)))
        first = Member(sim, all_but_the_first, name="a")
        sim.advance(12)
        assert len(handled) == 9
        assert stored_offset(sim) == 0  # 1001 holds progress back
        first.host.kill()
        second = Member(sim, name="b")
        sim.advance(5)
        assert sorted(second.got) == [b"%d" % number for number in range(1001, 1011)]
        sim.advance(5)
        assert stored_offset(sim) == 10


def times_of_calls(sim: RunningCluster, owner: object, method: str) -> list[float]:
    """When it is called from now on; the list grows."""
    called_s: list[float] = []
    call = getattr(owner, method)

    def watch(*args: object, **options: bool) -> object:
        called_s.append(sim.now_s)
        return call(*args, **options)

    setattr(owner, method, watch)
    return called_s


def test_a_lock_is_renewed_every_20_s() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim, orderly=True)
        sim.advance(2)
        asked_s = times_of_calls(sim, sim.broker.locks, "lock")
        sim.advance(70)
        gaps = [round(later - earlier, 1) for earlier, later in pairwise(asked_s)]
        assert gaps == [20.0, 20.0]


def test_a_member_sends_its_heartbeat_every_30_s() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim)
        sim.advance(25)
        told_s = times_of_calls(sim, sim.broker.consumers, "join")
        sim.advance(95)
        gaps = [round(later - earlier) for earlier, later in pairwise(told_s)]
        assert gaps == [30, 30, 30]


def test_a_broadcasting_member_has_no_retry_topic_and_a_clustering_one_has(tmp_path: Path) -> None:
    topics = {}
    for model in MessageModel:
        with SimCluster(seed=1).run() as sim:
            create_topic(sim)
            member = Member(sim, model=model, offsets_dir=tmp_path)
            topics[model] = membership_of(member.consumer).subscriptions.topics
    assert topics[MessageModel.CLUSTERING] == {TOPIC, retry_topic(GROUP)}
    assert topics[MessageModel.BROADCASTING] == {TOPIC}
