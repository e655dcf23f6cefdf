"""Delay levels: delivered when their time has come, never before, and never lost."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from sparrowmq.broker.delivery import delay_levels
from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.store.messages import QueueRead
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.delivery_world import DeliveryWorld, bodies, comes_in, find_no_space, orders_world
from tests.broker.world import world_with


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


@pytest.mark.parametrize("level", range(1, 19))
def test_a_level_is_delivered_when_its_delay_is_over_and_not_a_millisecond_before(
    world: DeliveryWorld, level: int
) -> None:
    world.send("orders", DELAY=str(level))
    comes_in(world, RETRY_DELAYS_MS[level - 1])


def test_a_delayed_message_arrives_as_it_was_sent(world: DeliveryWorld) -> None:
    world.send("orders", b"an order", queue_id=3, DELAY="1", TAGS="t", KEYS="k", mine="yes")
    world.pass_time(1)
    world.deliver()
    (message,) = world.messages("orders", 3)
    assert (message.body, message.tags, message.keys) == (b"an order", "t", ("k",))
    assert message.user_properties == {"mine": "yes"}
    assert message.flag == 7
    assert message.properties["REAL_TOPIC"] == "orders", "Apache leaves these in, too"


def test_the_answer_names_the_requested_queue(world: DeliveryWorld) -> None:
    sent = world.send("orders", queue_id=2, DELAY="4")
    assert sent.queue_id == 2
    (waiting,) = world.messages(SCHEDULE_TOPIC, 3)
    assert sent.msg_id == waiting.offset_msg_id


def test_a_level_above_the_highest_becomes_the_highest(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="99")
    (waiting,) = world.messages(SCHEDULE_TOPIC, 17)
    assert waiting.properties["DELAY"] == "18"


@pytest.mark.parametrize("level", ["0", "-3"])
def test_no_level_means_no_delay(world: DeliveryWorld, level: str) -> None:
    world.send("orders", DELAY=level)
    assert bodies(world) == [b"body"]


@pytest.mark.parametrize("level", ["soon", "3.5", "1_0", "٣", "9" * 30, " "])
def test_a_level_that_is_not_a_number_is_refused_and_nothing_is_stored(
    world: DeliveryWorld, level: str
) -> None:
    end = world.broker.store.max_log_offset
    reply = world.try_send("orders", DELAY=level)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "DELAY" in reply.remark
    assert world.broker.store.max_log_offset == end


def test_a_level_wins_over_a_delivery_time(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="1", TIMER_DELIVER_MS=str(world.now_ms + 60_000))
    (waiting,) = world.messages(SCHEDULE_TOPIC, 0)
    assert "TIMER_DELIVER_MS" not in waiting.properties


def test_properties_reserved_for_the_broker_are_overwritten(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="1", REAL_TOPIC="secrets", REAL_QID="9")
    world.pass_time(1)
    world.deliver()
    (message,) = world.messages("orders")
    assert message.properties["REAL_TOPIC"] == "orders"
    assert message.properties["REAL_QID"] == "0"


def test_messages_of_one_level_keep_their_order(world: DeliveryWorld) -> None:
    for number in range(300):
        world.send("orders", b"%d" % number, DELAY="2")
        world.now_ms += 1
        if number % 70 == 0:
            world.flush()  # some units lie in files, some in memory
    world.pass_time(10)
    world.deliver()
    assert bodies(world) == [b"%d" % number for number in range(300)]


def test_messages_that_need_several_reads_are_all_delivered(world: DeliveryWorld) -> None:
    for number in range(40):
        world.send("orders", b"%d" % number + bytes(40_000), DELAY="1")
        world.flush()
    world.pass_time(1)
    world.deliver()
    assert [int(body.rstrip(b"\0")) for body in bodies(world)] == list(range(40))


def test_the_next_round_is_when_the_first_of_all_levels_is_due(world: DeliveryWorld) -> None:
    for level in ("3", "1", "2"):
        world.send("orders", DELAY=level)
    began_ms = world.now_ms
    assert world.deliver() == began_ms + 1_000
    world.now_ms += 1_000
    assert world.deliver() == began_ms + 5_000


def test_delivery_stops_at_the_first_message_that_is_not_due(world: DeliveryWorld) -> None:
    for number in range(100):
        world.send("orders", b"%d" % number, DELAY="1")
        world.now_ms += 10
    world.now_ms = world.messages(SCHEDULE_TOPIC, 0)[69].store_timestamp + 1000
    world.deliver()
    assert len(bodies(world)) == 70


def test_a_full_disk_delays_and_loses_nothing(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="1")
    world.now_ms += 1_000
    find_no_space(world)
    world.deliver()
    assert bodies(world) == [b"body"]


def test_ten_thousand_due_at_once_are_delivered_in_one_round() -> None:
    with DeliveryWorld() as world:
        world.broker.topics.put(plain_topic("orders", 1))
        for number in range(10_000):
            world.send("orders", b"%d" % number, DELAY="1")
        world.now_ms += 1_000
        assert world.deliver() is None
        assert world.broker.store.max_offset("orders", 0) == 10_000


def test_a_running_broker_delivers_on_time() -> None:
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"first"))
        pull = sim.client.pull("orders", offset=1, wait_s=15)
        sent_ms = sim.clock()
        sim.wait(sim.client.send("orders", b"later", DELAY="2"))
        assert sim.wait(pull).bodies == [b"later"]
        assert 5_000 <= sim.clock() - sent_ms < 5_100


def test_a_message_that_arrives_during_a_delivery_is_delivered_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its level, the first, was looked at already, and nothing else comes any more."""
    read = delay_levels.read_own_queue
    reads: list[str] = []

    async def slowly(*where: Any) -> QueueRead:
        reads.append("read")
        await asyncio.sleep(0.5)
        return await read(*where)

    monkeypatch.setattr(delay_levels, "read_own_queue", slowly)
    with world_with() as world:
        world.topic("orders", 1)
        world.send("orders", b"second level", DELAY="2")
        world.sim.until(lambda: len(reads) == 1)
        world.send("orders", b"first level", DELAY="1")
        world.sim.advance(5)
        assert world.broker.store.max_offset("orders", 0) == 2
