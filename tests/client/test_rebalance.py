"""Rules of a rebalance that transcripts do not show: plans, starts, limits, failing topics."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from sparrowmq.client.client import core_of
from sparrowmq.client.consuming.pull_loop import FlowLimits, shared_out
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.offsets import StartOffsets
from sparrowmq.client.group.rebalance_plan import Action, Reason, plan_rebalance
from sparrowmq.client.strategies import AVG, Strategy, pinned_machines
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import retry_topic
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send

QUEUES = [MessageQueue("t", "b", number) for number in range(6)]
some_queues = st.frozensets(st.sampled_from(QUEUES))


@given(some_queues, some_queues, some_queues, some_queues)
def test_after_a_plan_exactly_the_assigned_queues_are_held(
    held: frozenset[MessageQueue],
    assigned: frozenset[MessageQueue],
    in_route: frozenset[MessageQueue],
    silent: frozenset[MessageQueue],
) -> None:
    restarting = dict.fromkeys(silent, Reason.SILENT)
    plan = plan_rebalance(held, assigned, in_route | assigned, restarting)
    drop, take = plan.reasons(Action.DROP).keys(), plan.reasons(Action.TAKE).keys()
    assert drop <= held
    assert not take & (held - drop)
    assert (held - drop) | take == assigned
    assert silent & held <= drop | (held - assigned)
    assert plan.reasons(Action.KEEP).keys() == held - drop


def test_a_plan_gives_a_reason_for_each_queue() -> None:
    kept, silent, elsewhere, gone, new = QUEUES[:5]
    plan = plan_rebalance(
        held={kept, silent, elsewhere, gone},
        assigned={kept, silent, new},
        in_route={kept, silent, elsewhere, new},
        restarting={silent: Reason.SILENT},
    )
    assert [str(decision) for decision in plan.decisions] == [
        "keep t b 0: assigned to this member",
        "drop t b 1: not pulled for too long, restarts",
        "take t b 1: assigned to this member",
        "drop t b 2: assigned to another member",
        "drop t b 3: no longer in the route of its topic",
        "take t b 4: assigned to this member",
    ]


def explained(member: Member) -> list[str]:
    """A member's report about the queues of the topic, without the details."""
    plan = membership_of(member.consumer).ownership.log.plan(TOPIC)
    return [f"{one.queue.queue_id} {one.action}: {one.reason}" for one in plan.decisions]


def test_a_member_explains_which_queues_it_holds_and_waits_for() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        first = Member(sim, handle_slowly, name="a")
        sim.advance(3)
        assert explained(first) == [f"{n} keep: assigned to this member" for n in range(2)]
        send(sim, b"slow", queue_id=1)
        second = Member(sim, name="b")
        sim.advance(3)
        assert explained(first) == [
            "0 keep: assigned to this member",
            "1 wait: given up when its handlers have finished",
        ]
        assert explained(second) == ["1 wait: locked by another member"]
        waiting = [
            membership_of(member.consumer).ownership.log.plan(TOPIC) for member in (first, second)
        ]
        limits = [plan.decisions[-1].until_ms for plan in waiting]
        now_ms = sim.clock()
        assert all(until_ms is not None and until_ms > now_ms for until_ms in limits)
        assert {plan.share for plan in waiting} == {"2 queues, 2 members: 1 for this member"}
        assert waiting[0].decisions[1].detail.startswith("assigned to another member, at most ")
        sim.advance(20)
        assert explained(first)[1] == "1 drop: assigned to another member"
        assert explained(second) == ["1 take: assigned to this member"]


def test_rounds_that_change_nothing_print_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG", "sparrowmq.client.rebalance")
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        Member(sim)
        sim.advance(5)
        caplog.clear()
        sim.advance(100)
        assert not [one for one in caplog.records if one.name == "sparrowmq.client.rebalance"]


@pytest.mark.parametrize(
    ("limit", "queues", "each"), [(-1, 4, 1000), (100, 4, 25), (3, 4, 1), (100, 0, 100)]
)
def test_a_topic_s_limit_is_shared_out_over_all_queues_held(
    limit: int, queues: int, each: int
) -> None:
    assert shared_out(FlowLimits(topic_messages=limit), queues).messages == each


def test_a_topic_s_mebibytes_are_shared_out_too() -> None:
    assert shared_out(FlowLimits(topic_mib=10), 4).size_bytes == 2 * 1024 * 1024
    assert shared_out(FlowLimits(), 4).size_bytes == 100 * 1024 * 1024


async def handle_slowly(message: MessageExt) -> None:
    await asyncio.sleep(100)


def test_limits_follow_the_number_of_queues_held() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=4)
        member = Member(sim, handle_slowly, limits=FlowLimits(topic_messages=50), pull_batch=4)
        send(sim, *[b"x"] * 20)
        sim.advance(3)
        assert len(member.consumer.assignment()) == 5  # the retry topic's queue counts
        waits = member.consumer.waits()[MessageQueue(TOPIC, "broker-a", 0)]
        assert "at most 10 are allowed" in waits


def commit(sim: RunningCluster, offset: int) -> None:
    header = UpdateConsumerOffset(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset
    )
    sim.wait(sim.client.call(header))


@pytest.mark.parametrize(
    ("stored", "where", "got"),
    [
        # Its first message is at hand, so nothing that was just sent is skipped
        (None, ConsumeFromWhere.LAST_OFFSET, [b"0", b"1", b"2"]),
        (None, ConsumeFromWhere.FIRST_OFFSET, [b"0", b"1", b"2"]),
        (0, ConsumeFromWhere.LAST_OFFSET, [b"0", b"1", b"2"]),
        (2, ConsumeFromWhere.FIRST_OFFSET, [b"2"]),
    ],
)
def test_a_stored_offset_wins_and_0_counts(
    stored: int | None, where: ConsumeFromWhere, got: list[bytes]
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        # The group exists, so that an offset can be stored before the queue is full
        Member(sim, name="before", from_where=ConsumeFromWhere.LAST_OFFSET).host.kill()
        sim.advance(1)
        send(sim, b"0", b"1", b"2")
        if stored is not None:
            commit(sim, stored)
        member = Member(sim, from_where=where)
        sim.advance(3)
        assert member.got == got


@pytest.mark.parametrize(
    ("topic", "where", "offset"),
    [
        (TOPIC, ConsumeFromWhere.LAST_OFFSET, 3),
        (TOPIC, ConsumeFromWhere.FIRST_OFFSET, 0),
        (TOPIC, ConsumeFromWhere.TIMESTAMP, 2),
        (retry_topic(GROUP), ConsumeFromWhere.LAST_OFFSET, 0),
        (retry_topic(GROUP), ConsumeFromWhere.FIRST_OFFSET, 0),
        (retry_topic(GROUP), ConsumeFromWhere.TIMESTAMP, 3),
    ],
)
def test_without_a_stored_offset_the_rule_decides_and_retries_are_special(
    topic: str, where: ConsumeFromWhere, offset: int
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, topic=topic)
        for body in (b"0", b"1"):
            sim.wait(sim.client.send(topic, body))
        sim.advance(60)
        at_ms = sim.clock()
        sim.wait(sim.client.send(topic, b"2"))

        async def start() -> int:
            client = sim.client_on("asker")
            await client.start()
            queue = MessageQueue(topic, "broker-a", 0)
            settings = MemberSettings(
                group=GROUP,
                from_where=where,
                from_timestamp_ms=at_ms,
                model=MessageModel.BROADCASTING,  # asks no broker for progress of the group
            )
            found = await StartOffsets(core_of(client), settings, sim.clock()).of(queue, None)
            await client.stop()
            return found.offset

        assert sim.run(start(), on=sim.host("asker")) == offset


@pytest.mark.parametrize(
    ("young_queue_bytes", "model", "offset"),
    [
        (8 * 1024**3, MessageModel.CLUSTERING, 0),
        (0, MessageModel.CLUSTERING, 1),
        (8 * 1024**3, MessageModel.BROADCASTING, 1),
    ],
    ids=["first-message-at-hand", "old-queue", "broadcasting"],
)
def test_a_first_message_that_comes_after_nothing_was_stored_is_not_skipped(
    young_queue_bytes: int, model: MessageModel, offset: int
) -> None:
    """Apache's brokers since 5.0 report no stored offset for a queue that is still empty."""
    with SimCluster(seed=1, young_queue_bytes=young_queue_bytes).run() as sim:
        create_topic(sim)
        send(sim, b"first")  # after the broker had answered: nothing stored
        settings = MemberSettings(group=GROUP, model=model, from_where=ConsumeFromWhere.LAST_OFFSET)

        async def start() -> int:
            client = sim.client_on("asker")
            await client.start()
            queue = MessageQueue(TOPIC, "broker-a", 0)
            found = await StartOffsets(core_of(client), settings, sim.clock()).of(queue, None)
            await client.stop()
            return found.offset

        assert sim.run(start(), on=sim.host("asker")) == offset


@pytest.mark.parametrize("where", [{}, {"from_where": "TIMESTAMP"}], ids=["implied", "said"])
@pytest.mark.parametrize("form", ["from_timestamp_ms", "from_time"])
def test_from_a_time_on(where: dict[str, Any], form: str) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"early")
        sim.advance(60)
        now_ms = sim.clock()
        send(sim, b"late")
        time: Any = now_ms
        if form == "from_time":
            time = datetime.fromtimestamp(now_ms / 1000, timezone(timedelta(hours=2)))
        member = Member(sim, **where, **{form: time})
        sim.advance(3)
        assert member.got == [b"late"]


def test_by_default_a_time_means_half_an_hour_before_the_start() -> None:
    with SimCluster(seed=1, limit_s=7200).run() as sim:
        create_topic(sim)
        send(sim, b"40 minutes old")
        sim.advance(1200)
        send(sim, b"20 minutes old")
        sim.advance(1200)
        member = Member(sim, from_where=ConsumeFromWhere.TIMESTAMP)
        sim.advance(3)
        assert member.got == [b"20 minutes old"]


def test_a_queue_whose_offset_cannot_be_read_is_retried_before_it_starts() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim)
        send(sim, b"a")
        # The member knows the route, but one of the brokers is out of its reach.
        sim.paths.partition([sim.host("member")], [sim.host("broker-a")])
        member = Member(sim)
        sim.advance(10)
        held = {queue.broker_name for queue in member.consumer.assignment()}
        assert held <= {"broker-b"}
        assert member.got == []
        sim.paths.heal()
        sim.advance(40)
        assert member.got == [b"a"]


def test_an_unknown_start_offset_is_never_treated_as_0(tmp_path: Path) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim)
        send(sim, b"old")
        sim.paths.partition([sim.host("member")], [sim.host("broker-a")])
        member = Member(
            sim,
            model=MessageModel.BROADCASTING,
            offsets_dir=tmp_path,
            from_where=ConsumeFromWhere.LAST_OFFSET,
        )
        sim.advance(10)
        assert {queue.broker_name for queue in member.consumer.assignment()} == {"broker-b"}
        sim.paths.heal()
        sim.advance(10)
        send(sim, b"new")
        sim.advance(1)
        assert member.got == [b"new"]


def test_one_topic_s_failure_never_stops_the_others() -> None:
    def picky(
        group: str, client_id: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> list[MessageQueue]:
        if queues[0].topic == "invoices":
            raise KeyError("no idea about invoices")
        return AVG(group, client_id, queues, members)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        create_topic(sim, topic="invoices")
        member = Member(
            sim,
            subscriptions={"invoices": "*", TOPIC: "*"},
            strategy=Strategy("PICKY", picky),
        )
        send(sim, b"a")
        sim.advance(3)
        assert member.got == [b"a"]
        assert "invoices" not in {queue.topic for queue in member.consumer.assignment()}


def test_a_strategy_that_assigns_missing_queues_changes_nothing() -> None:
    def wild(*_: object) -> list[MessageQueue]:
        return [MessageQueue(TOPIC, "broker-a", 99)]

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, strategy=Strategy("WILD", wild))
        sim.advance(5)
        assert member.consumer.assignment() == []
        plan = membership_of(member.consumer).ownership.log.plan(TOPIC)
        assert "it gave a queue that the topic does not have" in plan.failure


def test_two_consumers_of_one_group_in_one_client_are_refused() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)

        async def again() -> None:
            with pytest.raises(ValueError, match="already"):
                await member.consumer.start(lambda messages: None)

        sim.run(again(), on=member.host)


def test_a_group_in_which_no_member_may_consume_is_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, strategy=pinned_machines(["192.0.2.1"]))
        sim.advance(65)
        assert member.consumer.assignment() == []
    told = [text for text in caplog.messages if "no member of group billing consumes" in text]
    assert len(told) == 1
