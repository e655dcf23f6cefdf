"""A full disk: state outside the log is saved once there is space, and is not lost."""

import logging
from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery.timer_files import RunFiles
from sparrowmq.broker.housekeeping import RefusalLog
from sparrowmq.disk.errors import DiskFull, NoDescriptors
from sparrowmq.net.routes import Reply
from sparrowmq.net.slices import Slices
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.messages import RecallableSent, RecallMessage
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.journal import Journal
from tests.broker import transaction_world
from tests.broker.delivery_world import (
    EPOCH_MS,
    DeliveryWorld,
    bodies,
    no_space,
    orders_world,
)
from tests.broker.timer_world import runs, send_at, spill


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def full(*_: object) -> None:
    raise DiskFull("somewhere", 1)


@pytest.mark.parametrize("whole_table", [False, True])
def test_progress_that_found_no_space_is_saved_once_space_is_free(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch, whole_table: bool
) -> None:
    for _ in range(5):
        world.send("orders")
    world.flush()
    table, offsets = world.broker.tables.offsets, world.broker.offsets
    offsets.commit("billing", "orders", 0, 5)
    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(DiskFull):
        world.run(
            (table.save if whole_table else table.journal)(offsets, InlineWorkers(), Slices())
        )
    monkeypatch.undo()
    world.run(table.journal(offsets, InlineWorkers(), Slices()))
    world.kill()
    assert world.broker.offsets.get("billing", "orders", 0) == 5


def test_timers_that_find_no_space_for_a_run_stay_in_memory(
    world: DeliveryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (3, 1, 2):
        send_at(world, EPOCH_MS + number * 1_000, b"%d" % number)
    monkeypatch.setattr(RunFiles, "write", full)
    with pytest.raises(DiskFull):
        spill(world)
    monkeypatch.undo()
    assert len(world.broker.delivery.timers) == 3
    world.pass_time(1)
    world.deliver()
    assert bodies(world) == [b"1"]
    spill(world)
    assert len(runs(world)) == 1
    world.pass_time(2)
    world.deliver()
    assert bodies(world) == [b"1", b"2", b"3"]


def test_a_request_that_finds_no_space_is_refused_and_can_be_retried(world: DeliveryWorld) -> None:
    def commit() -> Reply:
        return transaction_world.end(world, half, TRANSACTION_COMMIT)

    def recall() -> Reply:
        return world.call(RecallMessage(topic="orders", recall_handle=handle))

    def give_back() -> Reply:
        return world.give_back(message, "billing")

    def send_delayed() -> Reply:
        return world.try_send("orders", DELAY="1")

    half = transaction_world.half(world)
    timed = send_at(world, EPOCH_MS + 60_000)
    assert isinstance(timed, RecallableSent)
    handle = timed.recall_handle
    world.send("orders", b"failed")
    (message,) = world.messages("orders")
    store = world.broker.store
    for ask in (commit, recall, give_back, send_delayed):
        end = store.max_log_offset
        with no_space(world):
            answer = ask()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, ask
        assert "no space" in answer.remark
        assert store.max_log_offset == end
        assert ask().code == ResponseCode.SUCCESS, ask
    world.pass_time(61)
    world.deliver()
    assert transaction_world.bodies(world) == [b"an order"]
    assert bodies(world, "%RETRY%billing") == [b"failed"]
    assert bodies(world) == [b"failed", b"body"]


def test_a_store_that_refuses_messages_is_logged_at_first_every_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    now_ms = [0]
    log = RefusalLog(logging.getLogger("sparrowmq.broker"), lambda: now_ms[0])
    for second in range(131):
        now_ms[0] = second * 1000
        log.note(DiskFull("commitlog/0", 20))
    log.note(None)
    log.note(None)
    why = "no space for 20 bytes in commitlog/0"
    refused = f"messages are refused: {why}; make room on the disk, and they are accepted again"
    assert caplog.messages == [*[refused] * 3, "accepting messages again after 130 s"]


@pytest.mark.parametrize(
    ("refusal", "remedy"),
    [
        (DiskFull("commitlog/0", 20), "; make room on the disk, and they are accepted again"),
        (
            NoDescriptors("commitlog/0"),
            "; close connections or raise the limit (ulimit -n), and they are accepted again",
        ),
        (StoreStopped("it failed"), ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_log_line_about_refused_messages_ends_with_the_remedy(
    refusal: Exception, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    RefusalLog(logging.getLogger("sparrowmq.broker"), lambda: 0).note(refusal)
    assert caplog.messages == [f"messages are refused: {refusal}{remedy}"]
