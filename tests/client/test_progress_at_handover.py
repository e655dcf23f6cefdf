"""The progress of a queue that a member sees when it takes the queue and when it leaves it."""

from collections.abc import Sequence

import pytest

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.errors import NoRoute
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.group.rebalance_plan import Reason
from sparrowmq.net.errors import CallTimedOut
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import TOPIC, Member, create_topic, owned, send, stored_offset


@pytest.mark.parametrize(
    "error",
    [NoRoute(TOPIC, "gone"), CallTimedOut("broker-a", "QueryConsumerOffset", 3), BodyError("?")],
    ids=lambda error: type(error).__name__,
)
def test_an_unreadable_offset_delays_only_its_queue_which_is_retried(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[list[int]] = []

    def listen(_: str, __: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        told.append([queue.queue_id for queue in mine])

    queues = {MessageQueue(TOPIC, "broker-a", number) for number in range(2)}
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)
        consumer = Member(sim, listener=listen).consumer
        sim.advance(5)
        load = membership_of(consumer).offsets.load

        async def load_one(queue: MessageQueue) -> Position | None:
            if queue.queue_id == 0:
                raise error
            return await load(queue)

        monkeypatch.setattr(membership_of(consumer).offsets, "load", load_one)
        sim.run(
            membership_of(consumer).handover.give_up(
                dict.fromkeys(queues, Reason.ASSIGNED_ELSEWHERE)
            ),
            on=sim.host("member"),
        )
        membership_of(consumer).wake()
        sim.advance(5)
        assert told == [[0, 1], [1]]
        monkeypatch.undo()
        sim.advance(2)
        assert told == [[0, 1], [1], [0, 1]]


def test_a_member_forgets_its_progress_in_a_queue_that_goes() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)
        first = Member(sim, name="a")
        for queue_id in range(2):
            send(sim, b"x", queue_id=queue_id)
        sim.advance(6)
        kept, gone = (MessageQueue(TOPIC, "broker-a", number) for number in range(2))
        member = membership_of(first.consumer)
        assert [member.offsets.get(queue) for queue in (kept, gone)] == [1, 1]
        Member(sim, name="b")
        sim.advance(3)
        assert [member.offsets.get(queue) for queue in (kept, gone)] == [1, -1]
        member.ownership.lose(member.held[kept])
        assert member.offsets.get(kept) == -1


def test_progress_noted_for_a_queue_before_it_was_ours_does_not_count() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        queue = MessageQueue(TOPIC, "broker-a", 0)
        member = membership_of(Member(sim).consumer)
        send(sim, b"x")
        sim.advance(6)
        sim.run(member.handover.give_up({queue: Reason.ASSIGNED_ELSEWHERE}), on=sim.host("member"))
        member.offsets.update(queue, Position(99))
        member.wake()
        sim.advance(10)
        assert queue in member.held
        assert stored_offset(sim) == 1


def test_members_share_queues_in_the_order_of_their_ids_not_of_their_arrival() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 4)
        hosts = [sim.host(name) for name in ("one", "two")]
        first, second = sorted(hosts, key=lambda host: host.ip)
        late = Member(sim, name=second.name)
        sim.advance(3)
        early = Member(sim, name=first.name)
        sim.advance(3)
        shares = [
            [queue.queue_id for queue in one.consumer.assignment() if queue.topic == TOPIC]
            for one in (early, late)
        ]
        assert shares == [[0, 1], [2, 3]]


def test_pulls_carry_progress_before_it_is_stored_every_5_s() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        sim.until(lambda: owned(member) == 1)
        for body in (b"0", b"1"):
            send(sim, body)
            sim.advance(0.5)
        assert stored_offset(sim) == 1


def test_a_change_of_queues_gives_subscriptions_a_new_version() -> None:
    def version(member: Member) -> int:
        (subscription,) = (
            one
            for one in membership_of(member.consumer).consumer_data().subscription_data_set
            if one.topic == TOPIC
        )
        return subscription.sub_version

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)
        first = Member(sim, name="a")
        sim.advance(5)
        before = version(first)
        sim.advance(30)
        assert version(first) == before
        began_ms = sim.clock()
        Member(sim, name="b")
        sim.advance(3)
        assert began_ms <= version(first) <= sim.clock()
