"""Dead letters are logged as warnings: one by one, and as a count where there are many."""

import logging
from collections.abc import Iterator

import pytest

from sparrowmq.broker.delivery.dead_letter_log import MOST_PER_GROUP
from sparrowmq.protocol.headers.send import SendBack
from tests.broker.delivery_world import DeliveryWorld
from tests.broker.retry_world import DEAD, RETRY, fail_until_dead, first_message
from tests.broker.world import World

MANY = 50


@pytest.fixture
def small() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        yield world


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno == logging.WARNING and "dead letter" in record.getMessage()
    ]


def test_a_dead_letter_logs_a_warning_with_group_id_topic_and_attempts(
    small: DeliveryWorld, caplog: pytest.LogCaptureFixture
) -> None:
    fail_until_dead(small, first_message(small))
    assert warnings(caplog) == [
        "dead letter: group billing gave up message U1 of topic orders after 17 attempts;"
        f" it is kept in {DEAD}"
    ]


def test_a_consumer_that_gives_up_at_once_made_one_attempt(
    small: DeliveryWorld, caplog: pytest.LogCaptureFixture
) -> None:
    small.give_back(first_message(small), "billing", level=-1)
    (warning,) = warnings(caplog)
    assert "message U1 of topic orders after 1 attempt;" in warning


def test_what_a_client_sends_to_the_retry_topic_too_often_is_a_warning_too(
    small: DeliveryWorld, caplog: pytest.LogCaptureFixture
) -> None:
    small.broker.groups.find("billing")
    small.try_again(RETRY, b"again", 16, DELAY="18", RETRY_TOPIC="orders", UNIQ_KEY="U2")
    assert warnings(caplog) == []
    small.try_again(RETRY, b"dead", 17, DELAY="20", RETRY_TOPIC="orders", UNIQ_KEY="U3")
    (warning,) = warnings(caplog)
    assert "group billing gave up message U3 of topic orders after 17 attempts" in warning


def give_up_all(world: World, group: str, *log_offsets: int) -> None:
    for offset in log_offsets:
        world.done(SendBack(group=group, offset=offset, delay_level=-1, origin_topic="orders"))


def test_a_flood_of_one_group_is_counted_and_does_not_hide_another(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("orders", 1)
    world.send("orders", *[b"x"] * MANY)
    units = world.broker.store.units("orders", 0, 0, MANY)
    offsets = [log_offset for log_offset, _, _ in units]
    give_up_all(world, "billing", *offsets)
    give_up_all(world, "audit", offsets[0])
    first = warnings(caplog)
    assert len(first) == MOST_PER_GROUP + 1
    assert "group audit" in first[-1]
    world.sim.advance(11)
    assert warnings(caplog)[len(first) :] == [
        f"dead letters: group billing gave up {MANY - MOST_PER_GROUP} more messages within 10 s"
    ]
    world.sim.advance(60)
    assert len(warnings(caplog)) == len(first) + 1, "no flood, no count"
    give_up_all(world, "billing", offsets[0])
    assert "message" in warnings(caplog)[-1], "in another interval each is logged again"


def test_a_broker_that_stops_logs_the_count_of_its_last_interval(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("orders", 1)
    world.send("orders", b"x")
    ((log_offset, _, _),) = world.broker.store.units("orders", 0, 0, 1)
    give_up_all(world, "billing", *[log_offset] * MANY)
    world.sim.brokers["broker-a"].stop()
    assert f"gave up {MANY - MOST_PER_GROUP} more" in warnings(caplog)[-1]
