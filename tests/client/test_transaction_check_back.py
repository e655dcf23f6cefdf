"""Transactions whose end a broker has not heard of: it asks the producers of the group."""

import asyncio
from typing import Any

import pytest

from sparrowmq.client.sending.transactional_producer import (
    HalfMessage,
    TransactionalProducer,
    TransactionResult,
    TransactionState,
)
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.bookings import COMMIT, ROLLBACK, UNKNOWN, Bookings


def with_producer(
    sim: RunningCluster, listener: Bookings, then_wait_s: float
) -> "asyncio.Future[TransactionResult]":
    async def on_the_host() -> TransactionResult:
        client = sim.client_on("producer")
        await client.start()
        settings: Any = {"client": client, "threads": InlineWorkers()}
        async with TransactionalProducer("orders-svc", listener, **settings) as producer:
            message = Message("orders", b"x" * 5000, keys="o-1")
            result = await producer.send_in_transaction(message)
            await asyncio.sleep(then_wait_s)
        await client.stop()
        return result

    return sim.host("producer").start(on_the_host())


def bodies(sim: RunningCluster) -> list[bytes]:
    found = []
    for queue_id in range(4):
        found += sim.wait(sim.client.pull("orders", queue_id=queue_id, offset=0, wait_s=0)).bodies
    return found


@pytest.mark.parametrize(
    ("executed", "checked", "visible"),
    [
        (COMMIT, None, True),
        (ROLLBACK, None, False),
        (UNKNOWN, COMMIT, True),
        (UNKNOWN, ROLLBACK, False),
        (RuntimeError("crash"), COMMIT, True),
    ],
)
def test_a_message_is_visible_if_and_only_if_its_transaction_ended_well(
    executed: Any, checked: Any, visible: bool
) -> None:
    listener = Bookings(executed, checked)
    with SimCluster(seed=1).run() as sim:
        result = sim.wait(with_producer(sim, listener, then_wait_s=90))
        assert len(bodies(sim)) == visible
    if checked is None:
        assert listener.questions == []
    else:
        (question,) = listener.questions
        assert question.transaction_id == question.msg_id == result.msg_id
        assert (question.topic, question.body, question.keys) == ("orders", b"x" * 5000, ("o-1",))


def test_another_producer_of_the_group_answers_for_one_that_died() -> None:
    class Dies(Bookings):
        def execute(self, half: HalfMessage) -> TransactionState:
            sim.host("producer").kill()
            return COMMIT

    survivor = Bookings(checked=COMMIT)

    async def live_on() -> None:
        client = sim.client_on("survivor")
        await client.start()
        settings: Any = {"client": client, "threads": InlineWorkers()}
        async with TransactionalProducer("orders-svc", survivor, **settings) as producer:
            await producer.send(Message("orders", b"other"))
            await asyncio.sleep(120)
        await client.stop()

    with SimCluster(seed=1).run() as sim:
        living = sim.host("survivor").start(live_on())
        with_producer(sim, Dies(), then_wait_s=0)
        sim.wait(living)
        assert len(survivor.questions) == 1
        assert len(bodies(sim)) == 2
