"""Scenes with messages that did not arrive, and why."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from sparrowmq import (
    Examination,
    HalfMessage,
    Message,
    MessageExt,
    TransactionalProducer,
    TransactionState,
)
from sparrowmq.admin.cleaning import Cleanable
from sparrowmq.testing.sim_cluster import SMALL_STORE
from tests.admin.doctor.provocations import (
    Provocations,
    Scene,
    fail,
    succeed,
    wait_for_ever,
)

SCENES = Provocations()
provokes = SCENES.provokes


async def examine(scene: Scene, message_id: str) -> Examination:
    await asyncio.sleep(1)
    return await scene.doctor("message", message_id, topic="orders")


@provokes("not-found")
async def an_id_was_never_sent(scene: Scene) -> Examination:
    await scene.topic(messages=1)
    return await examine(scene, "0A000001" + "F" * 24)


@provokes("expired", store=replace(SMALL_STORE, log_file_size=64 * 1024, retention_ms=60_000))
async def the_file_of_a_message_was_deleted(scene: Scene) -> Examination:
    await scene.topic()
    (sent,) = await scene.send(1)
    for _ in range(4):
        await scene.send(8, keys="k" * 4000)
    await asyncio.sleep(120)
    await scene.admin.clean_broker("broker-a", [Cleanable.LOG, Cleanable.QUEUES])
    return await examine(scene, sent)


@provokes("still-delayed")
async def a_message_is_delayed(scene: Scene) -> Examination:
    await scene.topic()
    (sent,) = await scene.send(1, delay_level=5)
    return await examine(scene, sent)


class Books:
    """Transactions that end as a test chooses."""

    def __init__(self, state: TransactionState) -> None:
        self.state = state

    async def execute(self, half: HalfMessage) -> TransactionState:
        return self.state

    async def check(self, message: MessageExt) -> TransactionState:
        return self.state


async def half(scene: Scene, state: TransactionState) -> str:
    await scene.topic()
    async with TransactionalProducer("bank", Books(state), client=scene.client) as producer:
        sent = (await producer.send_in_transaction(Message("orders", b"booked"))).msg_id
        await asyncio.sleep(30)
    return sent


@provokes("half-open", transaction_timeout_s=6.0)
async def a_transaction_is_open(scene: Scene) -> Examination:
    return await examine(scene, await half(scene, TransactionState.UNKNOWN))


@provokes("rolled-back")
async def a_transaction_was_rolled_back(scene: Scene) -> Examination:
    return await examine(scene, await half(scene, TransactionState.ROLLBACK))


@provokes("filtered-for-group")
async def a_group_wants_other_tags(scene: Scene) -> Examination:
    await scene.topic()
    async with scene.member(succeed, expression="paid"):
        (sent,) = await scene.send(1, tags="created")
        return await examine(scene, sent)


@provokes("waiting-behind")
async def messages_before_it_are_not_finished(scene: Scene) -> Examination:
    await scene.topic()
    sent = await scene.send(5)
    async with scene.member(wait_for_ever):
        return await examine(scene, sent[-1])


@provokes("retrying")
async def a_group_failed_once(scene: Scene) -> Examination:
    await scene.topic()
    (sent,) = await scene.send(1)
    async with scene.member(fail):
        return await examine(scene, sent)


@provokes("dead")
async def a_group_gave_it_up(scene: Scene) -> Examination:
    await scene.topic()
    (sent,) = await scene.send(1)
    async with scene.member(fail, max_reconsume_times=1):
        await asyncio.sleep(30)
        return await examine(scene, sent)


@provokes("consumed-by")
async def a_group_handled_it(scene: Scene) -> Examination:
    await scene.topic()
    (sent,) = await scene.send(1)
    done = asyncio.Event()

    async def handle(messages: Sequence[MessageExt]) -> None:
        done.set()

    async with scene.member(handle):
        await done.wait()
        await asyncio.sleep(6)
        return await examine(scene, sent)
