"""Graceful shutdown: every pull is answered, and running saves finish."""

import asyncio
import gc
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from sparrowmq.broker.broker import BrokerState
from sparrowmq.broker.topics import plain_topic
from sparrowmq.disk.syncer import InlineSyncer, SyncPlan, sync_plan
from sparrowmq.net.calls import Response
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import World, subscribes

P = ParamSpec("P")
T = TypeVar("T")


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


class SlowThread(InlineWorkers):
    """What concerns a group runs to its end half a minute later, even if its task is cancelled."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.is_busy = False

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if f"@{self.group}" not in str(args):
            return function(*args, **kwargs)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[T] = loop.create_future()

        def work() -> None:
            result = function(*args, **kwargs)
            if not ended.done():
                ended.set_result(result)

        loop.call_later(30.0, work)
        self.is_busy = True
        return await ended


def restart_in_order(world: World) -> None:
    world.sim.brokers["broker-a"].stop()
    world.sim.brokers["broker-a"].start()


def progress_on_its_way(world: World) -> None:
    """A group that stood at 5 has come to 9, and a slow thread is writing that down."""
    world.topic("orders", 1)
    world.client("a").beat(subscribes("billing"))
    for _ in range(9):
        world.send("orders", b"hello")
    world.commit("billing", "orders", 0, 5)
    world.sim.advance(2)
    world.broker.offset_saving.workers = thread = SlowThread("billing")
    world.commit("billing", "orders", 0, 9)
    world.sim.until(lambda: thread.is_busy)


def test_progress_that_is_on_its_way_to_the_journal_survives_a_stop(world: World) -> None:
    progress_on_its_way(world)
    restart_in_order(world)
    assert world.broker.offsets.get("billing", "orders", 0) == 9


def test_progress_that_is_on_its_way_to_the_journal_survives_the_crash_of_another_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress_on_its_way(world)
    monkeypatch.setattr(world.broker.store, "clean_some", fail)
    with pytest.raises(ExceptionGroup) as caught:
        world.sim.brokers["broker-a"].wait_for_end()
    assert caught.group_contains(OSError, match="broken")
    monkeypatch.undo()
    world.sim.brokers["broker-a"].start()
    assert world.broker.offsets.get("billing", "orders", 0) == 9


def fail(*_: object, **__: object) -> None:
    raise OSError(5, "broken")


def test_a_delayed_message_comes_once_although_the_broker_stops_during_a_flush(
    world: World,
) -> None:
    world.topic("orders", 1)
    disk, durability = world.sim.brokers["broker-a"].disk, world.broker.durability
    flushes: list[SyncPlan] = []

    class SlowSyncer(InlineSyncer):
        async def sync(self, plan: SyncPlan) -> None:
            flushes.append(plan)
            await asyncio.sleep(2.0)
            sync_plan(disk, plan)

    world.sim.advance(2)
    durability.syncer = SlowSyncer(disk)
    world.send("orders", b"later", DELAY="1")
    world.sim.until(lambda: world.broker.store.max_offset("orders", 0) == 1)
    count = len(flushes)
    world.sim.until(lambda: len(flushes) > count)
    restart_in_order(world)
    world.sim.advance(5)
    assert world.broker.store.max_offset("orders", 0) == 1


def test_a_broker_that_unregistered_does_not_register_again(world: World) -> None:
    """Topics may change as long as clients are connected."""
    world.topic("orders", 1)
    (name_server,) = world.sim.name_servers.values()
    live, broker, node = name_server.server.table.live, world.broker, world.sim.brokers["broker-a"]
    node.begin_stop()
    world.sim.until(lambda: not live)
    broker.topics.put(plain_topic("late", 1))
    world.sim.advance(0.05)
    assert node.is_running
    assert not live
    node.stop()


def test_a_broker_serves_then_drains_then_has_stopped(world: World) -> None:
    broker, node = world.broker, world.sim.brokers["broker-a"]
    seen = [broker.state]
    node.begin_stop()
    world.sim.until(lambda: broker.state is not BrokerState.SERVING)
    seen.append(broker.state)
    node.wait_for_end()
    assert [*seen, broker.state] == [BrokerState.SERVING, BrokerState.DRAINING, BrokerState.STOPPED]


@pytest.mark.parametrize("ends", ["stop", "kill", "lose_power"])
def test_a_broker_that_ends_before_its_loops_begin_leaves_no_coroutine_unawaited(
    ends: str,
) -> None:
    with SimCluster(seed=1).run() as sim:
        node = sim.brokers["broker-a"]
        getattr(node, ends)()
        node.start()
        getattr(node, ends)()
    del sim, node
    gc.collect()  # warnings about coroutines that were never awaited are errors, now
