"""The pending timers that we write for Apache's broker, and how we read its files."""

import itertools
import random
import struct
from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.broker.delivery.placement import fields_of
from sparrowmq.broker.delivery.redelivery import copy_to
from sparrowmq.broker.delivery.timer_files import TimerCheck, TimerMark
from sparrowmq.protocol.headers.messages import RecallableSent, RecallMessage
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.record import Record
from sparrowmq.store.messages import PutMessage
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld, Sent, bodies, orders_world
from tests.broker.timer_world import send_at
from tests.seeds import CRASH_STEPS

LOG = "timerlog/00000000000000000000"
UNIT = struct.Struct(">iqiqiqiiq")
NORMAL, DELETE = 1, 5


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


def send_in(world: DeliveryWorld, seconds: float, body: bytes) -> Sent:
    return world.post("orders", body, {"TIMER_DELIVER_MS": str(EPOCH_MS + round(seconds * 1000))})


def units(world: DeliveryWorld) -> list[tuple[int, ...]]:
    data = world.disk.files()[LOG]
    assert len(data) == world.config.store.timer_log_size
    found = [UNIT.unpack_from(data, at) for at in range(0, len(data) - UNIT.size, UNIT.size)]
    return [unit for unit in found if unit[0]]


def goes_on_at(world: DeliveryWorld) -> tuple[int, int, int]:
    """What Apache takes from config/timercheck: the time, and the queue offset, stored twice."""
    page = struct.unpack_from(">qqqq", world.disk.files()["config/timercheck"])
    assert page[1] == 0, "a timer log that is read from its beginning"
    return page[0], page[2], page[3]


def log_place(world: DeliveryWorld, offset: int) -> tuple[int, int]:
    ((log_offset, size, _),) = world.broker.store.units(TIMER_TOPIC, 0, offset, 1)
    return log_offset, size


def test_a_stop_leaves_exactly_the_pending_timers_in_apaches_timer_log(
    world: DeliveryWorld,
) -> None:
    for number, seconds in enumerate([60, 1.5, 60.9, 1.2, 90]):
        send_in(world, seconds, b"%d" % number)
    world.pass_time(2)
    world.deliver()
    places = [log_place(world, offset) for offset in (0, 2, 4)]
    world.stop()
    assert goes_on_at(world) == (EPOCH_MS + 1_000, 5, 5)
    now_ms = EPOCH_MS + 2_000
    assert units(world) == [
        (52, -1, NORMAL, now_ms, 57_000, *places[0], 0, 0),  # out at 59 s: the slot before 60
        (52, -1, NORMAL, now_ms, 58_000, *places[1], 0, 0),
        (52, -1, NORMAL, now_ms, 87_000, *places[2], 0, 0),
    ]


def test_timers_of_one_second_are_chained(world: DeliveryWorld) -> None:
    for seconds in (1, 60.1, 60.2, 70, 60.3):
        send_in(world, seconds, b"x")
    # The first is pending too, so that there is something to tell the queue cannot.
    send_in(world, 0.5, b"soon")
    world.pass_time(0.6)
    world.deliver()
    world.stop()
    assert [unit[1] for unit in units(world)] == [-1, -1, 52, -1, 104, -1]


def test_apache_continues_to_read_the_queue_after_its_last_message(world: DeliveryWorld) -> None:
    send_in(world, 60, b"pending")
    send_in(world, 1, b"delivered")
    world.pass_time(2)
    world.deliver()
    last = log_place(world, 1)
    world.stop()
    # Its last unit is of the last message, in a second long past, which is never read again.
    assert units(world)[-1][4:7] == (-8 * 86_400_000, *last)


def test_messages_overdue_at_a_stop_are_due_at_once_for_apache(world: DeliveryWorld) -> None:
    for seconds in (70, 1, 2, 60, 3):
        send_in(world, seconds, b"x")
    world.pass_time(1)
    world.deliver()
    world.now_ms += 40 * 86_400_000
    world.stop()
    assert [unit[4] for unit in units(world)] == [0, 0, 0, 0]


def test_a_stop_after_the_clock_was_set_back_forgets_no_timer() -> None:
    with SimCluster(seed=1).run() as sim:
        for body, seconds in ((b"late", 60), (b"soon", 19)):
            send_timed(sim, body, seconds)
        sim.advance(20)
        sim.set_clock(-15_000)
        send_timed(sim, b"after the step", 4)
        sim.brokers["broker-a"].stop()
        sim.brokers["broker-a"].start()
        sim.advance(80)
        delivered = [bytes(record.body) for record in records(sim.broker.store, "orders", 0)]
        assert delivered == [b"soon", b"after the step", b"late"]


def send_timed(sim: RunningCluster, body: bytes, seconds: int) -> None:
    due_ms = sim.clock() + 1000 * seconds
    sim.wait(sim.client.send("orders", body, TIMER_DELIVER_MS=str(due_ms)))


def test_a_recall_is_written_as_a_recall(world: DeliveryWorld) -> None:
    sent = send_in(world, 60, b"taken back")
    assert isinstance(sent, RecallableSent)
    send_in(world, 1, b"delivered")
    header = RecallMessage(topic="orders", recall_handle=sent.recall_handle, producer_group="g")
    assert world.call(header).code == 0
    world.pass_time(2)
    world.deliver()
    world.stop()
    message, recall = units(world)
    assert (message[2], recall[2]) == (NORMAL, DELETE)
    assert message[4] == recall[4], "both are in one second"


def test_no_timer_log_is_written_if_the_timer_queue_suffices(world: DeliveryWorld) -> None:
    send_in(world, 1, b"delivered")
    send_in(world, 60, b"pending")
    world.pass_time(2)
    world.deliver()
    world.stop()
    assert LOG not in world.disk.files()
    assert goes_on_at(world)[1:] == (1, 1)


def test_more_timers_than_fit_are_left_to_the_queue(world: DeliveryWorld) -> None:
    for number in range(world.config.store.timer_log_size // UNIT.size + 2):
        send_in(world, 60, b"%d" % number)
    send_in(world, 1, b"delivered")
    world.pass_time(2)
    world.deliver()
    world.stop()
    assert LOG not in world.disk.files()
    assert goes_on_at(world)[1:] == (0, 0)


def test_a_start_deletes_apaches_timer_files_after_saving_the_position(
    world: DeliveryWorld,
) -> None:
    for seconds in (60, 1, 61):
        send_in(world, seconds, b"%d" % seconds)
    world.pass_time(2)
    world.deliver()
    world.stop()
    world.disk.poke("timerwheel", b"x" * 64)
    world.disk.poke("timerlog/notes.txt", b"of an operator")
    world.start()
    left = [path for path in world.disk.files() if path.startswith("timer")]
    assert left == ["timerlog/notes.txt"], "it is not a file of Apache's"
    assert goes_on_at(world)[1:] == (0, 0)
    assert TimerCheck(world.disk).load()[0].time_ms == EPOCH_MS + 1_000
    world.pass_time(100)
    assert bodies(world) == [b"1", b"60", b"61"]


def test_a_message_that_apache_requeued_is_delivered_once(
    world: DeliveryWorld,
) -> None:
    # Apache's wheel reaches two days ahead: what is due later is stored again on its way.
    sent = world.post("orders", b"far", {"TIMER_DELIVER_MS": str(EPOCH_MS + 9_000)})
    put = timer_again(*first_timer(world), TIMER_ROLL_TIMES="1", TIMER_DEQUEUE_MS="1")
    world.broker.store.append(put, world.now_ms)
    send_in(world, 9, b"another one")
    world.stop()
    world.start()
    world.pass_time(10)
    assert bodies(world) == [b"far", b"another one"]
    assert world.messages("orders")[0].properties["UNIQ_KEY"] == sent.transaction_id


def test_a_message_that_apache_requeued_is_delivered_even_if_the_first_is_gone(
    world: DeliveryWorld,
) -> None:
    send_in(world, 9, b"far")
    put = timer_again(*first_timer(world), TIMER_ROLL_TIMES="1", UNIQ_KEY="somebody else's")
    world.broker.store.append(put, world.now_ms)
    world.kill()
    world.pass_time(10)
    assert bodies(world) == [b"far", b"far"]


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


def test_apache_finds_the_position_to_continue_from(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 1_000)
    send_at(world, EPOCH_MS + 60_000)
    world.pass_time(2)
    world.deliver()
    world.stop()
    page = world.disk.files()["config/timercheck"]
    assert len(page) == 4096
    assert int.from_bytes(page[:8], "big") == EPOCH_MS + 1_000
    assert int.from_bytes(page[16:24], "big") == int.from_bytes(page[24:32], "big") == 1


def first_timer(world: DeliveryWorld) -> tuple[Record, dict[str, str]]:
    record = next(records(world.broker.store, TIMER_TOPIC, 0))
    return record, fields_of(record)


def timer_again(record: Record, fields: dict[str, str], **more: str) -> PutMessage:
    return copy_to(record, TIMER_TOPIC, 0, fields | more)


def known_to_apache(world: DeliveryWorld, places: list[int]) -> set[int]:
    """Queue offsets of the messages that Apache's broker would find pending, or find again.

    `places` are where the messages of the timer queue lie in the log.
    """
    files = world.disk.files()
    first = goes_on_at(world)[1] if "config/timercheck" in files else 0
    log = files.get(LOG, b"")
    found = [UNIT.unpack_from(log, at) for at in range(0, len(log) - UNIT.size, UNIT.size)]
    # Recovery stops at the first unit that is none.
    whole = itertools.takewhile(lambda unit: unit[0] == UNIT.size, found)
    in_log = {places.index(unit[5]) for unit in whole if unit[4] >= 0}
    return in_log | set(range(first, len(places)))


@pytest.mark.parametrize("step", CRASH_STEPS)
@pytest.mark.parametrize("power", [False, True])
def test_apache_misses_no_timer_after_a_crash_in_any_call_of_a_stop_or_start(
    power: bool, step: int
) -> None:
    for call in range(1, 200, step):
        with orders_world() as world:
            for seconds in (60, 1, 61, 2, 62):
                send_in(world, seconds, b"%d" % seconds)
            world.pass_time(3)
            world.deliver()
            world.save()
            places = [log_place(world, offset)[0] for offset in range(5)]
            world.disk.cut_at(call)
            try:
                world.stop()
                world.start()
                world.stop()
            except PowerCut:
                pass
            else:
                assert call > 20
                return
            disk = world.disk
            world.disk = disk.crashed(random.Random(call)) if power else disk.killed()
            assert {0, 2, 4} <= known_to_apache(world, places), call
            world.start()
            world.pass_time(100)
            assert set(bodies(world)) == {b"60", b"1", b"61", b"2", b"62"}, call
