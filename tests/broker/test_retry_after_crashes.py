"""Retries after kills and power cuts: none lost, none early."""

from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.group_config import (
    CustomizedRetryPolicy,
    GroupRetryPolicy,
    RetryPolicyType,
    SubscriptionGroupConfig,
)
from tests.broker.crashes import crashed_worlds
from tests.broker.delivery_world import DeliveryWorld
from tests.broker.retry_world import DEAD, RETRY, first_message
from tests.seeds import CRASH_STEPS

_FIRST = (b"an order", "created", ("o-1", "o-2"))


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        yield world


def test_retries_survive_a_kill_at_every_step(world: DeliveryWorld) -> None:
    message = first_message(world)
    world.kill()
    world.give_back(message, "billing")
    world.kill()
    world.pass_time(9.999)
    world.kill()
    assert world.messages(RETRY) == []
    world.pass_time(0.001)
    world.deliver()
    world.save()
    world.kill()
    world.deliver()
    (retried,) = world.messages(RETRY)
    assert retried.reconsume_times == 1


def _fail_until_cut(world: DeliveryWorld, due_ms: dict[int, int], timed: bool) -> None:
    """Send a message back repeatedly; returns when each acknowledged retry is due.

    With `timed` the group's policy asks for delays that are not levels.
    """
    if timed:
        policy = GroupRetryPolicy(
            type=RetryPolicyType.CUSTOMIZED,
            customized_retry_policy=CustomizedRetryPolicy(next=(0, 0, 700, 1_100, 1_300)),
        )
        config = SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
        world.broker.groups.put(config)
    delays_ms = (700, 1_100, 1_300) if timed else (1_000, 5_000, 1_000)
    message = first_message(world)
    for number, delay_ms in enumerate(delays_ms):
        level = 0 if timed else RETRY_DELAYS_MS.index(delay_ms) + 1
        given_ms = world.now_ms
        reply = world.give_back(message, "billing", level=level, max_reconsume_times=3)
        assert reply.code == ResponseCode.SUCCESS
        due_ms[number + 1] = given_ms + delay_ms
        world.flush()
        world.pass_time(delay_ms / 1000)
        world.deliver()
        world.save()
        (message,) = [one for one in world.messages(RETRY) if one.reconsume_times == number + 1]
    assert world.give_back(message, "billing", max_reconsume_times=3).code == ResponseCode.SUCCESS
    due_ms[4] = 0
    world.flush()
    world.save()


@pytest.mark.parametrize("step", CRASH_STEPS)
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_a_crash_in_any_disk_call_makes_no_retry_lost_or_early(
    power: bool, timed: bool, step: int
) -> None:
    def work(world: DeliveryWorld, due_ms: dict[int, int]) -> None:
        _fail_until_cut(world, due_ms, timed)

    worlds = crashed_worlds(work, power=power, step=step, least=50, new_world=DeliveryWorld)
    for world, due_ms, call in worlds:
        world.pass_time(20)
        world.deliver()
        came = {one.reconsume_times: one for one in world.messages(RETRY)}
        came |= {one.reconsume_times: one for one in world.messages(DEAD)}
        assert due_ms.keys() <= came.keys(), call
        for times, message in came.items():
            assert message.store_timestamp >= due_ms.get(times, 0), call
            assert (message.body, message.tags, message.keys) == _FIRST, call
