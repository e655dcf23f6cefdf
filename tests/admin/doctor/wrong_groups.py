"""Scenes with consumer groups that are stuck or misbehave."""

import asyncio
from collections.abc import Sequence
from typing import Any

from sparrowmq import (
    ConsumeFromWhere,
    Examination,
    FlowLimits,
    LitePullConsumer,
    MessageExt,
    MessageModel,
    MessageQueue,
)
from sparrowmq.client.strategies import AVG, AVG_BY_CIRCLE
from sparrowmq.protocol.headers.clients import LockBatch
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.locks import LockBatchRequest
from tests.admin.doctor.provocations import (
    Provocations,
    Scene,
    fail,
    succeed,
    wait_for_ever,
)

SCENES = Provocations()
provokes = SCENES.provokes
OTHER_SCENES = Provocations()
"""Further ways to the same diagnoses, by their own names."""


async def examine(scene: Scene, *, after_s: float = 1.0, **more: Any) -> Examination:
    await asyncio.sleep(after_s)
    return await scene.doctor("group", "billing", **more)


@provokes("no-members")
async def all_members_are_gone(scene: Scene) -> Examination:
    await scene.topic(messages=1)
    async with scene.member(succeed):
        await asyncio.sleep(1)
    await scene.send(5)
    return await examine(scene)


@provokes("more-members-than-queues")
async def two_members_share_one_queue(scene: Scene) -> Examination:
    await scene.topic(queues=1)
    async with scene.member(succeed), scene.member(succeed, name="other"):
        return await examine(scene)


@provokes("lag-grows")
async def messages_come_faster_than_they_are_handled(scene: Scene) -> Examination:
    await scene.topic()
    async with scene.member(wait_for_ever), asyncio.TaskGroup() as tasks:
        await asyncio.sleep(1)
        examined = tasks.create_task(scene.doctor("group", "billing"))
        await asyncio.sleep(1)
        await scene.send(40)
    return examined.result()


@provokes("lag-one-queue")
async def one_queue_lags_alone(scene: Scene) -> Examination:
    await scene.topic(queues=4, messages=120)
    async with scene.member(wait_for_ever):
        return await examine(scene)


@provokes("stuck-at-offset")
async def one_message_is_never_finished(scene: Scene) -> Examination:
    async def handle(messages: Sequence[MessageExt]) -> None:
        if messages[0].body == b"1":
            await wait_for_ever(messages)

    await scene.topic(messages=5)
    async with scene.member(handle):
        return await examine(scene, after_s=15)


async def slow(messages: Sequence[MessageExt]) -> None:
    await asyncio.sleep(1.5)


@provokes("handler-slow")
async def a_handler_needs_more_than_a_second(scene: Scene) -> Examination:
    await scene.topic(messages=20)
    async with scene.member(slow, workers=1):
        return await examine(scene, after_s=8)


@provokes("handler-hangs")
async def a_handler_does_not_return(scene: Scene) -> Examination:
    await scene.topic(messages=2)
    async with scene.member(wait_for_ever):
        return await examine(scene, after_s=90)


@provokes("handler-fails")
async def a_handler_raises(scene: Scene) -> Examination:
    await scene.topic(messages=5)
    async with scene.member(fail):
        return await examine(scene)


@provokes("flow-controlled")
async def too_much_waits_for_a_handler(scene: Scene) -> Examination:
    await scene.topic(messages=50)
    limits = FlowLimits(messages=5)
    async with scene.member(wait_for_ever, limits=limits, pull_batch=4):
        return await examine(scene)


@provokes("unequal-subscriptions")
async def members_want_different_tags(scene: Scene) -> Examination:
    await scene.topic(queues=2)
    async with (
        scene.member(succeed, expression="created"),
        scene.member(succeed, name="other", expression="paid"),
    ):
        return await examine(scene)


@provokes("doubled-client-id")
async def two_processes_have_one_client_id(scene: Scene) -> Examination:
    await scene.topic(queues=2)
    async with scene.member(succeed, name="twin"), scene.member(succeed, name="twin"):
        return await examine(scene)


@provokes("filter-matches-nothing")
async def a_tag_is_mistyped(scene: Scene) -> Examination:
    await scene.topic()
    await scene.send(20, tags="created")
    async with scene.member(succeed, expression="craeted"):
        return await examine(scene)


@provokes("offset-out-of-range")
async def a_group_stands_past_the_end(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    await scene.admin.create_group("billing")
    header = UpdateConsumerOffset(
        consumer_group="billing", topic="orders", queue_id=0, commit_offset=1000
    )
    await scene.call(scene.broker_address, header)
    return await examine(scene)


@provokes("never-committed")
async def a_member_never_commits(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    async with LitePullConsumer(
        "billing",
        {"orders": "*"},
        client=scene.client,
        auto_commit=False,
        from_where=ConsumeFromWhere.FIRST_OFFSET,
    ) as consumer:
        await consumer.poll(timeout_s=1.0)
        return await examine(scene, after_s=15)


@provokes("rebalancing-often")
async def a_member_joins_meanwhile(scene: Scene) -> Examination:
    await scene.topic(queues=4)
    async with scene.member(succeed), asyncio.TaskGroup() as tasks:
        await asyncio.sleep(1)
        examined = tasks.create_task(scene.doctor("group", "billing"))
        await asyncio.sleep(1)
        async with scene.member(succeed, name="other"):
            await examined
    return examined.result()


@provokes("lock-held-by-dead")
async def the_lock_of_a_dead_member_is_left(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    await scene.admin.create_group("billing")
    queue = MessageQueue("orders", "broker-a", 0)
    request = LockBatchRequest(
        consumer_group="billing", client_id="ghost", mq_set=frozenset({queue})
    )
    await scene.call(scene.broker_address, LockBatch(), request.to_json())
    async with scene.member(succeed):
        return await examine(scene)


@provokes("paused")
async def a_group_is_switched_off(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    await scene.admin.create_group("billing", may_consume=False)
    return await examine(scene)


@OTHER_SCENES.provokes("paused in one topic")
async def one_topic_of_a_live_group_is_paused(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    async with scene.member(succeed):
        await asyncio.sleep(1)
        await scene.admin.pause_group("billing", topic="orders")
        await scene.send(4)
        return await examine(scene, after_s=60, for_s=10.0)


@provokes("retries-growing")
async def messages_come_back(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    async with scene.member(fail):
        return await examine(scene, for_s=30.0)


@provokes("dead-letters-growing")
async def messages_die(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    async with scene.member(fail, max_reconsume_times=1):
        return await examine(scene, after_s=30)


@provokes("broadcasting-has-no-lag")
async def every_member_reads_everything(scene: Scene) -> Examination:
    await scene.topic(messages=3)
    async with scene.member(succeed, model=MessageModel.BROADCASTING, offsets_dir="/simulated"):
        return await examine(scene)


@provokes("one-strategy-differs")
async def members_share_by_different_rules(scene: Scene) -> Examination:
    await scene.topic(queues=4)
    async with (
        scene.member(succeed, strategy=AVG),
        scene.member(succeed, name="other", strategy=AVG_BY_CIRCLE),
    ):
        return await examine(scene)
