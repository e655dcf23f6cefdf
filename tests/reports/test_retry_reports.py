"""Retries that never ended or ended late for users of RocketMQ, by number."""

from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from tests.broker.delivery_world import DeliveryWorld

RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        yield world


def bodies(world: DeliveryWorld, topic: str) -> list[bytes]:
    return [message.body for message in world.messages(topic)]


def test_report_2724_a_message_over_its_retry_limit_is_a_dead_letter_at_once_for_any_delay(
    world: DeliveryWorld,
) -> None:
    world.send("orders", b"x")
    world.give_back(world.messages("orders")[0], "billing")
    world.pass_time(20)
    reply = world.try_again(RETRY, b"x", 17, 16, DELAY="18", RETRY_TOPIC="orders")
    assert reply.code == ResponseCode.SUCCESS
    assert bodies(world, DEAD) == [b"x"]
    assert world.messages(SCHEDULE_TOPIC, 17) == []
    world.give_back(world.messages(RETRY)[0], "billing", max_reconsume_times=1)
    assert bodies(world, DEAD) == [b"x", b"x"], "sent back for the last time, without a delay"


@pytest.mark.parametrize("times", [16, 17, 1_000, 2**31 - 1])
def test_report_6163_an_ordered_message_that_reached_its_limit_is_not_retried_again(
    world: DeliveryWorld, times: int
) -> None:
    world.send("orders", b"first")
    world.give_back(world.messages("orders")[0], "billing")
    reply = world.try_again(RETRY, b"x", times, 15, RETRY_TOPIC="orders")
    assert reply.code == ResponseCode.SUCCESS
    world.pass_time(3 * 3600)
    assert bodies(world, DEAD) == [b"x"]
    assert b"x" not in bodies(world, RETRY)


def test_report_1679_every_failed_message_is_retried_even_when_thousands_fail(
    world: DeliveryWorld,
) -> None:
    for number in range(1_000):
        world.send("orders", b"%d" % number)
    for message in world.messages("orders"):
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
    world.pass_time(11)
    assert bodies(world, RETRY) == bodies(world, "orders")
