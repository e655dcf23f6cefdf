"""Sends of an idempotent producer are stored once, even if the broker dies or answers are lost.

Every message is sent until it is acknowledged, with the producer's own repetitions in between; a
send that fails is repeated under the same DEDUP_KEY, as a program would.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.broker.replication.replication import Role
from sparrowmq.client.errors import NoRoute, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.headers.replication import HandOver
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.sim.replicated import follows, role

MESSAGES = 150
PACE_S = 0.1


TOPIC_HEADER = CreateTopic(
    topic="orders",
    default_topic="TBW102",
    read_queue_nums=4,
    write_queue_nums=4,
    perm=6,
    attributes="+sparrowmq.dedup=on",
)


def make_topic(sim: RunningCluster) -> None:
    for node in sim.brokers.values():
        sim.wait(sim.client.call(TOPIC_HEADER, address=node.address))
    sim.advance(1)


async def send_all(sim: RunningCluster, *, as_batches: bool) -> None:
    client = sim.client_on("producer")
    await client.start()
    async with Producer("orders-svc", client=client, idempotent=True, timeout_s=20) as producer:
        for number in range(MESSAGES):
            names = [f"{number}", f"{number} too"] if as_batches else [f"{number}"]
            messages = [
                Message("orders", name.encode(), properties={"DEDUP_KEY": name}) for name in names
            ]
            while True:
                try:
                    if as_batches:
                        await producer.send_batch(messages)
                    else:
                        await producer.send(messages[0])
                    break
                except (SendFailed, NoRoute):
                    continue
            await asyncio.sleep(PACE_S)
    await client.stop()


def bodies(sim: RunningCluster) -> Counter[bytes]:
    return Counter(
        record.body
        for node in sim.brokers.values()
        for queue_id in range(4)
        for record in records(node.broker.store, "orders", 0, queue_id)
    )


def lose_answers(sim: RunningCluster) -> None:
    """For a while nothing comes back, then connections break as well."""
    node = sim.brokers["broker-a"]
    sim.paths.cut(node.host, sim.host("producer"))
    sim.advance(1.3)
    sim.paths.heal()


def kill(sim: RunningCluster) -> None:
    sim.brokers["broker-a"].kill()
    sim.advance(0.4)
    sim.brokers["broker-a"].start()


def cut_power(sim: RunningCluster) -> None:
    sim.brokers["broker-a"].lose_power()
    sim.advance(0.4)
    sim.brokers["broker-a"].start()


@pytest.mark.slow
@pytest.mark.parametrize("as_batches", [False, True])
@pytest.mark.parametrize("trouble", [lose_answers, kill, cut_power])
def test_a_send_repeated_after_a_lost_answer_is_stored_once(
    trouble: Callable[[RunningCluster], None], as_batches: bool
) -> None:
    with SimCluster(seed=3, flush=Flush.SYNC).run() as sim:
        make_topic(sim)
        work = sim.host("producer").start(send_all(sim, as_batches=as_batches))
        rounds = 0
        while not work.done():
            sim.advance(0.7371)
            trouble(sim)
            rounds += 1
        sim.wait(work)
        assert rounds > 5
        found = bodies(sim)
        assert set(found.values()) == {1}
        assert len(found) == MESSAGES * (1 + as_batches)


def test_a_duplicate_waits_for_the_copy_of_the_first_message() -> None:
    with SimCluster(
        seed=3, slaves=1, replication=ReplicationMode.SYNC, slave_timeout_s=5
    ).run() as sim:
        sim.until(lambda: follows(sim))
        make_topic_at(sim, "broker-a")
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        first = sim.wait(sim.client.send("orders", b"x", UNIQ_KEY="U1"))
        began_s = sim.now_s
        assert sim.wait(sim.client.send("orders", b"x", UNIQ_KEY="U1")) == first
        assert sim.now_s - began_s < 0.5  # it is there already
        sim.paths.cut(master.host, slave.host)
        waiting = [sim.client.send("orders", b"y", UNIQ_KEY="U2") for _ in range(2)]
        sim.advance(1)
        assert not any(one.done() for one in waiting)
        sim.paths.heal()
        assert sim.wait(waiting[0]) == sim.wait(waiting[1])
        assert master.broker.store.max_offset("orders", 0) == 2


def test_a_slave_that_takes_over_knows_what_its_master_stored() -> None:
    with SimCluster(seed=3, slaves=1, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim))
        make_topic_at(sim, "broker-a")
        first = sim.wait(sim.client.send("orders", b"x", UNIQ_KEY="U1"))
        sim.wait(sim.client.call(HandOver(), address=sim.brokers["broker-a"].address))
        new = sim.brokers["broker-a.1"]
        sim.until(lambda: role(new) is Role.MASTER)
        sim.advance(1)
        again = sim.wait(sim.client.send("orders", b"x", UNIQ_KEY="U1", address=new.address))
        assert (again.queue_id, again.queue_offset) == (first.queue_id, first.queue_offset)
        assert new.broker.store.max_offset("orders", 0) == 1


def make_topic_at(sim: RunningCluster, name: str) -> None:
    sim.wait(sim.client.call(TOPIC_HEADER, address=sim.brokers[name].address))
    sim.advance(1)
