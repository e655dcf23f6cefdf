"""What becomes of messages whose handler fails or hangs, or that cannot be sent back."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.client.consuming.concurrent_consumption import CHECK_S
from sparrowmq.client.consuming.handler_calls import RetryLater
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.group.group_consumer import core_of_consumer, membership_of
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import dlq_topic, retry_topic
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send, stored_offset


def test_a_failed_message_is_retried_after_10_s_with_its_failure_counted() -> None:
    seen: list[tuple[int, str, float]] = []

    async def fail_once(message: MessageExt) -> None:
        if message.body == b"x":
            seen.append((message.reconsume_times, message.original_topic, sim.now_s))
            if not message.reconsume_times:
                raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim, 2)
        member = Member(sim, fail_once)
        send(sim, b"another", queue_id=1)  # so that places in log and queue differ
        send(sim, b"x")
        sim.advance(15)
        assert sorted(member.got) == [b"another", b"x", b"x"]
        assert [(times, topic) for times, topic, _ in seen] == [(0, TOPIC), (1, TOPIC)]
        assert seen[1][2] - seen[0][2] == pytest.approx(10, abs=1)
        assert stored_offset(sim) == 1


def test_a_handler_may_acknowledge_the_front_of_its_batch() -> None:
    batches: list[list[bytes]] = []

    def handle(messages: Sequence[MessageExt]) -> None:
        batches.append([message.body for message in messages])
        if len(messages) == 3:
            raise RetryLater("the last one is early", done=2)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"a", b"b", b"c")
        Member(sim, handler=handle, batch=3)
        sim.advance(20)
        assert batches == [[b"a", b"b", b"c"], [b"c"]]
        assert stored_offset(sim) == 3


def test_level_minus_1_sends_to_the_dead_letters_at_once() -> None:
    async def refuse(message: MessageExt) -> None:
        raise RetryLater("never", delay_level=-1)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim, refuse)
        send(sim, b"x")
        sim.advance(2)
        assert sim.wait(sim.client.pull(dlq_topic(GROUP))).bodies == [b"x"]


def test_a_message_that_cannot_be_sent_back_is_handled_again_after_5_s() -> None:
    """Progress does not pass it, and its failures are counted."""
    seen: list[tuple[int, float]] = []

    async def fail_while_cut_off(message: MessageExt) -> None:
        seen.append((message.reconsume_times, sim.now_s))
        if len(seen) == 1:
            sim.paths.partition([member.host], [sim.host("broker-a")])
            raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, fail_while_cut_off)
        send(sim, b"x")
        sim.until(lambda: len(seen) == 1)
        sim.advance(4)  # the call to give it back times out after 3 s
        sim.paths.heal()
        queue = next(queue for queue in member.consumer.assignment() if queue.topic == TOPIC)
        assert membership_of(member.consumer).held[queue].process_queue.progress == 0
        sim.advance(6)
        assert [times for times, _ in seen] == [0, 1]
        assert seen[1][1] - seen[0][1] == pytest.approx(8, abs=0.2)
        sim.advance(6)
        assert stored_offset(sim) == 1


def test_a_message_that_could_not_be_sent_back_is_sent_back_after_its_next_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_back = GivingBack.give_back
    levels: list[int] = []

    async def refuse_once(
        giving_back: GivingBack, message: MessageExt, level: int, reason: str
    ) -> bool:
        levels.append(level)
        return len(levels) > 1 and await give_back(giving_back, message, level, reason)

    async def fail_twice(message: MessageExt) -> None:
        if len(member.got) < 3:
            raise RetryLater("not yet", delay_level=1)

    monkeypatch.setattr(GivingBack, "give_back", refuse_once)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, fail_twice)
        send(sim, b"x")
        sim.advance(20)
        assert (member.got, levels) == ([b"x"] * 3, [1, 1])
        assert stored_offset(sim) == 1


def test_a_handler_that_hangs_for_15_minutes_loses_its_message_and_its_late_result() -> None:
    may_end = asyncio.Event()
    seen: list[int] = []

    async def hang_once(message: MessageExt) -> None:
        seen.append(message.reconsume_times)
        if message.body == b"slow" and not message.reconsume_times:
            await may_end.wait()
            raise ValueError("too late to count")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim, hang_once)
        send(sim, b"slow", b"fast")
        sim.advance(10)
        sim.advance(15 * 60 - 20)
        assert stored_offset(sim) == 0
        sim.advance(CHECK_S + 15)
        assert stored_offset(sim) == 2
        sim.advance(20)
        assert seen == [0, 0, 1]
        may_end.set()
        sim.advance(60)
        assert seen == [0, 0, 1]


def test_a_hanging_message_that_cannot_be_sent_back_stays_in_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    may_end = asyncio.Event()

    async def refuse(*_: object) -> bool:
        return False

    async def hang(message: MessageExt) -> None:
        await may_end.wait()

    monkeypatch.setattr(GivingBack, "give_back", refuse)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        Member(sim, hang, consume_timeout_s=10)
        sim.advance(40)
        assert stored_offset(sim) == 0
        may_end.set()
        sim.advance(6)
        assert stored_offset(sim) == 1


def test_a_broadcasting_member_drops_failed_messages(tmp_path: Path) -> None:
    async def fail(message: MessageExt) -> None:
        raise ValueError("never")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, fail, model=MessageModel.BROADCASTING, offsets_dir=tmp_path)
        send(sim, b"x")
        sim.advance(20)
        assert member.got == [b"x"]
        assert retry_topic(GROUP) not in membership_of(member.consumer).subscriptions
        assert {queue.topic for queue in member.consumer.assignment()} == {TOPIC}


def test_a_broadcasting_member_resumes_at_the_offset_in_its_file(tmp_path: Path) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, model=MessageModel.BROADCASTING, offsets_dir=tmp_path)
        send(sim, b"a")
        sim.advance(6)
        member.host.kill()
        send(sim, b"b")
        again = Member(sim, model=MessageModel.BROADCASTING, offsets_dir=tmp_path)
        sim.advance(2)
        assert again.got == [b"b"]


def test_an_orderly_handler_is_refused_for_broadcasting() -> None:
    with SimCluster(seed=1).run() as sim, pytest.raises(ValueError, match="CLUSTERING"):
        Member(sim, model=MessageModel.BROADCASTING, orderly=True)


def test_stopping_lets_handlers_finish_and_leaves_the_rest_to_the_next_owner() -> None:
    async def take_a_second(message: MessageExt) -> None:
        await asyncio.sleep(1)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, *(b"%d" % number for number in range(10)))
        member = Member(sim, take_a_second, workers=2)
        sim.until(lambda: len(member.got) == 4)
        member.leave()
        assert stored_offset(sim) == len(member.got) == 4
        second = Member(sim, name="second")
        sim.advance(2)
        assert second.got == [b"%d" % number for number in range(4, 10)]


def test_a_handler_whose_own_task_was_cancelled_has_failed_and_the_workers_live_on() -> None:
    async def await_something_cancelled(message: MessageExt) -> None:
        if not message.reconsume_times:
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lost.cancel()
            await lost

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, await_something_cancelled, workers=1)
        send(sim, b"a", b"b")
        sim.advance(15)
        assert sorted(member.got) == [b"a", b"a", b"b", b"b"]


def test_a_member_that_cannot_write_its_offsets_keeps_consuming(tmp_path: Path) -> None:
    directory = tmp_path / "offsets"
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, model=MessageModel.BROADCASTING, offsets_dir=directory)
        directory.write_text("not a directory")
        send(sim, b"a")
        sim.advance(12)
        send(sim, b"b")
        sim.advance(12)
        assert member.got == [b"a", b"b"]


def test_a_handler_that_overruns_the_stop_is_ended_before_its_queue_is_free() -> None:
    owners: list[str | None] = []

    async def hang(message: MessageExt) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            owners.append(sim.broker.locks.owner(GROUP, MessageQueue(TOPIC, "broker-a", 0)))

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        first = Member(sim, hang, name="a", orderly=True, stop_within_s=2)
        send(sim, b"a")
        sim.advance(3)
        began_s = sim.now_s
        first.leave()
        assert 2 <= sim.now_s - began_s < 3
        assert owners == [core_of_consumer(first.consumer).client_id]
        second = Member(sim, name="b", orderly=True)
        sim.until(lambda: second.got == [b"a"])


def test_a_handler_that_is_not_a_function_is_refused_at_the_start() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        consumer = PushConsumer(GROUP, {TOPIC: "*"}, client=sim.client_on("member"))
        nothing: Any = None
        with pytest.raises(ValueError, match="handler is None, must be a function"):
            sim.run(consumer.start(nothing), on=sim.host("member"))


def test_subscriptions_that_are_not_a_mapping_are_refused_with_an_example() -> None:
    topics: Any = ["orders"]
    with pytest.raises(ValueError, match=r"must give a filter for each topic, such as \{'orders'"):
        PushConsumer(GROUP, topics)


@pytest.mark.parametrize(
    ("level", "limit", "groups", "said"),
    [
        (-1, 16, 16, "after 1 attempt: the body is no order"),
        (0, 0, 16, "after 1 attempt: the body is no order"),
        (0, 16, 0, None),
        (0, -1, 0, "after 1 attempt: the body is no order"),
        (0, -1, 1, "after 2 attempts: the body is no order"),
        (0, -1, 16, None),
    ],
    ids=[
        *("asked for", "over its limit", "retried", "over the group's limit"),
        *("over the group's limit later", "retried as the group says"),
    ],
)
def test_a_message_that_becomes_a_dead_letter_is_logged(
    level: int, limit: int, groups: int, said: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(message: MessageExt) -> None:
        raise RetryLater("the body is no order", delay_level=level)

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=groups)
        sim.wait(sim.client.call(CreateGroup(), config.to_json()))
        Member(sim, fail, max_reconsume_times=limit)
        send(sim, b"poison", UNIQ_KEY="id-of-poison")
        sim.advance(15)
        (node,) = sim.brokers.values()
        dead = node.broker.store.max_offset(f"%DLQ%{GROUP}", 0)
        assert dead == (said is not None)  # the log tells the truth
    lines = [
        (record.levelno, record.getMessage())
        for record in caplog.records
        if record.name == "sparrowmq.client" and "dead-letter queue" in record.getMessage()
    ]
    what = f"message id-of-poison of topic {TOPIC}"
    line = f"{what} goes to the dead-letter queue of group {GROUP} {said}"
    assert lines == ([] if said is None else [(logging.WARNING, line)])


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (RetryLater("the database is away"), "the database is away"),
        (RetryLater(delay_level=1), "RetryLater without a reason"),
    ],
)
@pytest.mark.parametrize("orderly", [False, True])
def test_a_message_to_be_retried_is_logged_with_the_reason(
    raised: RetryLater, said: str, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_once(message: MessageExt) -> None:
        if not message.reconsume_times:
            raise raised

    caplog.set_level(logging.INFO)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim, fail_once, orderly=orderly)
        send(sim, b"x")
        sim.advance(5)
    (record,) = [each for each in caplog.records if "again later" in each.getMessage()]
    assert record.levelno == logging.INFO
    line = record.getMessage()
    assert line.startswith(f"handler of group {GROUP} wants 1 message of ")
    assert line.endswith(f"again later: {said}")


@pytest.mark.parametrize("answer", [False, "RECONSUME_LATER"])
def test_a_value_that_a_handler_returns_is_reported_once(
    answer: object, caplog: pytest.LogCaptureFixture
) -> None:
    async def handle(messages: Sequence[MessageExt]) -> Any:
        return answer

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim, handler=handle)
        send(sim, b"a", b"b")
        sim.advance(5)
    lines = [each.getMessage() for each in caplog.records if "is ignored" in each.getMessage()]
    assert lines == [
        f"the handler of group {GROUP} returned {answer!r}, which is ignored and counts as success:"
        " raise an exception, such as RetryLater, if the messages are to be delivered again"
    ]


def test_a_stop_that_cannot_store_progress_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim)
        send(sim, b"a")
        sim.until(lambda: member.got == [b"a"])
        (node,) = sim.brokers.values()
        node.kill()
        member.leave()
    assert "the last progress of 1 queues is not stored" in caplog.text
