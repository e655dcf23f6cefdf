"""Runs of timers that are lost, wrong or of another queue are rebuilt from the queue itself."""

import random
from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery import timer_index
from sparrowmq.broker.delivery.timer_files import RunFiles, RunList, RunRange, TimerCheck
from sparrowmq.broker.delivery.timer_index import entry_of
from sparrowmq.disk.errors import DiskFull
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, bodies, orders_world
from tests.broker.timer_world import runs, send_at, spill


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


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


def test_a_lost_run_is_written_again_and_apache_learns_where_its_messages_begin(
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


def test_runs_and_drafts_without_a_list_are_removed_and_files_of_others_stay(
    world: DeliveryWorld,
) -> None:
    send_at(world, EPOCH_MS + 60_000)
    spill(world)
    (run,) = runs(world)
    left = [f"{run}.7", f"{run}.8.tmp", f"sparrowmq/timer/{1:020d}"]
    foreign = [f"{run}.copy", f"{run}.2026-11-19", f"{run}.tar.gz", "sparrowmq/timer/notes"]
    for path in (*left, *foreign):
        world.disk.poke(path, b"of another")
    world.kill()
    world.pass_time(1)
    assert not world.disk.files().keys() & set(left)
    assert world.disk.files().keys() >= {run, *foreign}


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
    assert index.in_memory == (281 if is_full else 31)
    assert len(runs(world)) == (0 if is_full else 5)
    assert world.broker.store.durable_log_offset == world.broker.store.max_log_offset
    if not is_full:
        spill(world)
    world.kill()
    assert len(world.broker.delivery.timers) == 281
    world.pass_time(31)
    assert bodies(world) == [b"%d" % number for number in range(1, 302)]


def test_runs_of_a_queue_that_was_cut_are_thrown_away(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 1_000)
    RunFiles(world.disk).save_list(RunList(999, []))
    strange = "sparrowmq/timer/notes.txt"
    for path in (strange, f"sparrowmq/timer/{7:020d}", f"sparrowmq/timer/{7:020d}.1"):
        world.disk.poke(path, b"x")
    world.kill()
    world.pass_time(2)
    assert bodies(world) == [b"body"]
    left = {path for path in world.disk.files() if path.startswith("sparrowmq/timer/")}
    assert left - {"sparrowmq/timer/runs.json"} == {strange}


def test_a_corrected_run_is_written_beside_the_one_with_a_wrong_entry(
    world: DeliveryWorld,
) -> None:
    send_at(world, EPOCH_MS + 60_000, b"corrected")
    send_at(world, EPOCH_MS + 61_000, b"right")
    spill(world)
    wrong, right = entry_of(EPOCH_MS + 1_000, 0), entry_of(EPOCH_MS + 61_000, 1)
    RunFiles(world.disk).write(RunRange(0, 2), [wrong, right])
    world.kill()
    world.pass_time(2)
    spill(world)
    assert world.broker.delivery.timers.run_list.runs == [RunRange(0, 2), RunRange(0, 2, 1)]
    assert len(runs(world)) == 2
    world.save()
    world.kill()
    world.pass_time(60)
    assert bodies(world) == [b"corrected", b"right"]
    world.save()
    assert runs(world) == []
