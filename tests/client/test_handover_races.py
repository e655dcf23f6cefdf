"""What changes while a consumer waits for an answer: plans, owners, operators, connections."""

import asyncio
from collections.abc import Iterable

import pytest

from sparrowmq.client import broker_calls
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.group import lock_requests
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.queue_handover import NEVER
from sparrowmq.client.group.rebalance_plan import Reason
from sparrowmq.net.calls import Response
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.clients import LockBatch
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, owned, send


@pytest.mark.parametrize("orderly", [False, True])
def test_a_queue_that_is_reassigned_while_leaving_is_consumed_on(orderly: bool) -> None:
    """Its handler runs for longer than the other member stays."""
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)

        async def handle(message: MessageExt) -> None:
            await asyncio.sleep(6 if message.body == b"slow" else 0)

        member = Member(sim, handle, name="a", orderly=orderly)
        sim.advance(3)
        send(sim, b"slow", queue_id=1)
        sim.until(lambda: member.got == [b"slow"])
        guest = Member(sim, name="b", orderly=orderly)
        sim.advance(2)
        assert owned(guest) == 0
        guest.leave()
        send(sim, b"next", queue_id=1)
        sim.advance(10)
        assert member.got == [b"slow", b"next"]


def test_a_message_on_its_way_to_the_dead_letters_keeps_its_queue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its next owner would get it again, and send it there again."""
    give_back = GivingBack.give_back

    async def slowly(giving_back: GivingBack, message: MessageExt, level: int, why: str) -> bool:
        await asyncio.sleep(3)
        return await give_back(giving_back, message, level, why)

    monkeypatch.setattr(GivingBack, "give_back", slowly)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)

        async def fail(message: MessageExt) -> None:
            raise ValueError("never works")

        member = Member(sim, fail, name="a", orderly=True, max_reconsume_times=0)
        sim.advance(3)
        send(sim, b"bad", queue_id=1)
        sim.until(lambda: member.got == [b"bad"])
        taker = Member(sim, name="b", orderly=True)
        sim.until(lambda: owned(taker) == 1)
        sim.advance(5)
        assert taker.got == []


def test_a_queue_that_comes_into_doubt_while_another_is_stored_is_not_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)
        member = membership_of(Member(sim).consumer)
        sim.advance(3)
        stored: list[MessageQueue] = []
        monkeypatch.setattr(member.ownership, "is_sure", lambda held: not stored)

        async def persist(queues: Iterable[MessageQueue], *, raises: bool = False) -> None:
            for queue in queues:
                stored.append(queue)
                await asyncio.sleep(1)

        monkeypatch.setattr(member.offsets, "persist", persist)
        sim.advance(6)
        assert len(stored) == 1
        monkeypatch.undo()


async def no_round() -> float:
    return NEVER


def slow_locks_at(monkeypatch: pytest.MonkeyPatch, address: str) -> list[str]:
    """Renewals of locks at this broker take 3 s; the addresses that were asked."""
    asked: list[str] = []
    call = broker_calls.call

    async def slowly(client: ClientCore, at: str, header: RequestHeader, body: bytes) -> Response:
        if isinstance(header, LockBatch):
            asked.append(at)
            await asyncio.sleep(3 if at == address else 0)
        return await call(client, at, header, body)

    monkeypatch.setattr(lock_requests, "call", slowly)
    return asked


def test_a_queue_released_during_a_lock_renewal_is_not_locked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim)
        consumer = Member(sim, orderly=True).consumer
        sim.until(lambda: len(membership_of(consumer).held) == 4)
        monkeypatch.setattr(membership_of(consumer).rebalance, "round", no_round)
        first, second = sorted(sim.brokers)
        asked = slow_locks_at(monkeypatch, sim.brokers[first].address)
        sim.until(lambda: bool(asked))
        queue = MessageQueue(TOPIC, second, 0)
        sim.run(
            membership_of(consumer).handover.give_up({queue: Reason.ASSIGNED_ELSEWHERE}),
            on=sim.host("member"),
        )
        sim.advance(10)
        assert sim.brokers[second].broker.locks.owner(GROUP, queue) is None


def test_a_queue_taken_again_meanwhile_is_not_dropped_with_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = membership_of(Member(sim).consumer)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        sim.until(lambda: queue in member.held)
        monkeypatch.setattr(member.rebalance, "round", no_round)
        before = member.held[queue]

        async def lost(held: HeldQueue, *_: object) -> bool:
            if held is not before:
                return False
            await member.handover.give_up({queue: Reason.ASSIGNED_ELSEWHERE})
            await member.handover.take({queue: Reason.ASSIGNED})
            return True

        monkeypatch.setattr(member.ownership, "is_lost", lost)
        sim.advance(25)
        assert member.held[queue] is not before
        assert not member.held[queue].is_dropped


def test_a_handler_that_fails_while_its_message_is_sent_back_does_not_send_it_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The message was taken from it because it took too long."""
    given: list[bytes] = []
    begun = asyncio.Event()

    async def slowly(giving_back: GivingBack, message: MessageExt, level: int, why: str) -> bool:
        given.append(message.body)
        begun.set()
        await asyncio.sleep(3)
        return True

    async def fail_late(message: MessageExt) -> None:
        await begun.wait()
        raise ValueError("late and in vain")

    monkeypatch.setattr(GivingBack, "give_back", slowly)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, fail_late, consume_timeout_s=10)
        send(sim, b"x")
        sim.advance(60)
        assert given == [b"x"]
        held = membership_of(member.consumer).held[MessageQueue(TOPIC, "broker-a", 0)]
        assert len(held.process_queue) == 0
