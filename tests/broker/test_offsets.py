"""Offsets of queues, progress of groups, and which of it survives."""

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.offsets import (
    GetEarliestStoreTime,
    GetMaxOffset,
    GetMinOffset,
    OffsetFound,
    QueryConsumerOffset,
    SearchOffset,
    TimestampFound,
    UpdateConsumerOffset,
)
from tests.broker.world import World, world_with


def offset(world: World, header: RequestHeader) -> int:
    return world.done(header).header(OffsetFound).offset


def commit(world: World, at: int, queue_id: int = 0, topic: str = "orders") -> int:
    if "billing" not in world.broker.groups:
        world.group("billing")
    return ask_to_commit(world, at, queue_id, topic)


def ask_to_commit(world: World, at: int, queue_id: int = 0, topic: str = "orders") -> int:
    header = UpdateConsumerOffset(
        consumer_group="billing", topic=topic, queue_id=queue_id, commit_offset=at
    )
    return world.ask(header).code


def stored(world: World, queue_id: int = 0, *, zero: bool = False) -> int | str:
    header = QueryConsumerOffset(
        consumer_group="billing", topic="orders", queue_id=queue_id, set_zero_if_not_found=zero
    )
    answer = world.ask(header)
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return "not found"
    return answer.header(OffsetFound).offset


def test_a_queue_has_a_least_and_a_greatest_offset(world: World) -> None:
    world.send("orders", b"1", b"2")
    assert offset(world, GetMaxOffset(topic="orders", queue_id=0)) == 2
    assert offset(world, GetMinOffset(topic="orders", queue_id=0)) == 0
    assert offset(world, GetMaxOffset(topic="orders", queue_id=1)) == 0
    assert offset(world, GetMaxOffset(topic="missing", queue_id=0)) == 0


def test_offsets_are_found_by_store_time(world: World) -> None:
    times = []
    for body in (b"1", b"2", b"3"):
        world.send("orders", body)
        times.append(world.sim.clock())
        world.sim.advance(10)

    def search(time: int, boundary: str = "LOWER") -> int:
        header = SearchOffset(topic="orders", queue_id=0, timestamp=time, boundary_type=boundary)
        return offset(world, header)

    assert search(0) == 0
    assert search(times[1] - 5_000) == 1
    assert search(times[2] + 5_000) == 3
    assert search(times[1] + 5_000, "UPPER") == 1
    assert search(times[1] + 5_000, "upper") == 1


@pytest.mark.parametrize(
    "asked",
    [
        GetMaxOffset(topic="orders", queue_id=0),
        SearchOffset(topic="orders", queue_id=0, timestamp=1 << 60),
        SearchOffset(topic="orders", queue_id=0, timestamp=1 << 60, boundary_type="UPPER"),
    ],
    ids=["the end", "by time", "by time, upper"],
)
def test_with_synchronous_flush_a_queue_ends_after_its_last_durable_message(
    asked: GetMaxOffset | SearchOffset, half_synced: World
) -> None:
    assert offset(half_synced, asked) == 4


def test_the_earliest_store_time_is_that_of_the_oldest_message(world: World) -> None:
    header = GetEarliestStoreTime(topic="orders", queue_id=0)
    assert world.done(header).header(TimestampFound).timestamp == -1
    before = world.sim.clock()
    world.send("orders", b"1")
    assert before <= world.done(header).header(TimestampFound).timestamp <= world.sim.clock()


def test_a_commit_is_obeyed_also_when_it_moves_back(world: World) -> None:
    world.send("orders", b"1", b"2")
    assert commit(world, 2) == ResponseCode.SUCCESS
    assert stored(world) == 2
    assert commit(world, 1) == ResponseCode.SUCCESS
    assert stored(world) == 1


def test_a_commit_of_minus_1_changes_nothing(world: World) -> None:
    world.send("orders", b"1")
    commit(world, 1)
    assert commit(world, -1) == ResponseCode.SUCCESS
    assert stored(world) == 1


def test_a_commit_for_a_topic_that_does_not_exist_is_refused(world: World) -> None:
    assert commit(world, 1, topic="missing") == ResponseCode.TOPIC_NOT_EXIST


def test_a_commit_for_a_queue_that_no_topic_can_have_is_refused(world: World) -> None:
    world.send("orders", b"1")
    for queue_id in (-1, 4_096):
        assert commit(world, 1, queue_id) == ResponseCode.INVALID_PARAMETER
    assert commit(world, 1, 4_095) == ResponseCode.SUCCESS, "the topic may have been larger"


def test_a_commit_of_a_group_that_does_not_exist_is_refused(world: World) -> None:
    world.send("orders", b"1")
    assert ask_to_commit(world, 1) == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "billing" not in world.broker.groups


def test_a_new_group_starts_at_0_in_a_young_queue_when_it_asks_so(world: World) -> None:
    world.send("orders", b"1")
    assert stored(world, zero=True) == 0
    assert stored(world, zero=False) == "not found"
    assert stored(world, queue_id=1, zero=True) == 0, "the queue never had a message"
    assert stored(world, queue_id=1, zero=False) == "not found"
    assert stored(world, queue_id=9, zero=True) == "not found", "the topic has no such queue"


def test_the_first_message_of_a_queue_is_not_skipped_by_a_new_group_that_begins_at_the_end(
    world: World,
) -> None:
    """Clients ask for the stored offset, and for the end where there is none."""
    world.topic("orders", 1)
    begins_at = stored(world, zero=True)
    world.send("orders", b"first")
    if begins_at == "not found":
        begins_at = offset(world, GetMaxOffset(topic="orders", queue_id=0))
    assert begins_at == 0


def test_a_new_group_has_no_offset_in_an_old_queue() -> None:
    with world_with(young_queue_bytes=2_000) as world:
        world.send("orders", b"1")
        world.send("orders", b"x" * 5_000, queue_id=1)
        assert stored(world, zero=True) == "not found"


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_progress_survives_the_end_of_the_broker(world: World, end: str) -> None:
    world.send("orders", *[b"x"] * 10)
    commit(world, 7)
    if end == "kill":
        world.sim.advance(1)
        world.sim.brokers["broker-a"].kill()
    else:
        world.sim.brokers["broker-a"].stop()
    world.sim.brokers["broker-a"].start()
    world.sim.client.disconnect()
    assert stored(world) == 7
