"""Sends of an idempotent producer are stored once, whatever happens to the broker and its answers.

Every message is sent until it is acknowledged, with the producer's own repetitions in between; a
send that fails is sent anew under the same DEDUP_KEY, as a program would.
"""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.client.errors import NoRoute, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

MESSAGES = 150
PACE_S = 0.1


def make_topic(sim: RunningCluster) -> None:
    header = CreateTopic(
        topic="orders",
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        attributes="+sparrowmq.dedup=on",
    )
    for node in sim.brokers.values():
        sim.wait(sim.client.call(header, address=node.address))
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
    sim.network.paths.cut(node.host, sim.host("producer"))
    sim.advance(1.3)
    sim.network.paths.heal()


def kill(sim: RunningCluster) -> None:
    sim.brokers["broker-a"].kill()
    sim.advance(0.4)
    sim.brokers["broker-a"].start()


def cut_power(sim: RunningCluster) -> None:
    sim.brokers["broker-a"].lose_power()
    sim.advance(0.4)
    sim.brokers["broker-a"].start()


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
