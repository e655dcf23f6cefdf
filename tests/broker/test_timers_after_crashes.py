"""Timers after kills, power cuts and a clock that is set back: none lost, none early."""

import random
from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery import timer_persistence
from sparrowmq.broker.delivery.timer_files import RunRange
from tests.broker.crashes import crashed_worlds, lose_log_from
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, bodies, orders_world
from tests.broker.timer_world import send_at, spill
from tests.seeds import CRASH_STEPS


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


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


def test_progress_and_runs_are_saved_only_after_their_messages_are_durable() -> None:
    for seed in range(20):
        with orders_world() as world:
            send_at(world, EPOCH_MS + 1_000, b"flushed")
            world.flush()
            world.now_ms += 1_000
            world.deliver()
            for _ in range(2):
                world.run(timer_persistence.save_mark(world.broker))
            world.broker.delivery.timers.run_entries = 1
            send_at(world, EPOCH_MS + 9_000, b"not flushed")
            world.run(timer_persistence.spill(world.broker))
            world.lose_power(random.Random(seed))
            assert world.broker.delivery.timers.run_list.runs == []
            world.deliver()
            assert set(bodies(world)) == {b"flushed"}, seed


def test_a_timer_delivered_while_a_run_waits_for_the_disk_survives_a_power_cut() -> None:
    for seed in range(5):
        with orders_world() as world:
            send_at(world, EPOCH_MS + 1_000, b"due soon")
            send_at(world, EPOCH_MS + 9_000, b"due later")
            timers = world.broker.delivery.timers
            timers.run_entries = 1
            world.run(timer_persistence.spill(world.broker))
            assert timers.run_list.runs == []
            world.flush()
            world.now_ms += 1_000
            world.deliver()
            world.run(timer_persistence.spill(world.broker))
            assert timers.run_list.runs == [RunRange(0, 2)]
            world.pass_time(1)
            assert bodies(world) == [b"due soon"]
            world.lose_power(random.Random(seed))
            world.pass_time(20)
            assert set(bodies(world)) == {b"due soon", b"due later"}, seed


@pytest.mark.parametrize("is_spilled", [False, True])
@pytest.mark.parametrize("step_ms", [0, -3_600_000])
def test_timers_that_take_offsets_of_delivered_ones_after_damage_are_delivered(
    world: DeliveryWorld, step_ms: int, is_spilled: bool
) -> None:
    """The damage takes the end of the log, and the broker is killed before it saves anything."""
    world.send("orders", b"kept")
    log_end = world.broker.store.max_log_offset
    for number in range(4):
        send_at(world, EPOCH_MS + 1_000, b"taken %d" % number)
    if is_spilled:
        spill(world)
    world.pass_time(2)
    world.save()
    lose_log_from(world, log_end)
    world.kill()
    world.set_clock(step_ms)
    sent = [b"%d" % number for number in range(5)]
    for body in sent:
        send_at(world, world.now_ms + 5_000, body)
    world.kill()
    world.pass_time(20)
    assert bodies(world) == [b"kept", *sent]


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


@pytest.mark.parametrize("step", CRASH_STEPS)
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_in_any_disk_call_loses_nothing_and_delivers_nothing_early(
    power: bool, step: int
) -> None:
    worlds = crashed_worlds(_run_until_cut, power=power, step=step, least=100)
    for world, acknowledged, call in worlds:
        world.pass_time(20)
        delivered = world.messages("orders")
        assert set(acknowledged) <= {message.body for message in delivered}, call
        for message in delivered:
            assert message.store_timestamp >= acknowledged.get(message.body, 0), call
