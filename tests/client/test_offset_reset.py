"""An operator resets a group while its members work."""

import asyncio

import pytest

from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


def reset_to_0(sim: RunningCluster) -> None:
    reset = InvokeResetOffset(
        topic=TOPIC, group=GROUP, timestamp=-1, is_force=True, queue_id=0, offset=0
    )
    sim.wait(sim.client.call(reset))


async def handle_slowly(message: MessageExt) -> None:
    await asyncio.sleep(5 if message.body == b"slow" else 0)


def held(member: Member) -> HeldQueue:
    return membership_of(member.consumer).held[QUEUE]


def test_what_waits_for_a_running_handler_is_not_begun_before_a_reset() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, handle_slowly, workers=1)
        send(sim, b"one", b"slow", b"later")
        sim.until(lambda: member.got == [b"one", b"slow"])
        reset_to_0(sim)
        sim.advance(30)
        assert member.got == [b"one", b"slow", b"one", b"slow", b"later"]


def test_a_queue_starts_over_when_the_handler_that_ran_at_the_reset_is_done() -> None:
    running: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        assert running == []
        running.append(message.body)
        await asyncio.sleep(5)
        running.clear()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, handle)
        send(sim, b"slow")
        sim.until(lambda: member.got == [b"slow"])
        reset_to_0(sim)
        sim.advance(4)
        assert member.got == [b"slow"]
        sim.advance(10)
        assert member.got == [b"slow", b"slow"]


def test_a_queue_lost_and_taken_again_during_a_reset_is_left_unchanged() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, handle_slowly)
        send(sim, b"one", b"slow")
        sim.until(lambda: member.got == [b"one", b"slow"])
        reset_to_0(sim)
        sim.advance(1)
        membership_of(member.consumer).ownership.lose(held(member))
        membership_of(member.consumer).wake()
        sim.advance(2)
        anew = held(member)
        offset = membership_of(member.consumer).offsets.get(QUEUE)
        sim.advance(3)  # the handler of the lost one ends, and with it the reset
        assert held(member) is anew
        assert not anew.is_dropped
        assert membership_of(member.consumer).offsets.get(QUEUE) >= offset


def test_a_queue_continues_although_the_connection_ends_during_a_reset() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)

        member = Member(sim, handle_slowly)
        send(sim, b"one", b"slow")
        sim.until(lambda: member.got == [b"one", b"slow"])
        reset_to_0(sim)
        sim.advance(1)
        group = sim.broker.consumers.group(GROUP)
        assert group is not None
        for connection in group.members:
            connection.abort()
        sim.advance(30)
        assert member.got == [b"one", b"slow", b"one", b"slow"]


@pytest.mark.parametrize("orderly", [False, True])
def test_a_reset_made_while_a_member_is_cut_off_is_applied(orderly: bool) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, orderly=orderly)
        send(sim, b"one", b"two")
        sim.until(lambda: member.got == [b"one", b"two"])
        sim.advance(10)
        group = sim.broker.consumers.group(GROUP)
        assert group is not None
        for connection in tuple(group.members):
            connection.abort()
        reset_to_0(sim)
        sim.advance(60)
        assert member.got == [b"one", b"two"] * 2
