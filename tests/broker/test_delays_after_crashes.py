"""Progress of the delay levels: kept, never ahead of what is durable, and not lost in a crash."""

import random
from collections.abc import Iterator, Mapping

import pytest

from sparrowmq.broker.delivery.delay_levels import DelayOffsets, DelayProgress, journal_progress
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.store.table_file import TableMissing
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.crashes import crashed_worlds, lose_log_from
from tests.broker.delivery_world import DeliveryWorld, bodies, orders_world
from tests.seeds import CRASH_STEPS


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def test_what_was_delivered_and_saved_is_not_delivered_again(world: DeliveryWorld) -> None:
    for level in ("1", "1", "2"):
        world.send("orders", b"level " + level.encode(), DELAY=level)
    world.pass_time(2)
    world.save()
    world.kill()
    world.pass_time(60)
    assert bodies(world) == [b"level 1", b"level 1", b"level 2"]


def test_progress_is_kept_in_apaches_file(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="1")
    world.send("orders", DELAY="3")
    world.pass_time(1)
    world.deliver()
    world.stop()
    table = DelayOffsets.from_json(world.disk.files()["config/delayOffset.json"])
    assert table.offset_table[1] == 1
    assert table.offset_table[3] == 0
    assert table.data_version is not None


def test_progress_is_not_saved_before_the_delivered_message_is_durable() -> None:
    for seed in range(20):
        with orders_world() as world:
            world.send("orders", DELAY="1")
            world.flush()
            world.now_ms += 1_000
            world.deliver()
            for _ in range(2):
                world.run(journal_progress(world.broker))
            world.lose_power(random.Random(seed))
            world.deliver()
            assert set(bodies(world)) == {b"body"}, seed


def test_a_lost_table_stops_the_start_when_messages_wait(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="1")
    world.stop()
    for path in ("config/delayOffset.json", "config/delayOffset.json.bak"):
        world.disk.unlink(path)
    with pytest.raises(TableMissing, match="delayOffset"):
        world.start()


def test_a_store_from_before_delays_starts_without_a_table(world: DeliveryWorld) -> None:
    world.send("orders")
    world.stop()
    for path in ("config/delayOffset.json", "config/delayOffset.json.bak"):
        world.disk.unlink(path)
    world.start()
    assert bodies(world) == [b"body"]


def _run_until_cut(world: DeliveryWorld, acknowledged: dict[bytes, int]) -> None:
    """Send, deliver and save over and over; every delivery time is noted when acknowledged."""
    for number in range(6):
        body = b"%d" % number
        level = 1 + number % 2
        world.send("orders", body, DELAY=str(level))
        acknowledged[body] = world.now_ms + RETRY_DELAYS_MS[level - 1]
        world.flush()
        world.pass_time(0.7)
        # As in a running broker, the log grows between a look at the progress and the next sync
        world.run(journal_progress(world.broker))
        for _ in range(8):
            world.send("orders", b"plain", queue_id=1)
        world.save()


def crash_faults(*, power: bool, step: int) -> set[str]:
    """What is wrong with the deliveries after crashes at one call after the other."""
    found = set()
    worlds = crashed_worlds(_run_until_cut, power=power, step=step, least=50)
    for world, acknowledged, call in worlds:
        world.pass_time(20)
        world.deliver()
        came = {message.body: message.store_timestamp for message in world.messages("orders")}
        found |= {f"call {call} lost {body!r}" for body in acknowledged.keys() - came.keys()}
        early = {body for body, at_ms in came.items() if at_ms < acknowledged.get(body, 0)}
        found |= {f"call {call} made {body!r} early" for body in early}
    return found


@pytest.mark.parametrize("step", CRASH_STEPS)
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_in_any_disk_call_loses_nothing_and_delivers_nothing_early(
    power: bool, step: int
) -> None:
    assert crash_faults(power=power, step=step) == set()


@pytest.mark.parametrize("step", CRASH_STEPS)
def test_planted_journalling_progress_ahead_of_the_log_is_noticed(
    monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    journal = DelayProgress.journal

    async def journal_at_once(
        progress: DelayProgress,
        offsets: Mapping[int, int],
        log_end: int,
        durable_log_offset: int,
        workers: Workers,
    ) -> None:
        await journal(progress, offsets, log_end, log_end, workers)

    monkeypatch.setattr(DelayProgress, "journal", journal_at_once)
    assert any(" lost " in fault for fault in crash_faults(power=True, step=step))


def test_a_running_broker_that_is_killed_delivers_afterwards() -> None:
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"later", DELAY="3"))
        sim.advance(3)
        sim.brokers["broker-a"].kill()
        sim.advance(20)
        sim.brokers["broker-a"].start()
        sim.advance(0.1)
        assert sim.wait(sim.client.pull("orders")).bodies == [b"later"]


def test_progress_beyond_the_end_of_a_level_counts_as_its_end(world: DeliveryWorld) -> None:
    """A power cut took messages that were delivered; the next ones get their offsets."""
    world.send("orders", b"0", DELAY="1")
    world.pass_time(2)
    world.stop()
    world.disk.poke("config/delayOffset.json", DelayOffsets(offset_table={1: 5}).to_json())
    world.start()
    for number in range(1, 7):
        world.send("orders", b"%d" % number, DELAY="1")
    world.pass_time(2)
    assert bodies(world) == [b"%d" % number for number in range(7)]


def test_a_running_broker_keeps_its_progress_in_apaches_file() -> None:
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"later", DELAY="1"))
        sim.advance(12)
        table = sim.brokers["broker-a"].disk.files()["config/delayOffset.json"]
        assert DelayOffsets.from_json(table).offset_table[1] == 1


@pytest.mark.parametrize("is_full", [False, True])
def test_delays_that_take_offsets_of_delivered_ones_after_damage_are_delivered(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """The damage takes the end of the log. With space for one table the next kill may come before
    anything else is saved."""

    def refuse(progress: DelayProgress, offsets: dict[int, int]) -> None:
        raise DiskFull("delayOffset.json", 0, "no space")

    world.send("orders", b"kept")
    log_end = world.broker.store.max_log_offset
    for number in range(4):
        world.send("orders", b"taken %d" % number, DELAY="1")
    world.pass_time(2)
    world.save()
    lose_log_from(world, log_end)
    if is_full:
        monkeypatch.setattr(DelayProgress, "lower", refuse)
    world.kill()
    sent = [b"%d" % number for number in range(5)]
    for body in sent:
        world.send("orders", body, DELAY="1")
    if not is_full:
        world.kill()
    world.pass_time(2)
    assert bodies(world) == [b"kept", *sent]
