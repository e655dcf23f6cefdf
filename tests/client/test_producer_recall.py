"""Recalling a message that waits for its delivery time."""

import asyncio

import pytest

from sparrowmq.client.errors import BrokerRefused, SendFailed
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.headers.messages import format_handle
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.scripted import world


def produce(sim: RunningCluster, handle_of: list[str], *, recalls: bool) -> None:
    async def run() -> None:
        client = sim.client_on("producer")
        await client.start()
        async with Producer("orders-svc", client=client) as producer:
            sent = await producer.send(Message("orders", b"later", delay_ms=60_000))
            handle_of.append(sent.recall_handle)
            if recalls:
                assert await producer.recall(sent.recall_handle) == sent.msg_id
            await asyncio.sleep(90)
            if not recalls:
                with pytest.raises(BrokerRefused):
                    await producer.recall(sent.recall_handle)
        await client.stop()

    sim.wait(sim.host("producer").start(run()))


def delivered(sim: RunningCluster) -> int:
    pulls = (sim.client.pull("orders", queue_id=n, offset=0, wait_s=0) for n in range(4))
    return sum(len(sim.wait(pull).messages) for pull in pulls)


@pytest.mark.parametrize("recalls", [True, False])
def test_a_recalled_message_is_never_delivered_and_a_delivered_one_not_recalled(
    recalls: bool,
) -> None:
    handles: list[str] = []
    with SimCluster(seed=1).run() as sim:
        produce(sim, handles, recalls=recalls)
        assert handles[0]
        assert delivered(sim) == (not recalls)


def test_a_message_that_is_delayed_by_a_level_has_no_handle_and_is_not_recalled() -> None:
    async def run() -> None:
        client = sim.client_on("producer")
        await client.start()
        async with Producer("orders-svc", client=client) as producer:
            sent = await producer.send(Message("orders", b"later", delay_level=3))
            assert sent.recall_handle == ""
            with pytest.raises(ValueError, match=r"handle is empty: .* delayed by delay_level"):
                await producer.recall(sent.recall_handle)
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.host("producer").start(run()))
        sim.advance(15)
        assert delivered(sim) == 1


def test_an_invalid_handle_is_refused_before_any_request() -> None:
    async def recall(producer: Producer) -> None:
        with pytest.raises(ValueError, match="is not a recall handle"):
            await producer.recall("nonsense")

    with world() as w:
        w.produce(recall)
        assert w.asked == []


def test_a_broker_that_cannot_be_reached_is_named() -> None:
    async def recall(producer: Producer) -> None:
        with pytest.raises(SendFailed, match="broker-b: cannot connect to"):
            await producer.recall(format_handle("orders", "broker-b", 1, "id"))

    with world() as w:
        w.brokers["b"].host.kill()
        w.produce(recall)


def test_a_second_recall_of_the_same_message_is_refused_at_the_call() -> None:
    async def run() -> None:
        client = sim.client_on("producer")
        await client.start()
        async with Producer("orders-svc", client=client) as producer:
            sent = await producer.send(Message("orders", b"later", delay_ms=60_000))
            await producer.recall(sent.recall_handle)
            with pytest.raises(ValueError, match=f"message {sent.msg_id} .* was recalled before"):
                await producer.recall(sent.recall_handle)
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.host("producer").start(run()))


def test_a_recall_that_failed_may_be_repeated() -> None:
    async def recall(producer: Producer) -> None:
        for _ in range(2):
            with pytest.raises(SendFailed):
                await producer.recall(format_handle("orders", "broker-b", 1, "id"))

    with world() as w:
        w.brokers["b"].host.kill()
        w.produce(recall)
