"""Delivery times: on the millisecond, never early, never lost, and recalled in time."""

import asyncio
import random
from base64 import urlsafe_b64encode
from collections.abc import Iterator

import pytest

from sparrowmq.broker import timer, timer_index, timer_saving
from sparrowmq.broker.timer_check import TimerCheck, TimerMark
from sparrowmq.broker.timer_runs import RunFiles, RunList, RunRange
from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    RetryPolicyType,
    SubscriptionGroupConfig,
)
from sparrowmq.protocol.headers.recall import (
    MessageRecalled,
    RecallableSent,
    RecallHandle,
    RecallMessage,
)
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT
from sparrowmq.store.errors import DiskFull
from sparrowmq.store.recorded_calls import PowerCut
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, Sent

DAY_MS = 86_400_000
HEIRLESS = "%DLQ%SCHEDULE_CONSUMER"


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with new_world() as world:
        yield world


def new_world() -> DeliveryWorld:
    world = DeliveryWorld()
    world.broker.topics.put(plain_topic("orders", 4))
    return world


def bodies(world: DeliveryWorld, topic: str = "orders") -> list[bytes]:
    return [message.body for message in world.messages(topic)]


def send_at(world: DeliveryWorld, time_ms: int, body: bytes = b"body", **more: str) -> Sent:
    return world.post("orders", body, {"TIMER_DELIVER_MS": str(time_ms), **more})


def recall(world: DeliveryWorld, sent: Sent, topic: str = "orders") -> int:
    assert isinstance(sent, RecallableSent)
    header = RecallMessage(topic=topic, recall_handle=sent.recall_handle, producer_group="g")
    return world.call(header).code


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": str(EPOCH_MS + 7_500)},
        {"TIMER_DELAY_MS": "7500"},
        {"TIMER_DELAY_MS": "7500", "TIMER_DELIVER_MS": "1"},
    ],
)
def test_a_delivery_time_is_met_to_the_millisecond(
    world: DeliveryWorld, properties: dict[str, str]
) -> None:
    world.post("orders", b"body", properties)
    world.now_ms += 7_499
    assert world.deliver() == world.now_ms + 1
    assert bodies(world) == []
    world.now_ms += 1
    assert world.deliver() is None
    assert bodies(world) == [b"body"]


def test_a_delay_in_seconds_wins_over_the_others(world: DeliveryWorld) -> None:
    world.send("orders", TIMER_DELAY_SEC="2", TIMER_DELAY_MS="9000")
    assert world.deliver() == world.now_ms + 2_000


def test_a_message_lies_in_the_timer_queue_as_in_apaches_store(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 7_500, TIMER_OUT_MS="1")
    send_at(world, EPOCH_MS + 8_000)
    first, second = world.messages(TIMER_TOPIC)
    assert first.properties["TIMER_OUT_MS"] == str(EPOCH_MS + 7_000)
    assert second.properties["TIMER_OUT_MS"] == str(EPOCH_MS + 7_000), "the slot before"
    assert first.properties["REAL_TOPIC"] == "orders"
    assert first.properties["REAL_QID"] == "0"


def test_a_delivered_message_is_as_it_was_sent(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 100, b"an order", TAGS="t", KEYS="k", mine="yes")
    world.pass_time(1)
    (message,) = world.messages("orders")
    assert (message.body, message.tags, message.keys) == (b"an order", "t", ("k",))
    assert message.user_properties == {"mine": "yes"}
    assert message.properties["TIMER_DEQUEUE_MS"] == str(EPOCH_MS + 100)


@pytest.mark.parametrize("time_ms", [EPOCH_MS, EPOCH_MS - 1, 1, -5])
def test_a_time_that_is_over_is_now(world: DeliveryWorld, time_ms: int) -> None:
    send_at(world, time_ms)
    assert bodies(world) == [b"body"]


def test_three_days_are_allowed_and_not_a_millisecond_more(world: DeliveryWorld) -> None:
    world.send("orders", TIMER_DELAY_MS=str(3 * DAY_MS))
    end = world.broker.store.max_log_offset
    reply = world.try_send("orders", TIMER_DELAY_MS=str(3 * DAY_MS + 1))
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "at most 259200 s" in reply.remark
    assert world.broker.store.max_log_offset == end


@pytest.mark.parametrize("text", ["soon", "1e3", "9" * 20, "\u0661"])
def test_a_time_that_is_no_number_is_refused(world: DeliveryWorld, text: str) -> None:
    reply = world.try_send("orders", TIMER_DELIVER_MS=text)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "TIMER_DELIVER_MS" in reply.remark
    assert world.broker.store.max_offset(TIMER_TOPIC, 0) == 0


def test_messages_come_in_the_order_of_their_times(world: DeliveryWorld) -> None:
    times = list(range(1, 301))
    random.Random(1).shuffle(times)
    for time in times:
        send_at(world, EPOCH_MS + time * 37, b"%d" % time)
    world.pass_time(60)
    assert bodies(world) == [b"%d" % time for time in range(1, 301)]


def test_retries_of_an_exponential_policy_come_to_the_millisecond(world: DeliveryWorld) -> None:
    policy = GroupRetryPolicy(
        type=RetryPolicyType.EXPONENTIAL,
        exponential_retry_policy=ExponentialRetryPolicy(initial=7_000, multiplier=3),
    )
    world.broker.groups.put(
        SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
    )
    world.send("orders", b"an order")
    message = world.messages("orders")[0]
    waits, told = [], []
    for _ in range(3):
        began_ms = world.now_ms
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        world.pass_time(100)
        message = world.messages("%RETRY%billing")[-1]
        waits.append(message.store_timestamp - began_ms)
        times = message.properties
        told.append(int(times["TIMER_DELIVER_MS"]) - int(times["TIMER_ENQUEUE_MS"]))
    assert waits == [7_000, 21_000, 63_000]
    assert told == waits  # a consumer can tell how long it had to wait, however late it is


def test_a_committed_message_waits_for_its_time(world: DeliveryWorld) -> None:
    sent = send_at(world, EPOCH_MS + 60_000, TRAN_MSG="true", PGROUP="g")
    header = EndTransaction(
        producer_group="g",
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=OffsetId.parse(sent.msg_id).log_offset,
        commit_or_rollback=TRANSACTION_COMMIT,
    )
    assert world.call(header).code == ResponseCode.SUCCESS
    assert bodies(world) == []
    world.pass_time(61)
    assert bodies(world) == [b"body"]


def test_a_message_whose_topic_is_gone_becomes_a_dead_letter(world: DeliveryWorld) -> None:
    world.send("doomed", TIMER_DELAY_MS="1000")
    send_at(world, EPOCH_MS + 1_000)
    world.broker.topics.remove("doomed")
    world.pass_time(2)
    assert bodies(world) == [b"body"]
    assert len(bodies(world, HEIRLESS)) == 1


def test_a_full_disk_delays_and_loses_nothing(world: DeliveryWorld) -> None:
    for number in range(3):
        send_at(world, EPOCH_MS + 1_000, b"%d" % number)
    world.now_ms += 1_000
    world.broker.store._full = DiskFull("", 0, "no space")
    world.broker.store._decide_refusal()
    with pytest.raises(DiskFull):
        world.deliver()
    world.broker.store.tick(world.now_ms)
    world.deliver()
    assert bodies(world) == [b"0", b"1", b"2"]


# ---- recall


def test_a_recalled_message_is_not_delivered_and_others_are(world: DeliveryWorld) -> None:
    taken_back = send_at(world, EPOCH_MS + 5_700, b"mistake")
    send_at(world, EPOCH_MS + 5_700, b"fine")
    assert recall(world, taken_back) == ResponseCode.SUCCESS
    world.pass_time(60)
    assert bodies(world) == [b"fine"]
    assert world.broker.delivery.timers.recalled == {}


@pytest.mark.parametrize("killed_at_s", [0.0, 5.2, 5.6])
@pytest.mark.parametrize("in_a_run", [False, True])
def test_a_recall_survives_a_kill(world: DeliveryWorld, killed_at_s: float, in_a_run: bool) -> None:
    send_at(world, EPOCH_MS + 5_150, b"fine")
    assert recall(world, send_at(world, EPOCH_MS + 5_700)) == ResponseCode.SUCCESS
    if in_a_run:
        spill(world)
    world.pass_time(killed_at_s)
    world.deliver()
    world.save()
    world.kill()
    world.pass_time(60)
    assert bodies(world) == [b"fine"]


def test_a_recall_answers_with_the_messages_id(world: DeliveryWorld) -> None:
    sent = send_at(world, EPOCH_MS + 5_700, UNIQ_KEY="U1")
    assert isinstance(sent, RecallableSent)
    handle = RecallHandle.parse(sent.recall_handle)
    assert handle == ("orders", "broker-a", EPOCH_MS + 5_001, "U1")
    reply = world.call(RecallMessage(topic="orders", recall_handle=sent.recall_handle))
    assert reply.header == MessageRecalled(msg_id="U1")


def test_recalls_of_messages_that_never_come_are_forgotten(world: DeliveryWorld) -> None:
    sent = send_at(world, EPOCH_MS + 5_700)
    assert isinstance(sent, RecallableSent)
    handle = RecallHandle("orders", "broker-a", EPOCH_MS + 5_001, "nobody")
    world.call(RecallMessage(topic="orders", recall_handle=str(handle)))
    send_at(world, EPOCH_MS + 60_000)
    world.pass_time(61)
    assert len(bodies(world)) == 2
    assert world.broker.delivery.timers.recalled == {}


def test_bad_handles_are_refused_with_a_reason(world: DeliveryWorld) -> None:
    good = RecallHandle("orders", "broker-a", EPOCH_MS + 5_001, "U1")
    world.send("orders")
    world.send("others")
    end = world.broker.store.max_log_offset
    for topic, handle, text in (
        ("orders", "%%%", "no recall handle"),
        ("orders", "", "no recall handle"),
        ("orders", urlsafe_b64encode(b"v1 a b").decode(), "no recall handle"),
        ("orders", urlsafe_b64encode(b"v1 orders broker-a x U1").decode(), "no recall handle"),
        ("others", str(good), "one of topic orders"),
        ("orders", str(good._replace(broker_name="broker-z")), "broker broker-z"),
        ("orders", str(good._replace(time_ms=EPOCH_MS)), "too late"),
        ("orders", str(good._replace(msg_id="a\x01b")), "separator"),
    ):
        reply = world.call(RecallMessage(topic=topic, recall_handle=handle))
        assert reply.code == ResponseCode.ILLEGAL_OPERATION
        assert text in reply.remark
    reply = world.call(RecallMessage(topic="nowhere", recall_handle=str(good)))
    assert reply.code == ResponseCode.TOPIC_NOT_EXIST
    assert world.broker.store.max_log_offset == end


# ---- after crashes


def test_pending_timers_are_found_again_after_a_kill(world: DeliveryWorld) -> None:
    for number in range(5):
        send_at(world, EPOCH_MS + 1_000 * (number + 1), b"%d" % number)
    world.pass_time(2)
    world.deliver()
    world.save()
    world.kill()
    world.deliver()
    assert bodies(world) == [b"0", b"1"]
    world.pass_time(10)
    assert bodies(world) == [b"0", b"1", b"2", b"3", b"4"]


def spill(world: DeliveryWorld) -> None:
    """Write a run of everything in memory."""
    world.broker.delivery.timers.run_entries = 1
    world.flush()
    world.run(timer_saving.spill(world.broker))
    world.broker.delivery.timers.run_entries = 1_000_000


def runs(world: DeliveryWorld) -> list[str]:
    return [path for path in world.disk.files() if path.startswith("sparrowmq/timer/0")]


def test_timers_in_runs_are_delivered_together_with_those_in_memory(world: DeliveryWorld) -> None:
    numbers = list(range(1, 601))
    random.Random(2).shuffle(numbers)
    for position, number in enumerate(numbers):
        send_at(world, EPOCH_MS + number * 11, b"%d" % number)
        if position % 150 == 149 and position < 500:
            spill(world)
    assert len(runs(world)) == 3
    world.pass_time(2)
    world.deliver()
    world.save()
    world.kill()
    assert len(world.broker.delivery.timers) == 600 - 2_000 // 11
    world.pass_time(20)
    assert bodies(world) == [b"%d" % number for number in range(1, 601)]
    world.save()
    assert runs(world) == []
    world.kill()
    world.deliver()
    assert len(bodies(world)) == 600


@pytest.mark.parametrize("harm", ["missing", "damaged", "no list", "nothing left"])
def test_runs_are_read_from_the_queue_again_when_they_are_lost(
    world: DeliveryWorld, harm: str
) -> None:
    for number in range(1, 101):
        send_at(world, EPOCH_MS + number * 100, b"%d" % number)
        if number == 50:
            spill(world)
    world.pass_time(3)
    world.deliver()
    world.save()
    (run,) = runs(world)
    if harm == "damaged":
        data = bytearray(world.disk.files()[run])
        data[12 + 16 * 45 + 12] ^= 1  # the offset of an entry that is pending
        world.disk.poke(run, bytes(data))
    for path in world.disk.files():
        if (harm == "missing" and path == run) or (
            harm in ("no list", "nothing left") and path == "sparrowmq/timer/runs.json"
        ):
            world.disk.unlink(path)
        if harm == "nothing left" and path == run:
            world.disk.unlink(path)
    world.kill()
    world.pass_time(20)
    assert bodies(world) == [b"%d" % number for number in range(1, 101)]


def test_a_lost_run_is_written_again_and_apache_is_told_where_its_messages_begin(
    world: DeliveryWorld,
) -> None:
    for number in range(1, 101):
        send_at(world, EPOCH_MS + number * 1_000, b"%d" % number)
        if number % 40 == 0:
            spill(world)
    first, second = runs(world)
    world.disk.unlink(first)
    world.kill()
    world.pass_time(1)
    world.deliver()
    world.save()
    assert TimerCheck(world.disk).load()[1].queue_offset == 1
    spill(world)
    assert runs(world) == [first, second]
    world.kill()
    world.pass_time(100)
    assert bodies(world) == [b"%d" % number for number in range(1, 101)]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_long_queue_without_runs_is_read_in_little_memory(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    monkeypatch.setattr(timer_index, "RUN_ENTRIES", 50)
    times = list(range(1, 301))
    random.Random(5).shuffle(times)
    for number in times:
        send_at(world, EPOCH_MS + number * 100, b"%d" % number)
    world.pass_time(2)
    world.deliver()
    world.save()
    send_at(world, EPOCH_MS + 301 * 100, b"301")  # not durable at the start

    def refuse(files: RunFiles, span: RunRange, entries: list[int]) -> None:
        raise DiskFull("run", 0, "no space")

    if is_full:
        monkeypatch.setattr(RunFiles, "write", refuse)
    world.kill()
    index = world.broker.delivery.timers
    assert len(index) == 281
    assert len(index._fresh) == (281 if is_full else 31)
    assert len(runs(world)) == (0 if is_full else 5)
    assert world.broker.store.durable_log_offset == world.broker.store.max_log_offset
    world.kill()
    assert len(world.broker.delivery.timers) == 281
    world.pass_time(31)
    assert bodies(world) == [b"%d" % number for number in range(1, 302)]


def test_a_clock_that_is_set_back_loses_no_timer(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 1_000, b"before")
    world.pass_time(100)
    world.save()
    world.now_ms -= 3_600_000
    send_at(world, world.now_ms + 5_000, b"after")
    world.save()
    world.kill()
    world.now_ms += 4_999
    world.deliver()
    assert bodies(world) == [b"before"]
    world.now_ms += 1
    world.deliver()
    assert bodies(world) == [b"before", b"after"]
    world.save()
    world.kill()
    world.pass_time(2 * 3600)
    assert bodies(world).count(b"before") == 1


def test_progress_and_runs_are_not_saved_before_what_they_stand_for_is_durable() -> None:
    for seed in range(20):
        with new_world() as world:
            send_at(world, EPOCH_MS + 1_000, b"flushed")
            world.flush()
            world.now_ms += 1_000
            world.deliver()
            for _ in range(2):
                world.run(timer_saving.save_mark(world.broker))
            world.broker.delivery.timers.run_entries = 1
            send_at(world, EPOCH_MS + 9_000, b"not flushed")
            world.run(timer_saving.spill(world.broker))
            world.lose_power(random.Random(seed))
            assert world.broker.delivery.timers.list.runs == []
            world.deliver()
            assert set(bodies(world)) == {b"flushed"}, seed


def test_runs_of_a_queue_that_was_cut_are_thrown_away(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 1_000)
    RunFiles(world.disk).save_list(RunList(999, []))
    world.kill()
    world.pass_time(2)
    assert bodies(world) == [b"body"]


def test_a_stale_entry_makes_no_message_early(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 60_000)
    world.broker.delivery.timers._fresh[0] = (EPOCH_MS + 1) << 64
    world.pass_time(59)
    assert bodies(world) == []
    world.pass_time(2)
    assert bodies(world) == [b"body"]


def test_a_timer_delivered_while_a_run_waits_for_the_disk_survives_a_power_cut() -> None:
    for seed in range(5):
        with new_world() as world:
            send_at(world, EPOCH_MS + 1_000, b"due soon")
            send_at(world, EPOCH_MS + 9_000, b"due later")
            timers = world.broker.delivery.timers
            timers.run_entries = 1
            world.run(timer_saving.spill(world.broker))
            assert timers.list.runs == []
            world.flush()
            world.now_ms += 1_000
            world.deliver()
            world.run(timer_saving.spill(world.broker))
            assert timers.list.runs == [RunRange(0, 2)]
            world.pass_time(1)
            assert bodies(world) == [b"due soon"]
            world.lose_power(random.Random(seed))
            world.pass_time(20)
            assert set(bodies(world)) == {b"due soon", b"due later"}, seed


@pytest.mark.parametrize("ends", ["full disk", "cancelled"])
def test_a_run_is_kept_while_its_last_timer_is_not_delivered(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    send_at(world, EPOCH_MS + 1_000)
    spill(world)
    world.now_ms += 1_000

    def full(*_: object) -> None:
        raise DiskFull("log", 0, "no space")

    async def stopped_while_it_reads(*_: object) -> None:
        await timer_saving.save_mark(
            world.broker
        )  # progress is saved while a cold read is waited for
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        if ends == "full disk":
            patch.setattr(timer, "deliver", full)
        else:
            patch.setattr(timer, "read", stopped_while_it_reads)
        with pytest.raises((DiskFull, asyncio.CancelledError)):
            world.deliver()
    world.save()
    assert len(runs(world)) == 1
    world.kill()
    world.deliver()
    assert bodies(world) == [b"body"]
    world.save()
    assert runs(world) == []


def test_few_pending_timers_among_many_make_no_long_start(world: DeliveryWorld) -> None:
    timers = world.broker.delivery.timers
    timers.run_entries = 50
    for number in range(120):
        send_at(world, world.now_ms + (3_600_000 if number % 40 == 0 else 10))
        world.pass_time(0.02)
        world.flush()
        world.run(timer_saving.spill(world.broker))
    assert timers.list == RunList(100, [RunRange(0, 100)])
    assert len(timers) == 3


def test_progress_of_apaches_broker_is_believed(world: DeliveryWorld) -> None:
    for number in range(4):
        send_at(world, EPOCH_MS + 1_000 * number + 500, b"%d" % number)
    world.stop()
    page = (EPOCH_MS + 2_000).to_bytes(8, "big") + bytes(8) + (4).to_bytes(8, "big") * 2
    world.disk.poke("config/timercheck", page.ljust(4096, b"\0"))
    world.start()
    assert TimerCheck(world.disk).load() == [TimerMark(EPOCH_MS + 2_000, 4)]
    world.pass_time(10)
    assert bodies(world) == [b"2", b"3"]


def test_apache_finds_where_to_go_on(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 1_000)
    send_at(world, EPOCH_MS + 60_000)
    world.pass_time(2)
    world.deliver()
    world.stop()
    page = world.disk.files()["config/timercheck"]
    assert len(page) == 4096
    assert int.from_bytes(page[:8], "big") == EPOCH_MS + 1_000
    assert int.from_bytes(page[16:24], "big") == int.from_bytes(page[24:32], "big") == 1


def _run_until_cut(world: DeliveryWorld, acknowledged: dict[bytes, int]) -> None:
    rng = random.Random(3)
    for number in range(8):
        body = b"%d" % number
        time_ms = world.now_ms + rng.randrange(1, 3_000)
        send_at(world, time_ms, body)
        acknowledged[body] = time_ms
        world.flush()
        if number % 3 == 2:
            spill(world)
        world.pass_time(0.5)
        world.save()


@pytest.mark.parametrize("power", [False, True])
def test_nothing_is_lost_or_early_whichever_call_a_crash_meets(power: bool) -> None:
    for call in range(1, 600):
        with new_world() as world:
            acknowledged: dict[bytes, int] = {}
            world.disk.cut_at(call)
            try:
                _run_until_cut(world, acknowledged)
            except PowerCut:
                pass
            else:
                assert call > 100
                return
            if power:
                acknowledged.pop(next(reversed(acknowledged), b""), None)
                world.lose_power(random.Random(call))
            else:
                world.kill()
            world.pass_time(20)
            delivered = world.messages("orders")
            assert set(acknowledged) <= {message.body for message in delivered}, call
            for message in delivered:
                assert message.store_timestamp >= acknowledged.get(message.body, 0), call


def test_a_hundred_thousand_pending_timers_take_little_memory_and_all_come() -> None:
    count = 100_000
    with new_world() as world:
        index = world.broker.delivery.timers
        index.run_entries = 8_192
        rng = random.Random(4)
        for number in range(count):
            world.send("orders", b"x", TIMER_DELAY_MS=str(rng.randrange(1, 3 * DAY_MS)))
            if number % 4_096 == 0:
                world.flush()
                world.run(timer_saving.spill(world.broker))
        assert len(index) == count
        assert len(index._fresh) < 3 * 8_192
        world.flush()
        world.kill()
        assert len(world.broker.delivery.timers) == count
        world.now_ms += 3 * DAY_MS
        world.deliver()
        assert world.broker.store.max_offset("orders", 0) == count


def test_a_running_broker_delivers_and_recalls() -> None:
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"first"))
        pull = sim.client.pull("orders", offset=1, wait_s=15)
        at_ms = sim.clock() + 7_321
        sim.wait(sim.client.send("orders", b"later", TIMER_DELIVER_MS=str(at_ms)))
        assert sim.wait(pull).bodies == [b"later"]
        assert at_ms <= sim.clock() < at_ms + 100
        sim.brokers["broker-a"].kill()
        sim.brokers["broker-a"].start()
