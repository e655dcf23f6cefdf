"""A member that takes no locks is told where a queue stands when its owner has let go of it."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from sparrowmq.broker.hand_over import CHANGE_S, LONGEST_S
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.headers.offsets import OffsetFound, QueryConsumerOffset
from tests.broker.test_queue_locks import FIRST, SECOND, lock, unlock
from tests.broker.world import TalkingClient, World, broadcasts, subscribes, world_with

GO_WAITS_S = 3.0
"""Its time for this answer; Java's is 5 s."""
NEARLY_S = 0.1
"""Requests take some virtual milliseconds."""


def query(client: TalkingClient, queue_id: int = 0) -> asyncio.Task[Response]:
    header = QueryConsumerOffset(consumer_group="billing", topic="orders", queue_id=queue_id)
    return client.asking(header, timeout_s=GO_WAITS_S)


def told(world: World, asked: asyncio.Task[Response]) -> tuple[int, float]:
    """The offset, and how long its answer took."""
    began_s = world.sim.now_s
    offset = world.sim.wait(asked).header(OffsetFound).offset
    return offset, world.sim.now_s - began_s


def owner_and_java(world: World) -> tuple[TalkingClient, TalkingClient]:
    """A member that has locked both queues, and one that just came and locks nothing."""
    world.topic("orders")
    owner, java = world.client("owner"), world.client("java")
    owner.beat(subscribes("billing"))
    lock(owner, FIRST, SECOND)
    for queue_id in (0, 1):
        world.commit("billing", "orders", queue_id, 3)
    world.sim.advance(30)
    java.beat(subscribes("billing"))
    return owner, java


def test_the_answer_waits_for_the_owner_to_commit_and_unlock(world: World) -> None:
    owner, java = owner_and_java(world)
    asked = query(java)
    world.sim.advance(0.5)
    world.commit("billing", "orders", 0, 7)
    unlock(owner, SECOND)
    world.sim.advance(0.5)
    assert not asked.done()
    unlock(owner, FIRST)
    offset, took_s = told(world, asked)
    assert offset == 7
    assert took_s < NEARLY_S


@pytest.mark.parametrize("ends", ["kill", "disconnect", "leave"])
def test_the_answer_comes_when_the_owner_is_gone(world: World, ends: str) -> None:
    owner, java = owner_and_java(world)
    asked = query(java)
    world.sim.advance(0.5)
    assert not asked.done()
    how: dict[str, Callable[[], object]] = {
        "kill": owner.host.kill,
        "disconnect": owner.disconnect,
        "leave": partial(owner.leave, "billing"),
    }
    how[ends]()
    offset, took_s = told(world, asked)
    assert offset == 3
    assert took_s < NEARLY_S


def test_an_owner_that_keeps_its_queue_is_waited_for_less_long_than_clients_wait(
    world: World,
) -> None:
    _, java = owner_and_java(world)
    offset, took_s = told(world, query(java))
    assert offset == 3
    assert LONGEST_S <= took_s < LONGEST_S + NEARLY_S < GO_WAITS_S


def test_queues_asked_for_one_after_the_other_wait_for_one_change_together(world: World) -> None:
    _, java = owner_and_java(world)
    took_s = [told(world, query(java, number % 2))[1] for number in range(12)]
    assert sum(took_s) < CHANGE_S + NEARLY_S
    assert max(took_s[2:]) < NEARLY_S


def test_nobody_waits_when_nothing_has_changed_for_some_seconds(world: World) -> None:
    _, java = owner_and_java(world)
    world.sim.advance(CHANGE_S)
    assert told(world, query(java))[1] < NEARLY_S


def test_the_owner_does_not_wait_for_itself(world: World) -> None:
    owner, _ = owner_and_java(world)
    assert told(world, query(owner))[1] < NEARLY_S


def test_an_owner_that_came_back_on_another_connection_does_not_wait_for_itself(
    world: World,
) -> None:
    owner_and_java(world)
    again = world.client("owner again")
    again.beat(subscribes("billing"), client_id="owner")
    assert told(world, query(again))[1] < NEARLY_S


def test_a_member_that_locks_queues_is_never_kept_waiting(world: World) -> None:
    """It waits for the lock before it asks; if it asks all the same it has waited enough."""
    _, other = owner_and_java(world)
    assert lock(other, FIRST) == set()
    other.beat(subscribes("billing"))
    assert told(world, query(other))[1] < NEARLY_S


def test_operators_and_members_of_other_groups_are_not_kept_waiting(world: World) -> None:
    owner_and_java(world)
    operator, other = world.client("operator"), world.client("other")
    other.beat(subscribes("audit"))
    assert told(world, query(operator))[1] < NEARLY_S
    assert told(world, query(other))[1] < NEARLY_S


def test_nobody_waits_for_an_owner_that_was_not_told() -> None:
    with world_with(notify_consumer_ids_changed=False) as world:
        _, java = owner_and_java(world)
        assert told(world, query(java))[1] < NEARLY_S


def test_nobody_waits_for_a_lock_whose_owner_is_no_member(world: World) -> None:
    world.topic("orders")
    stranger, java = world.client("stranger"), world.client("java")
    java.beat(subscribes("billing"))
    lock(stranger, FIRST)
    world.commit("billing", "orders", 0, 3)
    assert told(world, query(java))[1] < NEARLY_S


def test_members_of_a_broadcasting_group_wait_for_nobody(world: World) -> None:
    world.topic("orders")
    one, two = world.client("one"), world.client("two")
    one.beat(broadcasts("billing"))
    lock(one, FIRST)
    two.beat(broadcasts("billing"))
    world.commit("billing", "orders", 0, 3)
    assert told(world, query(two))[1] < NEARLY_S


def test_who_waits_and_goes_leaves_nothing_behind(world: World) -> None:
    owner, java = owner_and_java(world)
    asked = query(java)
    world.sim.advance(0.5)
    java.disconnect()
    with pytest.raises(NetError):
        world.sim.wait(asked)
    unlock(owner, FIRST)
    assert lock(java, FIRST) == {FIRST}


def test_a_broker_that_stops_keeps_nobody_waiting(world: World) -> None:
    _, java = owner_and_java(world)
    asked = query(java)
    world.sim.advance(0.1)
    node = world.sim.brokers["broker-a"]
    began_s = world.sim.now_s
    node.stop()
    with pytest.raises(NetError):
        world.sim.wait(asked)
    assert world.sim.now_s - began_s < LONGEST_S
