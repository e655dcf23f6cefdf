"""A broker that stops leaves nobody waiting for the answer to a pull."""

import asyncio

from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND
from tests.broker.world import World, subscribes


def waiting_pull() -> PullMessage:
    return PullMessage(
        consumer_group="billing",
        topic="orders",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=20_000,
        sub_version=0,
        subscription="*",
    )


def test_a_pull_that_waits_and_one_that_follows_at_once_are_both_refused(world: World) -> None:
    world.topic("orders", 1)

    async def pull_again_at_once() -> list[Response]:
        first = await world.sim.client.call(waiting_pull(), timeout_s=30)
        return [first, await world.sim.client.call(waiting_pull(), timeout_s=30)]

    pulls = world.sim.client.host.start(pull_again_at_once())
    world.sim.until(lambda: world.broker.arrivals.waiting == 1)
    started_s = world.sim.now_s
    world.sim.brokers["broker-a"].stop()
    answers = world.sim.wait(pulls)
    assert [answer.code for answer in answers] == [ResponseCode.SERVICE_NOT_AVAILABLE] * 2
    assert "broker-a is stopping" in answers[0].remark
    assert world.sim.now_s - started_s < 3


def test_a_client_that_never_stops_asking_cannot_keep_a_broker_alive(world: World) -> None:
    world.topic("orders", 1)

    async def pull_for_ever() -> None:
        while True:
            await world.sim.client.call(waiting_pull(), timeout_s=30)
            await asyncio.sleep(0.01)

    world.sim.client.host.start(pull_for_ever())
    world.sim.until(lambda: world.broker.arrivals.waiting == 1)
    started_s = world.sim.now_s
    world.sim.brokers["broker-a"].stop()
    assert world.sim.now_s - started_s < 10


def test_a_group_consumes_after_a_restart_before_its_next_heartbeat(world: World) -> None:
    world.topic("orders", 1)
    world.send("orders", b"no", TAGS="created")
    world.send("orders", b"yes", TAGS="paid")
    world.client("a").beat(subscribes("billing", expression="paid"))
    world.sim.brokers["broker-a"].stop()
    world.sim.brokers["broker-a"].start()
    answer = world.pull("orders")
    assert [message.body for message in decode_messages(answer.body)] == [b"yes"]
    assert world.pull("orders", "nobody").code == ResponseCode.SUBSCRIPTION_NOT_EXIST


def test_subscriptions_are_forgotten_when_their_members_do_not_come_back(world: World) -> None:
    world.topic("orders", 1)
    world.send("orders", b"hello")
    world.client("a").beat(subscribes("billing"))
    world.sim.brokers["broker-a"].stop()
    world.sim.advance(119)
    world.sim.brokers["broker-a"].start()
    assert world.pull("orders").code == ResponseCode.SUCCESS
    world.sim.advance(2)
    assert world.pull("orders").code == ResponseCode.SUBSCRIPTION_NOT_EXIST
