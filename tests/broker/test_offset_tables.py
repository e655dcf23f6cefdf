"""Whole tables of offsets, copies of them, and raw queue units."""

import struct

from sparrowmq.protocol.broker_stats import ConsumeQueueUnits, CorrectionOffsets
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.statistics import (
    CloneGroupOffset,
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetTimerCheckpoint,
    GetTimerMetrics,
    QueryConsumeQueue,
    QueryCorrectionOffset,
)
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable, DelayOffsetTable, TimerMetrics
from sparrowmq.protocol.tags import tag_code
from tests.broker.world import World, subscribes


def commit(world: World, group: str, topic: str, *offsets: int) -> None:
    for queue_id, offset in enumerate(offsets):
        world.commit(group, topic, queue_id, offset)


def test_all_offsets_are_listed_as_they_are_saved(world: World) -> None:
    world.topic("orders", 2)
    commit(world, "billing", "orders", 3, 4)
    table = world.read(GetAllConsumerOffsets(), ConsumerOffsetTable)
    assert table.offset_table == {"orders@billing": {0: 3, 1: 4}}
    assert table.data_version is not None  # Apache's slave fails without one


def test_the_progress_of_every_delay_level_is_listed(world: World) -> None:
    world.send("orders", b"later", DELAY="1")
    before = world.read(GetAllDelayOffsets(), DelayOffsetTable).offset_table
    assert (len(before), before[1]) == (18, 0)
    world.sim.advance(3)
    assert world.read(GetAllDelayOffsets(), DelayOffsetTable).offset_table[1] == 1


def test_the_progress_of_delivery_times_is_answered_as_apaches_slaves_read_it(world: World) -> None:
    due_ms = world.sim.clock() + 1_500
    world.send("orders", b"soon", b"soon too", TIMER_DELIVER_MS=str(due_ms))
    world.sim.advance(5)
    told = struct.unpack(">7q", world.done(GetTimerCheckpoint()).body)
    now_ms = world.sim.clock()
    assert told[0] % 1_000 == 0
    assert due_ms < told[0] < now_ms <= told[0] + 2_000, "what was delivered is due again"
    assert told[1:] == (0, 2, 2, 0, 0, 0)


def test_a_late_timer_holds_the_answered_progress_back(world: World) -> None:
    due_ms = world.sim.clock() + 1_500
    world.send("orders", b"soon", TIMER_DELIVER_MS=str(due_ms))
    world.broker.store.admission.hold("test", "a planted reason to store nothing")
    world.sim.advance(5)
    told = struct.unpack(">7q", world.done(GetTimerCheckpoint()).body)
    assert told[0] < due_ms <= told[0] + 1_000


def test_pending_timers_are_not_counted_by_topic(world: World) -> None:
    assert world.read(GetTimerMetrics(), TimerMetrics) == TimerMetrics()


def test_a_group_takes_over_the_progress_of_another(world: World) -> None:
    for topic in ("orders", "refunds"):
        world.topic(topic, 2)
        commit(world, "old", topic, 3, 4)
    world.done(CloneGroupOffset(src_group="old", dest_group="new", topic="orders"))
    assert world.broker.offsets.queues("new", "orders") == {0: 3, 1: 4}
    assert world.broker.offsets.queues("new", "refunds") == {}
    world.done(CloneGroupOffset(src_group="old", dest_group="new"))
    assert world.broker.offsets.queues("new", "refunds") == {0: 3, 1: 4}


def test_only_subscribed_topics_of_a_live_group_are_cloned_unless_asked_otherwise(
    world: World,
) -> None:
    for topic in ("orders", "refunds"):
        world.topic(topic, 1)
        commit(world, "old", topic, 3)
    world.client("a").beat(subscribes("old", "orders"))
    world.done(CloneGroupOffset(src_group="old", dest_group="new"))
    assert world.broker.offsets.topics_of("new") == ["orders"]
    world.done(CloneGroupOffset(src_group="old", dest_group="new", offline=True))
    assert sorted(world.broker.offsets.topics_of("new")) == ["orders", "refunds"]


def test_progress_cannot_be_cloned_to_a_bad_name(world: World) -> None:
    answer = world.ask(CloneGroupOffset(src_group="old", dest_group="no spaces"))
    assert answer.code == ResponseCode.INVALID_PARAMETER


def test_the_lowest_offset_of_all_groups_is_answered_per_queue(world: World) -> None:
    world.topic("orders", 2)
    commit(world, "fast", "orders", 9, 9)
    commit(world, "slow", "orders", 2, 3)
    commit(world, "slower", "orders", 1, 1)

    def lowest(compare: str, leave_out: str = "") -> dict[int, int]:
        header = QueryCorrectionOffset(
            topic="orders", compare_group=compare, filter_groups=leave_out
        )
        return world.read(header, CorrectionOffsets).correction_offsets

    assert lowest("fast") == {0: 1, 1: 1}
    assert lowest("fast", "slower") == {0: 2, 1: 3}
    assert lowest("slower", "slower") == {0: 2**63 - 1, 1: 2**63 - 1}


def test_units_of_a_queue_are_shown_as_they_lie_on_disk(world: World) -> None:
    for tag in ("paid", "created", "paid"):
        world.send("orders", b"x", TAGS=tag)
    world.client("a").beat(subscribes("billing", expression="paid"))
    header = QueryConsumeQueue(
        topic="orders", queue_id=0, index=1, count=9, consumer_group="billing"
    )
    found = world.read(header, ConsumeQueueUnits)
    assert (found.min_queue_index, found.max_queue_index) == (0, 3)
    assert [unit.tags_code for unit in found.queue_data] == [tag_code("created"), tag_code("paid")]
    assert [unit.eval for unit in found.queue_data] == [False, True]
    assert world.broker.store.read_message(found.queue_data[0].physic_offset) is not None


def test_units_are_limited_and_a_queue_has_to_exist(world: World) -> None:
    world.send("orders", b"1", b"2")
    few = world.read(
        QueryConsumeQueue(topic="orders", queue_id=0, index=0, count=1), ConsumeQueueUnits
    )
    assert len(few.queue_data) == 1
    none = world.read(
        QueryConsumeQueue(topic="orders", queue_id=0, index=0, count=-1), ConsumeQueueUnits
    )
    assert none.queue_data == ()
    missing = QueryConsumeQueue(topic="orders", queue_id=9, index=0, count=1)
    assert world.ask(missing).code == ResponseCode.SYSTEM_ERROR
