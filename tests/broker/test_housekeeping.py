"""Background work of a running broker: it cleans up and saves its progress."""

from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq.broker.delivery.half_messages import TRANSACTION_GROUP
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.names import TRANS_HALF_TOPIC
from sparrowmq.testing.recording_disk import RecordedFile
from tests.broker.world import World


def delivered(world: World) -> int:
    return world.broker.store.max_offset("orders", 0)


def kill_and_start(world: World) -> None:
    world.sim.brokers["broker-a"].restart()
    world.sim.advance(10)


@pytest.mark.parametrize("delay", [{"TIMER_DELAY_MS": "1000"}, {"DELAY": "1"}], ids=" ".join)
def test_what_was_delivered_late_is_not_delivered_again_after_a_kill(
    delay: dict[str, Any], world: World
) -> None:
    world.topic("orders", 1)
    world.send("orders", b"later", **delay)
    world.sim.advance(5)
    assert delivered(world) == 1
    kill_and_start(world)
    assert delivered(world) == 1


def test_where_pending_transactions_begin_is_kept(world: World) -> None:
    world.topic("orders", 1)
    world.send("orders", b"an order", TRAN_MSG="true", PGROUP="orders-svc")
    world.sim.advance(5)
    kill_and_start(world)
    assert world.broker.offsets.get(TRANSACTION_GROUP, TRANS_HALF_TOPIC, 0) == 0


def test_index_slots_are_read_ahead_off_the_loop_while_they_are_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, int, bool]] = []
    inline = InlineWorkers.run
    is_beside = False

    async def run(workers: InlineWorkers, work: Callable[..., Any], *args: Any) -> Any:
        nonlocal is_beside
        is_beside = True
        result = await inline(workers, work, *args)
        is_beside = False
        return result

    def note(file: RecordedFile, offset: int, length: int) -> None:
        if file.path.startswith("index/"):
            asked.append((file.path, length, is_beside))

    world.topic("orders", 1)
    monkeypatch.setattr(RecordedFile, "read_ahead", note)
    monkeypatch.setattr(InlineWorkers, "run", run)
    world.send("orders", b"one", KEYS="o-1")
    world.sim.advance(1.1)
    (path,) = (path for path in world.sim.brokers["broker-a"].disk.files() if "index/2" in path)
    layout = world.broker.store.config
    assert asked == [(path, 40 + 4 * layout.index_slots, True)]
    world.sim.advance(60)
    asked.clear()
    world.sim.advance(60)
    assert asked == [], "everything is written"


def test_progress_of_a_group_is_kept_within_a_second(world: World) -> None:
    world.topic("orders", 1)
    world.send("orders", b"1", b"2", b"3")
    world.commit("billing", "orders", 0, 3)
    world.sim.advance(1)
    kill_and_start(world)
    assert world.broker.offsets.get("billing", "orders", 0) == 3


def test_expired_files_are_looked_for_every_10_s(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []
    monkeypatch.setattr(world.broker.store, "clean_some", lambda now_ms, **_: looks.append(now_ms))
    world.sim.advance(60)
    assert len(looks) == 6
