"""A member that takes no locks gets no messages of a queue until its owner has released it."""

import asyncio
from collections.abc import Callable
from functools import partial

import pytest

from sparrowmq.broker.queue_handover import LONGEST_S, offset_after_handover
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.headers.pull import Pulled, PullMessage
from sparrowmq.protocol.sys_flag import PULL_COMMIT_OFFSET, PULL_SUSPEND
from tests.broker.test_queue_locks import FIRST, SECOND, lock, unlock
from tests.broker.world import TalkingClient, World, broadcasts, subscribes, world_with

JAVA_SUSPENDS_S = 15.0
JAVA_WAITS_S = 30.0
NEARLY_S = 0.1
"""Requests take some virtual milliseconds."""
SENT = 10


def wanted(offset: int = 3, flags: int = PULL_SUSPEND) -> PullMessage:
    return PullMessage(
        consumer_group="billing",
        topic="orders",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=flags,
        commit_offset=offset,
        suspend_timeout_millis=int(JAVA_SUSPENDS_S * 1000),
        sub_version=0,
    )


def pull(
    client: TalkingClient, offset: int = 3, *, flags: int = PULL_SUSPEND
) -> asyncio.Task[Response]:
    return client.asking(wanted(offset, flags), timeout_s=JAVA_WAITS_S)


def waiting_pull(world: World, client: TalkingClient, offset: int = 3) -> asyncio.Task[Response]:
    """One that has reached the broker and is not answered."""
    asked = pull(client, offset)
    world.sim.advance(0.5)
    assert not asked.done()
    return asked


def answer(world: World, asked: asyncio.Task[Response]) -> tuple[int, int, float]:
    """Its code, its next offset, and how long it took."""
    began_s = world.sim.now_s
    response = world.sim.wait(asked)
    return response.code, response.header(Pulled).next_begin_offset, world.sim.now_s - began_s


def is_served(world: World, asked: asyncio.Task[Response]) -> bool:
    code, _, took_s = answer(world, asked)
    return code == ResponseCode.SUCCESS and took_s < NEARLY_S


def owner_and_java(world: World, *, stored: int = 3) -> tuple[TalkingClient, TalkingClient]:
    """A member that has locked both queues, and one that just came and locks nothing."""
    world.topic("orders")
    for queue_id in (0, 1):
        world.send("orders", *[b"x"] * SENT, queue_id=queue_id)
    owner, java = world.client("owner"), world.client("java")
    owner.beat(subscribes("billing"))
    lock(owner, FIRST, SECOND)
    for queue_id in (0, 1):
        if stored >= 0:
            world.commit("billing", "orders", queue_id, stored)
    world.sim.advance(30)
    java.beat(subscribes("billing"))
    return owner, java


def test_a_pull_waits_for_the_owner_and_continues_at_its_last_offset(world: World) -> None:
    owner, java = owner_and_java(world)
    asked = pull(java)
    world.sim.advance(9)
    world.commit("billing", "orders", 0, 7)
    unlock(owner, SECOND)
    world.sim.advance(0.5)
    assert not asked.done()
    unlock(owner, FIRST)
    code, next_offset, took_s = answer(world, asked)
    assert (code, next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 7)
    assert took_s < NEARLY_S
    assert is_served(world, pull(java, 7))


@pytest.mark.parametrize("ends", ["kill", "disconnect", "leave"])
def test_the_answer_comes_when_the_owner_is_gone(world: World, ends: str) -> None:
    owner, java = owner_and_java(world)
    asked = waiting_pull(world, java)
    how: dict[str, Callable[[], object]] = {
        "kill": owner.host.kill,
        "disconnect": owner.disconnect,
        "leave": partial(owner.leave, "billing"),
    }
    how[ends]()
    _, next_offset, took_s = answer(world, asked)
    assert next_offset == 3
    assert took_s < NEARLY_S


def test_a_lock_that_ends_before_the_wait_begins_is_not_waited_for(world: World) -> None:
    """The wait is a task: other requests of the same turn of the loop come before it."""
    owner, java = owner_and_java(world)
    waiting = offset_after_handover(world.broker, wanted(), LONGEST_S)
    unlock(owner, FIRST)
    began_s = world.sim.now_s
    assert world.sim.wait(java.host.start(waiting)) == 3
    assert world.sim.now_s - began_s < NEARLY_S


def test_a_pull_keeps_waiting_when_the_queue_moves_to_another_owner(world: World) -> None:
    owner, java = owner_and_java(world)
    other = world.client("other")
    other.beat(subscribes("billing"))
    unlock(owner, FIRST)
    lock(other, FIRST)
    asked = waiting_pull(world, java)
    unlock(other, FIRST)
    assert answer(world, asked)[2] < NEARLY_S


def test_a_pull_waits_for_an_owner_that_keeps_its_queue_as_long_as_python_members_do(
    world: World,
) -> None:
    _, java = owner_and_java(world)
    world.sim.advance(LONGEST_S / 3)
    asked = pull(java)
    code, next_offset, took_s = answer(world, asked)
    assert (code, next_offset) == (ResponseCode.PULL_RETRY_IMMEDIATELY, 3)
    assert LONGEST_S * 2 / 3 - NEARLY_S < took_s < LONGEST_S * 2 / 3 + NEARLY_S
    assert is_served(world, pull(java))
    assert "billing" not in world.broker.watched.names


def test_no_pull_waits_longer_than_it_asks_for() -> None:
    with world_with(long_poll_s=2.0) as world:
        _, java = owner_and_java(world)
        code, _, took_s = answer(world, pull(java))
        assert code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert 2.0 <= took_s < 2.0 + NEARLY_S


def test_a_pull_that_does_not_ask_for_waiting_is_served(world: World) -> None:
    """Its application decides which messages it reads, and when."""
    _, java = owner_and_java(world)
    assert is_served(world, pull(java, flags=0))


def test_a_member_that_guessed_its_start_goes_back_to_the_offset_the_owner_stored(
    world: World,
) -> None:
    """The owner releases messages it has not begun: they must not be skipped."""
    owner, java = owner_and_java(world, stored=-1)
    asked = waiting_pull(world, java, SENT)
    world.commit("billing", "orders", 0, 6)
    unlock(owner, FIRST)
    assert answer(world, asked)[1] == 6


def test_a_member_that_began_at_a_stored_offset_is_never_sent_back(world: World) -> None:
    """It may have been the owner before, and have consumed what lies between."""
    owner, java = owner_and_java(world)
    asked = waiting_pull(world, java, 8)
    world.commit("billing", "orders", 0, 6)
    unlock(owner, FIRST)
    assert answer(world, asked)[1] == 8


def test_a_member_keeps_its_offset_if_none_was_stored(world: World) -> None:
    owner, java = owner_and_java(world, stored=-1)
    asked = waiting_pull(world, java, 4)
    unlock(owner, FIRST)
    assert answer(world, asked)[1] == 4


def commit(client: TalkingClient, offset: int) -> None:
    header = UpdateConsumerOffset(
        consumer_group="billing", topic="orders", queue_id=0, commit_offset=offset
    )
    assert client.ask(header).code == ResponseCode.SUCCESS


def test_a_waiting_member_does_not_lower_the_owner_s_progress(world: World) -> None:
    """Java's clients store all their offsets every 5 s, that of a queue they wait for too."""
    owner, java = owner_and_java(world)
    asked = waiting_pull(world, java)
    commit(owner, 7)
    commit(java, 3)
    unlock(owner, FIRST)
    assert answer(world, asked)[1] == 7


def test_a_former_owner_may_still_commit_its_progress(world: World) -> None:
    _, java = owner_and_java(world)
    commit(java, 5)
    assert world.broker.offsets.get("billing", "orders", 0) == 5


def test_an_owner_may_go_back(world: World) -> None:
    owner, java = owner_and_java(world)
    commit(owner, 1)
    assert world.broker.offsets.get("billing", "orders", 0) == 1
    unlock(owner, FIRST)
    commit(java, 0)
    assert world.broker.offsets.get("billing", "orders", 0) == 0


def test_an_operator_may_rewind_whichever_member_has_the_queue(world: World) -> None:
    owner_and_java(world)
    commit(world.client("operator"), 0)
    assert world.broker.offsets.get("billing", "orders", 0) == 0


def test_a_pull_that_waits_stores_no_progress(world: World) -> None:
    _, java = owner_and_java(world)
    asked = pull(java, 9, flags=PULL_SUSPEND | PULL_COMMIT_OFFSET)
    world.sim.advance(0.5)
    assert not asked.done()
    assert world.broker.offsets.get("billing", "orders", 0) == 3


def test_the_owner_does_not_wait_for_itself(world: World) -> None:
    owner, _ = owner_and_java(world)
    assert is_served(world, pull(owner))


def test_an_owner_that_came_back_on_another_connection_does_not_wait_for_itself(
    world: World,
) -> None:
    owner_and_java(world)
    again = world.client("owner again")
    again.beat(subscribes("billing"), client_id="owner")
    assert is_served(world, pull(again))


def test_a_member_that_locks_queues_is_never_kept_waiting(world: World) -> None:
    """It waits for the lock before it pulls; if it pulls anyway it has waited enough."""
    _, other = owner_and_java(world)
    assert lock(other, FIRST) == set()
    other.beat(subscribes("billing"))
    assert is_served(world, pull(other))


def test_a_client_that_is_no_member_does_not_wait(world: World) -> None:
    owner_and_java(world)
    operator, other = world.client("operator"), world.client("other")
    other.beat(subscribes("audit"))
    assert is_served(world, pull(operator))
    assert is_served(world, pull(other))


def test_no_pull_waits_if_the_assignment_has_not_changed_for_some_seconds(world: World) -> None:
    _, java = owner_and_java(world)
    world.sim.advance(LONGEST_S)
    assert is_served(world, pull(java))


def test_no_pull_waits_for_an_owner_that_was_not_notified() -> None:
    with world_with(notify_consumer_ids_changed=False) as world:
        _, java = owner_and_java(world)
        assert is_served(world, pull(java))


def test_no_pull_waits_for_a_lock_whose_owner_is_no_member(world: World) -> None:
    world.topic("orders")
    world.send("orders", *[b"x"] * SENT)
    stranger, java = world.client("stranger"), world.client("java")
    java.beat(subscribes("billing"))
    lock(stranger, FIRST)
    assert is_served(world, pull(java))


def test_members_of_a_broadcasting_group_never_wait(world: World) -> None:
    world.topic("orders")
    world.send("orders", *[b"x"] * SENT)
    one, two = world.client("one"), world.client("two")
    one.beat(broadcasts("billing"))
    lock(one, FIRST)
    two.beat(broadcasts("billing"))
    assert is_served(world, pull(two))


def test_a_waiting_member_that_disconnects_leaves_no_state(world: World) -> None:
    owner, java = owner_and_java(world)
    asked = waiting_pull(world, java)
    java.disconnect()
    with pytest.raises(NetError):
        world.sim.wait(asked)
    unlock(owner, FIRST)
    assert lock(java, FIRST) == {FIRST}


def test_a_broker_that_stops_ends_all_waits(world: World) -> None:
    _, java = owner_and_java(world)
    asked = waiting_pull(world, java)
    began_s = world.sim.now_s
    world.sim.brokers["broker-a"].stop()
    assert world.sim.wait(asked).code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert world.sim.now_s - began_s < 1
