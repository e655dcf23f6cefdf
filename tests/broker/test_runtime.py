"""Runtime information of the broker, and cleaning up on an operator's request."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparrowmq import __version__
from sparrowmq.broker.config import Flush
from sparrowmq.broker.delivery import timer_delivery
from sparrowmq.broker.runtime_info import human_bytes
from sparrowmq.disk.errors import DiskFull
from sparrowmq.protocol.body import KVTable
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.admin import (
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLog,
    GetRuntimeInfo,
)
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.store.config import StoreConfig
from sparrowmq.testing.sim_cluster import SMALL_STORE
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.broker.world import World, world_with

HOUR_S = 3600
RETENTION_S = 300


def runtime(world: World) -> dict[str, str]:
    return world.read(GetRuntimeInfo(), KVTable).table


def test_runtime_info_has_what_the_tools_look_for(world: World) -> None:
    world.send("orders", b"1", b"2")
    world.sim.advance(61)
    info = runtime(world)
    assert info["brokerVersionDesc"] == "V5_3_3"
    assert info["sparrowmqVersion"] == __version__
    assert info["brokerActive"] == "true"
    assert info["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
    assert info["msgPutTotalTodayNow"] == "2"
    assert len(info["putTps"].split()) == len(info["getTransferredTps"].split()) == 3
    assert int(info["commitLogMaxOffset"]) == world.broker.store.max_log_offset
    assert int(info["earliestMessageTimeStamp"]) <= world.sim.clock()
    for name in ("sendThreadPoolQueueSize", "pageCacheLockTimeMills", "timerReadBehind"):
        int(info[name])
    for name in ("commitLogDiskRatio", "timerEnqueueTps"):
        float(info[name])


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("brokerVersion", int),
        ("dispatchMaxBuffer", int),
        ("getMessageEntireTimeMax", int),
        ("putMessageEntireTimeMax", int),
        ("putMessageSizeTotal", int),
        ("putMessageAverageSize", float),
    ],
)
def test_what_the_prometheus_exporter_reads_is_a_number(
    world: World, name: str, read: Callable[[str], float]
) -> None:
    # It reads each of them or, where one is missing or no number, exports nothing at all.
    assert read(runtime(world)[name]) >= 0


def put_times(world: World) -> dict[str, int]:
    """As the exporter takes them apart; classes without a send are left out."""
    classes = runtime(world)["putMessageDistributeTime"].split()
    counts = {name.strip("[]"): int(count) for name, count in (one.split(":") for one in classes)}
    assert len(counts) == 13
    return {name: count for name, count in counts.items() if count}


def test_sends_that_do_not_wait_are_in_the_first_class_of_put_times(world: World) -> None:
    assert put_times(world) == {}
    world.send("orders", b"1", b"2", b"3")
    world.sim.advance(1)
    assert put_times(world) == {"<=0ms": 3}
    world.sim.advance(120)
    assert put_times(world) == {}, "only the last minute counts"


def test_sends_that_wait_for_the_disk_are_in_the_class_of_their_wait() -> None:
    with world_with(flush=Flush.SYNC) as slow:
        slow.send("orders", b"1")
        slow.sim.advance(1)
        assert sum(put_times(slow).values()) == 1
        slow.broker.durability.put_times.note(5, 0.3)
        assert put_times(slow)["200~500ms"] == 5
        assert runtime(slow)["putMessageEntireTimeMax"] == "300"


def test_half_messages_that_are_pending_are_counted(world: World) -> None:
    assert runtime(world)["halfMessages"] == "0"
    world.send("orders", b"half", TRAN_MSG="true", PGROUP="producers")
    assert runtime(world)["halfMessages"] == "1"


def test_the_size_of_what_was_put_counts_from_the_start(world: World) -> None:
    world.send("orders", b"x" * 1_000)
    world.sim.brokers["broker-a"].restart()
    started = world.broker.store.max_log_offset
    assert started > 1_000
    assert runtime(world)["putMessageSizeTotal"] == "0"
    assert float(runtime(world)["putMessageAverageSize"]) == 0
    world.send("orders", b"x" * 100, b"x" * 300)
    world.sim.advance(1)
    info = runtime(world)
    grown = world.broker.store.max_log_offset - started
    assert int(info["putMessageSizeTotal"]) == grown
    assert float(info["putMessageAverageSize"]) == grown / 2


def test_rates_tell_the_last_ten_seconds_minute_and_ten_minutes(world: World) -> None:
    world.sim.advance(600)
    world.send("orders", *[b"x"] * 30)
    world.sim.advance(10)
    ten_s, minute, ten_min = map(float, runtime(world)["putTps"].split())
    assert 1 <= ten_s <= 4
    assert 0.3 <= minute <= 0.7
    assert 0.02 <= ten_min <= 0.1


def test_the_delay_levels_tell_how_far_they_are_delivered(world: World) -> None:
    world.send("orders", b"later", DELAY="2")
    assert runtime(world)["scheduleMessageOffset_2"] == "0,1"
    world.sim.advance(6)
    assert runtime(world)["scheduleMessageOffset_2"] == "1,1"


def test_timers_tell_how_many_wait_and_how_fast_they_come_and_go(world: World) -> None:
    due_ms = world.sim.clock() + 60_000
    world.send("orders", *[b"later"] * 30, TIMER_DELIVER_MS=str(due_ms))
    world.sim.advance(20)
    before = runtime(world)
    assert (before["timerCongestNum"], before["timerReadBehind"]) == ("30", "0")
    assert float(before["timerEnqueueTps"]) > 0
    assert float(before["timerDequeueTps"]) == 0
    world.sim.advance(50)
    after = runtime(world)
    assert (after["timerCongestNum"], after["timerOffsetBehind"]) == ("0", "0")
    assert float(after["timerDequeueTps"]) > 0


def test_timers_that_find_no_space_report_how_late_they_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise DiskFull("log", 0, "no space")

    world.send("orders", b"later", TIMER_DELIVER_MS=str(world.sim.clock() + 5_000))
    monkeypatch.setattr(timer_delivery, "deliver", full)
    world.sim.advance(15)
    assert runtime(world)["timerReadBehind"] in ("9", "10")


def test_sizes_are_written_for_people() -> None:
    assert [human_bytes(size) for size in (0, 1023, 1536, 3 * 1024**3)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
    ]


def test_waiting_pulls_are_reported(world: World) -> None:
    world.topic("orders")
    world.sim.client.pull("orders", wait_s=10)
    world.sim.until_idle()
    assert runtime(world)["waitingPulls"] == "1"


def test_an_operator_can_delete_expired_log_files_at_any_hour() -> None:
    store = StoreConfig(
        log_file_size=16 * 1024,
        reserve_bytes=4096,
        index_slots=10,
        index_entries=50,
        retention_ms=RETENTION_S * 1000,
        deletion_hour=3,
    )
    with world_with(store=store, limit_s=HOUR_S) as world:
        for _ in range(5):
            world.send("orders", b"x" * 5_000)
        world.sim.advance(1.5 * RETENTION_S)
        assert world.broker.store.min_log_offset == 0, "it is not the deletion hour"
        world.done(CleanExpiredQueues())
        assert world.broker.store.min_log_offset == 0
        world.done(DeleteExpiredLog())
        assert world.broker.store.min_log_offset > 0
        assert world.broker.store.min_offset("orders", 0) > 0
        assert world.broker.store.max_offset("orders", 0) == 5, "a queue never starts again"


def test_queues_of_topics_that_do_not_exist_any_more_are_deleted(world: World) -> None:
    world.send("orders", b"1")
    world.send("refunds", b"1")
    world.broker.topics.remove("orders")
    world.done(CleanUnusedTopics())
    assert ("orders", 0) not in set(world.broker.store.queues())
    assert ("refunds", 0) in set(world.broker.store.queues())


@pytest.mark.parametrize("delete", [DeleteTopic(topic="orders"), CleanUnusedTopics()])
def test_a_deleted_topic_takes_no_space_soon_after(delete: RequestHeader, world: World) -> None:
    world.topic("orders", 8)
    for _ in range(8):
        world.send("orders", b"1")
    if isinstance(delete, CleanUnusedTopics):
        world.broker.topics.remove("orders")
    world.done(delete)
    world.sim.advance(1)
    files = world.sim.brokers["broker-a"].disk.files()
    assert [path for path in files if "orders" in path or "trash" in path] == []


def test_a_broker_frees_files_at_its_start_that_the_last_run_left_to_delete(world: World) -> None:
    node = world.sim.brokers["broker-a"]
    world.send("orders", b"1")
    world.broker.store.tick(1)
    world.broker.store.delete_topic("orders", 1)
    node.kill()
    assert [path for path in node.disk.files() if "trash" in path]
    node.start()
    world.sim.until_idle()
    assert [path for path in node.disk.files() if "trash" in path] == []


@pytest.mark.parametrize("crash", [BrokerNode.kill, BrokerNode.lose_power])
def test_expired_messages_stay_gone_when_a_topic_is_deleted_and_the_broker_crashes(
    crash: Callable[[BrokerNode], None],
) -> None:
    """The deletion writes the last snapshot once more, which is older than the expiry."""
    store = replace(SMALL_STORE, retention_ms=10_000, checkpoint_interval_ms=3_600_000)
    with world_with(flush=Flush.SYNC, store=store) as world:
        node = world.sim.brokers["broker-a"]
        world.topic("orders", 1)
        world.send("orders", *(b"old" * 100_000,) * 8)
        world.send("other", b"hello")
        node.stop()
        node.start()
        world.sim.advance(20)
        world.done(DeleteExpiredLog())
        expected = world.broker.store.queue_range("orders", 0)
        assert expected[0] > 0
        world.done(DeleteTopic(topic="other"))
        node.disk.sync_dir("commitlog")  # the expired files are gone for good
        crash(node)
        node.start()
        assert world.broker.store.queue_range("orders", 0) == expected
