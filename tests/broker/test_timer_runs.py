"""Pending timers on disk: few are in memory, and all come in their order."""

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import ClassVar, ParamSpec, TypeVar

import pytest

from sparrowmq.broker.delivery import timer_delivery, timer_persistence
from sparrowmq.broker.delivery.timer_files import RunList, RunRange, TimerCheck
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.workers import InlineWorkers
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, bodies, orders_world
from tests.broker.timer_world import DAY_MS, runs, send_at, spill

P = ParamSpec("P")
T = TypeVar("T")


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


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
        await timer_persistence.save_mark(
            world.broker
        )  # progress is saved while a cold read is waited for
        raise asyncio.CancelledError

    with monkeypatch.context() as patch:
        if ends == "full disk":
            patch.setattr(timer_delivery, "deliver", full)
        else:
            patch.setattr(timer_delivery, "read_own_queue", stopped_while_it_reads)
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
        world.run(timer_persistence.spill(world.broker))
    assert timers.run_list == RunList(100, [RunRange(0, 100)])
    assert len(timers) == 3


@pytest.mark.parametrize(
    ("count", "run_entries"), [(4_000, 256), pytest.param(100_000, 8_192, marks=pytest.mark.slow)]
)
def test_many_pending_timers_take_little_memory_and_all_come(count: int, run_entries: int) -> None:
    with orders_world() as world:
        index = world.broker.delivery.timers
        index.run_entries = run_entries
        rng = random.Random(4)
        for number in range(count):
            world.send("orders", b"x", TIMER_DELAY_MS=str(rng.randrange(1, 3 * DAY_MS)))
            if number % (run_entries // 2) == 0:
                world.flush()
                world.run(timer_persistence.spill(world.broker))
        assert len(index) == count
        assert index.in_memory < 3 * run_entries
        world.flush()
        world.kill()
        assert len(world.broker.delivery.timers) == count
        world.now_ms += 3 * DAY_MS
        world.deliver()
        assert world.broker.store.max_offset("orders", 0) == count


class SlowWorkers(InlineWorkers):
    """Results arrive some turns of the loop later, so that other tasks run in between."""

    turns: ClassVar[dict[str, int]] = {"save_list": 3}

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        result = function(*args, **kwargs)
        for _ in range(self.turns.get(getattr(function, "__name__", ""), 1)):
            await asyncio.sleep(0)
        return result


@pytest.mark.parametrize("spill_first", [True, False])
def test_dropping_a_run_while_another_is_written_loses_no_timer(
    world: DeliveryWorld, spill_first: bool
) -> None:
    send_at(world, EPOCH_MS + 1_000, b"done")
    spill(world)
    world.now_ms += 1_000
    world.deliver()
    send_at(world, EPOCH_MS + 60_000, b"pending")
    world.flush()
    timers = world.broker.delivery.timers
    timers.run_entries = 1
    world.broker.workers = SlowWorkers()

    async def both() -> None:
        work = [timer_persistence.spill(world.broker), timer_persistence.save_mark(world.broker)]
        await asyncio.gather(*(work if spill_first else reversed(work)))

    world.run(both())
    send_at(world, EPOCH_MS + 61_000, b"later")
    world.flush()
    world.run(timer_persistence.spill(world.broker))
    world.save()
    assert timers.run_list.covered == 3
    assert RunRange(0, 1) not in timers.run_list.runs
    world.kill()
    world.pass_time(100)
    assert bodies(world) == [b"done", b"pending", b"later"]


def test_progress_that_is_saved_while_a_run_is_written_names_the_first_that_waits(
    world: DeliveryWorld,
) -> None:
    send_at(world, EPOCH_MS + 60_000, b"pending")
    send_at(world, EPOCH_MS + 1_000, b"done")
    world.now_ms += 1_000
    world.deliver()
    world.flush()
    world.broker.delivery.timers.run_entries = 1
    world.broker.workers = SlowWorkers()

    async def both() -> None:
        await asyncio.gather(
            timer_persistence.spill(world.broker), timer_persistence.save_mark(world.broker)
        )

    world.broker.delivery.timers.progress_saved()
    world.broker.delivery.timers.reached(world.now_ms + 1, 2)  # noted while the run is on its way
    world.run(both())
    assert TimerCheck(world.disk).load()[1].queue_offset == 0


def test_timers_that_come_while_a_run_waits_for_the_log_stay_in_order(world: DeliveryWorld) -> None:
    numbers = list(range(200))
    random.Random(3).shuffle(numbers)
    timers = world.broker.delivery.timers
    timers.run_entries = 100
    for number in numbers:
        send_at(world, EPOCH_MS + 1_000 + number, b"%d" % number)
        if len(timers) == 100:
            world.run(timer_persistence.spill(world.broker))
    assert runs(world) == []
    world.flush()
    world.run(timer_persistence.spill(world.broker))
    assert timers.run_list == RunList(100, [RunRange(0, 100)])
    timers.run_entries = 1_000
    world.pass_time(2)
    assert bodies(world) == [b"%d" % number for number in range(200)]
