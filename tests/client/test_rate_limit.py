"""Consumers with a limit of messages a second, exact to the message in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.consuming.scheduled_pull import Turn, consumer_of
from sparrowmq.client.group.rate_limit import Rate, RateLimit
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.lite_readers import QUEUE, numbers, using
from tests.client.lite_readers import run as read
from tests.client.members import TOPIC, Member, create_topic, send
from tests.client.test_scheduled_pull import Scheduled


class Taker(Member):
    """A member that notes when its handler got each message."""

    def __init__(self, sim: RunningCluster, **options: object) -> None:
        self.times: list[float] = []
        super().__init__(sim, self._note, **options)  # type: ignore[arg-type]

    async def _note(self, message: MessageExt) -> None:
        self.times.append(self.sim.now_s)


EXACT_S = 1e-6
"""Sums of times are not exact."""


def assert_every_ticket_is_used(times: list[float], per_second: float, bucket: int) -> None:
    """Messages come when the ticket of the last one of their batch is issued: no message too early,
    and none too few. Some have waited since the first request, which found a full bucket."""
    came = sorted(Counter(times).items())
    counts = list(accumulate(count for _, count in came))
    issued = [max(0, count - bucket) / per_second for count in counts]
    began_s = came[0][0] - issued[0]
    assert [each - began_s for each, _ in came] == pytest.approx(issued, abs=EXACT_S)


def assert_steady(
    times: list[float], since_s: float, until_s: float, per_second: float, late_s: float = EXACT_S
) -> None:
    """Between these times one message came with each ticket. `late_s` is less than the time between
    two tickets, so that it is exact to the message."""
    assert late_s < 0.5 / per_second
    within = [each for each in times if since_s <= each < until_s]
    expected = [within[0] + number / per_second for number in range(len(within))]
    assert within == pytest.approx(expected, abs=late_s)
    assert within[0] - since_s <= 1 / per_second + late_s
    assert until_s - within[-1] <= 1 / per_second + late_s


@pytest.mark.parametrize(
    "options",
    [{}, {"orderly": True}, {"batch": 8}, {"workers": 1}, {"model": MessageModel.BROADCASTING}],
    ids=["concurrent", "orderly", "batches", "one worker", "broadcasting"],
)
def test_a_member_takes_its_rate_and_no_more(options: dict[str, object], tmp_path: object) -> None:
    if "model" in options:
        options |= {"offsets_dir": tmp_path}
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        for queue_id in (0, 1):
            send(sim, *numbers(0, 100), queue_id=queue_id)
        member = Taker(sim, max_per_second=20, **options)
        sim.advance(14)
        assert_every_ticket_is_used(member.times, 20, bucket=2)
        assert len(member.got) == 200


def test_messages_come_evenly_not_in_bursts() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 60))
        member = Taker(sim, max_per_second=10)
        sim.until(lambda: len(member.got) == 60)
        pauses = [later - earlier for earlier, later in pairwise(member.times)]
        assert pauses == pytest.approx([0.1] * 59, abs=EXACT_S)


def test_an_idle_consumer_catches_up_a_tenth_of_a_second() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Taker(sim, max_per_second=100)
        sim.advance(60)
        send(sim, *numbers(0, 60))
        sim.until(lambda: len(member.got) == 60)
        came = [each - member.times[0] for each in member.times]
        issued = [max(0, count - 10) / 100 for count in range(1, 61)]
        assert all(each >= first - EXACT_S for each, first in zip(came, issued, strict=True))
        # The first ones came as fast as they were sent, and then others waited for their tickets.
        assert came[20:] == pytest.approx(issued[20:], abs=EXACT_S)


def test_a_new_rate_applies_to_messages_that_wait_already() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 50))
        member = Taker(sim, max_per_second=0.01)
        sim.advance(5)
        assert len(member.got) == 1
        since_s, (first_s,) = sim.now_s, member.times
        member.consumer.limit_rate(10)
        sim.advance(2)
        issued = 0.01 * (since_s - first_s)  # at the old rate
        expected = [since_s + (number - issued) / 10 for number in range(1, 21)]
        assert member.times[1:] == pytest.approx(expected, abs=EXACT_S)
        member.consumer.limit_rate(None)
        sim.advance(0.1)
        assert len(member.got) == 50


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_flow_control_names_the_rate_as_the_reason(orderly: bool) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 50))
        member = Taker(sim, max_per_second=1, limits=FlowLimits(messages=10), orderly=orderly)
        sim.advance(3)
        reason = member.consumer.waits()[QUEUE]
        assert reason.startswith("this member takes at most 1 messages/s; ")
        assert "wait for the handler; at most 10 are allowed" in reason


@pytest.mark.parametrize("limits", [{"limits": FlowLimits(messages=10)}, {"limit_all": 10}])
def test_a_lite_pull_consumer_names_the_rate_while_a_poll_waits_for_it(
    limits: dict[str, Any],
) -> None:
    async def poll(consumer: LitePullConsumer) -> tuple[dict[MessageQueue, str], ...]:
        await consumer.poll()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(consumer.poll(timeout_s=8))
            await asyncio.sleep(3)
            while_waiting = consumer.waits()
            await waiting
        await asyncio.sleep(3)
        between_polls = consumer.waits()
        consumer.limit_rate(None)
        while await consumer.poll(timeout_s=1):
            pass
        return while_waiting, between_polls, consumer.waits()

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 50))
        while_waiting, between_polls, at_last = read(sim, poll, max_per_second=0.1, **limits)
    assert while_waiting[QUEUE].startswith("this member takes at most 0.1 messages/s; 19 messages")
    assert between_polls[QUEUE].startswith("19 messages wait")  # the application is what is slow
    assert at_last == {}


def test_pulls_that_wait_for_the_rate_are_named_by_queue() -> None:
    async def take(queue: MessageQueue, turn: Turn) -> None:
        await turn.consumer.pull(queue, 0)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 5))
        scheduled = Scheduled(sim, "a", {TOPIC: take}, max_per_second=0.1)
        sim.advance(3)
        assert scheduled.pull.waits() == {QUEUE: "this member takes at most 0.1 messages/s"}
        scheduled.pull.limit_rate(None)
        sim.advance(1)
        assert scheduled.pull.waits() == {}


def test_a_member_without_queues_reports_that_it_waits_for_some() -> None:
    async def take(queue: MessageQueue, turn: Turn) -> None:
        await turn.consumer.pull(queue, 0)

    async def pull(consumer: PullConsumer) -> None:
        await consumer.pull(QUEUE, 0)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 5))
        members = [
            Scheduled(sim, name, {TOPIC: take}, max_per_second=5, share_rate=True) for name in "ab"
        ]
        sim.advance(3)
        holds = [consumer_of(each.pull) for each in members]
        idle = next(each for each in holds if not each.assignment())
        task = sim.host("b").start(pull(idle))
        sim.advance(3)
        assert idle.waits() == {
            QUEUE: "the group takes at most 5 messages/s, and this member holds none of its queues"
        }
        task.cancel()
        sim.advance(1)
        assert idle.waits() == {}


class LiteTaker:
    """A member that polls, and notes when it got each message."""

    def __init__(
        self, sim: RunningCluster, name: str, topics: Sequence[str], **options: object
    ) -> None:
        self.times: list[float] = []
        self._sim = sim
        self._leaving = asyncio.Event()
        options["subscriptions"] = dict.fromkeys(topics, "*")
        host = sim.host(name)
        self.task = host.start(using(sim, name, self._poll, **options))

    async def _poll(self, consumer: LitePullConsumer) -> None:
        while not self._leaving.is_set():
            found = await consumer.poll(timeout_s=0.1)
            self.times += [self._sim.now_s] * len(found)

    def leave(self) -> None:
        self._leaving.set()
        self._sim.wait(self.task)


class ScheduledTaker(Scheduled):
    """A member whose callbacks pull from where the group is, and note when they got messages."""

    def __init__(
        self, sim: RunningCluster, name: str, topics: Sequence[str], **options: object
    ) -> None:
        self.times: list[float] = []
        super().__init__(sim, name, dict.fromkeys(topics, self._take), **options)

    async def _take(self, queue: MessageQueue, turn: Turn) -> None:
        at = await turn.consumer.committed(queue) or 0
        found = await turn.consumer.pull(queue, at)
        turn.consumer.update_offset(queue, found.next_offset)
        await turn.consumer.commit([queue])
        self.times += [self._sim.now_s] * len(found.messages)
        turn.next_delay_s = 0.01


def push(sim: RunningCluster, name: str, topics: Sequence[str], **options: object) -> Taker:
    return Taker(sim, name=name, subscriptions=dict.fromkeys(topics, "*"), **options)


@pytest.mark.parametrize(
    ("join", "late_s"),
    [
        (push, EXACT_S),
        (partial(push, orderly=True), EXACT_S),
        (LiteTaker, EXACT_S),
        (ScheduledTaker, 0.015),  # a message comes with the answer to its pull
    ],
    ids=["concurrent", "orderly", "lite pull", "scheduled pull"],
)
def test_members_share_a_rate_by_the_queues_they_hold_of_all_topics(
    join: Callable[..., Taker | LiteTaker | ScheduledTaker], late_s: float
) -> None:
    """Retry topics do not count: with the one of push consumers there would be seven queues."""

    def check(rates: dict[Taker | LiteTaker | ScheduledTaker, float]) -> None:
        sim.advance(5)
        since_s = sim.now_s
        sim.advance(2)
        for member, rate in rates.items():
            assert_steady(member.times, since_s, sim.now_s, rate, late_s)

    with SimCluster(seed=1).run() as sim:
        for topic, queues in (TOPIC, 4), ("returns", 2):
            create_topic(sim, queues, topic)
            for queue_id in range(queues):
                for body in numbers(0, 110):
                    sim.wait(sim.client.send(topic, body, queue_id=queue_id))
        options = {"topics": (TOPIC, "returns"), "max_per_second": 24, "share_rate": True}
        first = join(sim, name="a", **options)
        check({first: 24})
        second, third = (join(sim, name=name, **options) for name in "bc")
        check({first: 12, second: 8, third: 4})  # 2 and 1 queues, 1 and 1, 1 of `orders` only
        second.leave()
        check({first: 12, third: 12})


def test_a_pull_consumer_of_single_queues_refuses_a_shared_rate() -> None:
    text = "share_rate needs subscribed topics, .* give this consumer topics instead of single"
    with pytest.raises(ValueError, match=text):
        PullConsumer("billing", max_per_second=5, share_rate=True)
    pulls = PullConsumer("billing")
    with pytest.raises(ValueError, match=text):
        pulls.limit_rate(5, share_rate=True)
    pulls.limit_rate(5)


def test_assign_and_a_shared_rate_exclude_each_other_in_any_order() -> None:
    async def assign_first(consumer: LitePullConsumer) -> None:
        await consumer.assign([QUEUE])
        with pytest.raises(ValueError, match="share_rate needs subscribed topics"):
            consumer.limit_rate(5, share_rate=True)
        consumer.limit_rate(5)
        assert len(await consumer.poll()) == 1

    async def limit_first(consumer: LitePullConsumer) -> None:
        consumer.limit_rate(5, share_rate=True)
        with pytest.raises(ValueError, match="share_rate needs subscribed topics"):
            await consumer.assign([QUEUE])
        await consumer.subscribe(TOPIC)  # nothing was assigned, and topics have shares
        assert len(await consumer.poll()) == 1

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 5))
        read(sim, assign_first, name="a", group="a", subscriptions=None)
        read(sim, limit_first, name="b", group="b", subscriptions=None)


def test_a_topic_without_queues_yet_leaves_the_rate_as_it_is() -> None:
    async def poll(consumer: LitePullConsumer) -> int:
        assert await consumer.poll(timeout_s=5) == []
        await consumer.unsubscribe("later")
        await consumer.subscribe(TOPIC)
        return len(await consumer.poll(timeout_s=5))

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 5))
        options: dict[str, Any] = {
            "max_per_second": 5,
            "share_rate": True,
            "subscriptions": {"later": "*"},
        }
        assert read(sim, poll, **options) == 1


def test_a_member_stops_at_once_although_messages_wait_for_the_rate() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 30))
        slow = Taker(sim, name="a", max_per_second=0.01)
        sim.advance(2)
        began_s = sim.now_s
        slow.leave()
        assert sim.now_s - began_s < 1
        fast = Taker(sim, name="b")
        sim.advance(2)
        assert sorted([*slow.got, *fast.got]) == sorted(numbers(0, 30))  # each of them once


def test_polls_return_only_messages_within_the_rate() -> None:
    async def poll(consumer: LitePullConsumer) -> tuple[list[int], list[bytes]]:
        sizes, found = [], []
        loop = asyncio.get_running_loop()
        until_s = loop.time() + 3
        while loop.time() < until_s:
            messages = await consumer.poll(timeout_s=max(0, until_s - loop.time()))
            sizes.append(len(messages))
            found += [each.body for each in messages]
        consumer.limit_rate(None)
        while messages := await consumer.poll(timeout_s=1):
            found += [each.body for each in messages]
        return sizes, found

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 40))
        sizes, found = read(sim, poll, max_per_second=5)
    assert sizes == [1] * 15 + [0]  # the time was up before the sixteenth
    assert found == numbers(0, 40)


def test_a_poll_gives_up_in_time_while_the_rate_makes_it_wait() -> None:
    async def poll(consumer: LitePullConsumer) -> float:
        assert len(await consumer.poll()) == 1
        began_s = asyncio.get_running_loop().time()
        assert await consumer.poll(timeout_s=2) == []
        return asyncio.get_running_loop().time() - began_s

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *numbers(0, 5))
        assert read(sim, poll, max_per_second=0.1) == pytest.approx(2)


def test_scheduled_pulls_keep_the_rate_over_all_their_queues() -> None:
    got: list[float] = []
    at: dict[MessageQueue, int] = {}

    async def take(queue: MessageQueue, turn: Turn) -> None:
        found = await turn.consumer.pull(queue, at.get(queue, 0))
        at[queue] = found.next_offset
        got.extend([sim.now_s] * len(found.messages))
        turn.next_delay_s = 0.01

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        for queue_id in (0, 1):
            send(sim, *numbers(0, 60), queue_id=queue_id)
        scheduled = Scheduled(sim, "a", {TOPIC: take}, max_per_second=10)
        sim.advance(4)
        since_s = sim.now_s
        sim.advance(4)
        assert_steady(got, since_s, sim.now_s, 10, late_s=0.02)
        scheduled.pull.limit_rate(None)
        sim.advance(2)
        assert len(got) == 120


# ---- the limit by itself


def test_tickets_are_granted_in_the_order_of_requests_of_any_size() -> None:
    order: list[int] = []

    async def main() -> None:
        limit = RateLimit(Rate(10))

        async def take(number: int, messages: int) -> None:
            await limit.take(messages)
            order.append(number)

        async with asyncio.TaskGroup() as tasks:
            for number, messages in enumerate([5, 1, 8, 1, 2]):
                tasks.create_task(take(number, messages))

    with SimCluster(seed=1).run() as sim:
        sim.run(main())
        assert order == [0, 1, 2, 3, 4]


def test_a_member_without_queues_waits_until_it_has_some() -> None:
    async def main() -> float:
        limit = RateLimit(Rate(10, is_shared=True))
        limit.share_out(0, 8)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        loop.call_later(5, limit.share_out, 4, 8)
        await limit.take(1)
        return loop.time() - began_s

    with SimCluster(seed=1).run() as sim:
        assert sim.run(main()) == pytest.approx(5.2)  # a ticket takes 0.2 s, since it has four


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"max_per_second": True}, "max_per_second is True, must be a number, 0.001 to 1000000000"),
        ({"max_per_second": 0}, "max_per_second is 0"),
        ({"max_per_second": -1}, "max_per_second is -1"),
        ({"max_per_second": float("nan")}, "max_per_second is nan"),
        ({"max_per_second": "fast"}, "max_per_second is 'fast'"),
        ({"share_rate": True}, "share_rate needs max_per_second"),
        ({"max_per_second": 5, "share_rate": "yes"}, "share_rate is 'yes'"),
        (
            {"max_per_second": 5, "share_rate": True, "model": "BROADCASTING"},
            "share_rate needs the CLUSTERING model",
        ),
    ],
)
def test_impossible_rates_are_refused(options: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        PushConsumer("billing", {TOPIC: "*"}, **options)  # type: ignore[arg-type]
