"""The clock is set while messages wait: none is lost, none early, none late by more than that."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pytest

from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.headers.admin import DeleteExpiredLog
from sparrowmq.protocol.headers.messages import RecallableSent, RecallMessage
from sparrowmq.store.messages import PutMessage
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, bodies, orders_world
from tests.broker.timer_world import send_at, spill

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
STEPS_MS = (-2 * HOUR, -90 * SECOND, -1_500, -20, 20, 1_500, 90 * SECOND, 2 * HOUR)
DELAY_MS = 10 * SECOND
DELAYS = {"level": {"DELAY": "3"}, "seconds": {"TIMER_DELAY_SEC": "10"}}
RESTARTS = ("running", "killed", "stopped")


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


@dataclass(frozen=True)
class Moment:
    """By the clock, and by the time that has passed."""

    clock_ms: int
    elapsed_ms: int


def now(world: DeliveryWorld) -> Moment:
    return Moment(world.now_ms, world.elapsed_ms)


def deliveries(world: DeliveryWorld, until_ms: int, most_ms: int = SECOND) -> dict[bytes, Moment]:
    """When each message comes. As a broker's loops do, look again when the next is due and after a
    second at the latest."""
    found: dict[bytes, Moment] = {}
    while True:
        due_ms = world.deliver()
        for body in bodies(world):
            found.setdefault(body, now(world))
        left_ms = until_ms - world.elapsed_ms
        if left_ms <= 0:
            return found
        wait_ms = most_ms if due_ms is None else max(1, due_ms - world.now_ms)
        world.now_ms += min(wait_ms, most_ms, left_ms)


def restart(world: DeliveryWorld, how: str) -> None:
    if how == "killed":
        world.kill()
    elif how == "stopped":
        world.stop()
        world.start()


def sent_around_a_step(
    world: DeliveryWorld, step_ms: int, how: str, properties: dict[str, str]
) -> tuple[dict[bytes, Moment], dict[bytes, Moment]]:
    """When messages were sent before and after the clock was set, which the broker noticed before
    it was started again."""
    before, after = {}, {}
    for number in range(4):
        before[b"before %d" % number] = now(world)
        world.post("orders", b"before %d" % number, properties)
        world.now_ms += SECOND
    world.set_clock(step_ms)
    world.deliver()
    restart(world, how)
    for number in range(4):
        after[b"after %d" % number] = now(world)
        world.post("orders", b"after %d" % number, properties)
        world.now_ms += SECOND
    return before, after


@pytest.mark.parametrize("how", RESTARTS)
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_level_keeps_its_delay_whatever_the_clock_is_set_to(
    world: DeliveryWorld, step_ms: int, how: str
) -> None:
    before, after = sent_around_a_step(world, step_ms, how, DELAYS["level"])
    found = deliveries(world, world.elapsed_ms + 60 * SECOND)
    took_ms = {
        body: found[body].elapsed_ms - at.elapsed_ms for body, at in (before | after).items()
    }
    assert took_ms == dict.fromkeys([*before, *after], DELAY_MS)


@pytest.mark.parametrize("step_ms", (-HOUR, HOUR))
@pytest.mark.parametrize("level", range(1, 19))
def test_many_of_a_level_come_when_their_delay_is_over_although_the_clock_was_set(
    world: DeliveryWorld, level: int, step_ms: int
) -> None:
    delay_ms = RETRY_DELAYS_MS[level - 1]
    sent: dict[bytes, int] = {}
    for number in range(20):
        if number == 10:
            world.set_clock(step_ms)
        body = b"%d" % number
        sent[body] = world.elapsed_ms
        world.send("orders", body, DELAY=str(level))
        world.now_ms += 40
    found = deliveries(world, world.elapsed_ms + delay_ms + SECOND, most_ms=delay_ms // 10)
    assert {body: found[body].elapsed_ms - at_ms for body, at_ms in sent.items()} == dict.fromkeys(
        sent, delay_ms
    )


@pytest.mark.parametrize("is_spilled", (False, True))
@pytest.mark.parametrize("how", RESTARTS)
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_delay_in_seconds_is_never_shortened_and_at_most_prolonged_by_the_step(
    world: DeliveryWorld, step_ms: int, how: str, is_spilled: bool
) -> None:
    if is_spilled:
        world.post("orders", b"first", DELAYS["seconds"])
        spill(world)
    before, after = sent_around_a_step(world, step_ms, how, DELAYS["seconds"])
    found = deliveries(world, world.elapsed_ms + max(0, -step_ms) + 60 * SECOND, 5 * SECOND)
    for body, at in before.items():
        took_ms = found[body].elapsed_ms - at.elapsed_ms
        assert DELAY_MS <= took_ms <= DELAY_MS + max(0, -step_ms), body
    for body, at in after.items():
        assert found[body].elapsed_ms - at.elapsed_ms == DELAY_MS, body


@pytest.mark.parametrize("how", RESTARTS)
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_time_is_a_time_of_the_clock(world: DeliveryWorld, step_ms: int, how: str) -> None:
    asked_ms = world.now_ms + DELAY_MS
    send_at(world, asked_ms)
    world.now_ms += SECOND
    world.set_clock(step_ms)
    world.deliver()
    restart(world, how)
    set_ms = world.now_ms
    found = deliveries(world, world.elapsed_ms + max(0, -step_ms) + 60 * SECOND, 5 * SECOND)
    assert found[b"body"].clock_ms == max(asked_ms, set_ms)


@pytest.mark.parametrize("how", ("killed", "stopped"))
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_step_while_the_broker_is_down_is_noticed_at_its_start(
    world: DeliveryWorld, step_ms: int, how: str
) -> None:
    """Killed in the moment in which the clock was set, or stopped before."""
    sent = {}
    for number in range(4):
        sent[b"%d" % number] = world.elapsed_ms
        world.send("orders", b"%d" % number, DELAY="3")
        world.now_ms += SECOND
    world.set_clock(step_ms)
    world.now_ms += SECOND
    restart(world, how)
    found = deliveries(world, world.elapsed_ms + 60 * SECOND)
    took_ms = {body: found[body].elapsed_ms - at_ms for body, at_ms in sent.items()}
    assert took_ms == dict.fromkeys(sent, DELAY_MS)


@pytest.mark.parametrize("properties", DELAYS.values(), ids=DELAYS)
@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_step_while_the_machine_is_off_prolongs_no_delay_by_more_than_the_step(
    world: DeliveryWorld, step_ms: int, properties: dict[str, str]
) -> None:
    """A clock set forward looks like a long time without power, so it is trusted."""
    sent = {}
    for number in range(4):
        sent[b"%d" % number] = now(world)
        world.post("orders", b"%d" % number, properties)
        world.now_ms += SECOND
    world.stop()
    world.now_ms += SECOND
    world.set_clock(step_ms)
    world.boots += 1
    world.start()
    found = deliveries(world, world.elapsed_ms + max(0, -step_ms) + 60 * SECOND, 5 * SECOND)
    for body, at in sent.items():
        took_ms = found[body].elapsed_ms - at.elapsed_ms
        assert found[body].clock_ms >= at.clock_ms + DELAY_MS or took_ms >= DELAY_MS, body
        assert took_ms <= DELAY_MS + max(0, -step_ms), body


def test_levels_wait_no_longer_than_the_machine_was_off_when_the_clock_is_years_back(
    world: DeliveryWorld,
) -> None:
    for number in range(4):
        world.send("orders", b"%d" % number, DELAY="3")
        world.now_ms += SECOND
    sent_ms = world.elapsed_ms - SECOND
    world.stop()
    world.now_ms += 7 * SECOND
    world.set_clock(-3 * 365 * 24 * HOUR)
    world.boots += 1
    world.start()
    world.kill()
    found = deliveries(world, world.elapsed_ms + 60 * SECOND)
    assert found[b"3"].elapsed_ms == sent_ms + DELAY_MS + 8 * SECOND


def test_a_clock_set_back_and_forth_changes_nothing(world: DeliveryWorld) -> None:
    sent = {}
    for number, step_ms in enumerate((-HOUR, 2 * HOUR, -HOUR, 30, -MINUTE, 12 * HOUR)):
        sent[b"%d" % number] = world.elapsed_ms
        world.send("orders", b"%d" % number, DELAY="3")
        world.now_ms += SECOND
        world.set_clock(step_ms)
        world.deliver()
        world.kill()
    found = deliveries(world, world.elapsed_ms + 60 * SECOND)
    assert {body: found[body].elapsed_ms - at for body, at in sent.items()} == dict.fromkeys(
        sent, DELAY_MS
    )


@pytest.mark.parametrize(
    "steps_ms", ((-HOUR,), (-HOUR, -HOUR), (-HOUR, HOUR), (-HOUR, 30 * MINUTE))
)
def test_what_was_delivered_is_saved_also_while_the_clock_is_set_back(
    world: DeliveryWorld, steps_ms: tuple[int, ...]
) -> None:
    """Timers that were delivered before and after each step come once; those between them wait."""
    expected, later = [], []
    for number, step_ms in enumerate((0, *steps_ms)):
        world.set_clock(step_ms)
        for body, delay_ms in ((b"soon %d", SECOND), (b"later %d", 20 * MINUTE)):
            send_at(world, world.now_ms + delay_ms, body % number)
        expected.append(b"soon %d" % number)
        later.append(b"later %d" % number)
        world.pass_time(2)
        world.deliver()
        world.save()
        world.kill()
    world.deliver()
    assert [body for body in bodies(world) if body not in later] == expected
    world.pass_time(-min(0, sum(steps_ms)) / SECOND + 20 * 60)
    world.deliver()
    assert sorted(bodies(world)) == sorted([*expected, *later])


def test_a_clock_that_is_set_back_often_repeats_only_what_forgotten_marks_cover(
    world: DeliveryWorld,
) -> None:
    """The number of marks is limited: the oldest are dropped, and their messages may repeat."""
    send_at(world, world.now_ms + 24 * HOUR, b"pending")
    for number in range(40):
        send_at(world, world.now_ms + SECOND, b"%d" % number)
        world.pass_time(2)
        world.deliver()
        world.set_clock(-MINUTE)
    world.save()
    world.kill()
    world.pass_time(40 * 60)
    found = bodies(world)
    assert set(found) == {b"%d" % number for number in range(40)}
    assert [body for body in found if int(body) >= 30] == [b"%d" % n for n in range(30, 40)]


@pytest.mark.parametrize("step_ms", STEPS_MS)
def test_a_recall_counts_whatever_the_clock_is_set_to(world: DeliveryWorld, step_ms: int) -> None:
    sent = world.post("orders", b"body", {"TIMER_DELAY_SEC": "20000", "UNIQ_KEY": "k"})
    assert isinstance(sent, RecallableSent)
    world.set_clock(step_ms)
    header = RecallMessage(producer_group="p", topic="orders", recall_handle=sent.recall_handle)
    assert world.call(header).code == ResponseCode.SUCCESS
    world.pass_time(50_000)
    assert bodies(world) == []


@pytest.mark.parametrize("step_ms", (-HOUR, HOUR))
def test_what_follows_a_power_cut_is_stored_after_the_step(
    world: DeliveryWorld, step_ms: int
) -> None:
    """The cut takes the end of the log, which the step was noted with."""
    world.broker.topics.put(plain_topic("other", 1))
    world.flush()
    for _ in range(20):
        world.broker.store.append(plain_message(world), world.now_ms)
    world.set_clock(step_ms)
    world.deliver()
    world.lose_power(Random(1))
    sent_ms = world.elapsed_ms
    for _ in range(2):
        world.send("orders", DELAY="3")
        world.kill()
    found = deliveries(world, world.elapsed_ms + 60 * SECOND)
    assert found[b"body"].elapsed_ms == sent_ms + DELAY_MS


def plain_message(world: DeliveryWorld) -> PutMessage:
    return PutMessage("other", 0, 0, 0, world.now_ms, world.broker.store_host, 0, bytes(100), b"")


def test_a_broker_that_is_held_up_between_two_looks_sees_no_step(world: DeliveryWorld) -> None:
    """Stopped by a debugger or a host, between asking the one clock and the other."""
    passed = iter([0, 0, 0, 0, 5_000, 5_000, *[9_000] * 20])
    clock, monotonic = (lambda: EPOCH_MS + next(passed)), (lambda: next(passed))
    said: list[object] = []
    store = world.broker.store
    saving = world.broker.saving
    steps = ClockSteps.open(world.disk, store, saving, clock, monotonic, "", said.append)
    assert steps.now_ms() == EPOCH_MS + 9_000
    assert steps.since(0) == 0
    assert said == []


def test_a_step_is_reported_once(world: DeliveryWorld, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world.set_clock(-HOUR)
    for _ in range(3):
        world.send("orders", DELAY="3")
        world.kill()
    assert caplog.text.count("the clock was set back by 3600000 ms") == 1


@pytest.mark.parametrize(
    ("days", "step_days", "is_kept"), [(1, 30, True), (1, -30, True), (4, -30, False)]
)
def test_messages_are_kept_for_three_days_that_pass(
    world: DeliveryWorld, days: int, step_days: int, is_kept: bool
) -> None:
    """A clock that is set forward would take what still waits; one set back would keep it all."""
    world.post("orders", b"waits", {"TIMER_DELAY_SEC": str(3 * 24 * 3600)})
    world.broker.topics.put(plain_topic("other", 1))
    for _ in range(3):
        world.send("other", bytes(1_000_000))
    world.flush()
    world.set_clock(step_days * 24 * HOUR)
    world.now_ms += days * 24 * HOUR
    world.call(DeleteExpiredLog())
    assert (world.broker.store.min_log_offset == 0) == is_kept


def test_a_damaged_table_of_steps_does_not_stop_a_start(world: DeliveryWorld) -> None:
    world.set_clock(-HOUR)
    world.send("orders", DELAY="3")
    for path in ("config/clockSteps.json", "config/clockSteps.json.bak"):
        if path in world.disk.files():
            world.disk.poke(path, bytes(20))
    world.kill()
    world.pass_time(10)
    world.deliver()
    assert bodies(world) == [b"body"]
