"""A killed broker had delivered more than it saved: it detects that and repeats nothing."""

from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.message_ext import MessageExt
from tests.broker.delivery_world import DeliveryWorld, bodies, orders_world
from tests.broker.retry_world import RETRY, first_message

DELAYS = {"level": {"DELAY": "1"}, "timer": {"TIMER_DELAY_SEC": "1"}}
delays = pytest.mark.parametrize("delay", DELAYS.values(), ids=DELAYS)


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


@delays
@pytest.mark.parametrize("delivered", [1, 2, 63, 64, 65, 99, 100])
def test_a_message_delivered_before_a_save_comes_once(
    world: DeliveryWorld, delay: dict[str, str], delivered: int
) -> None:
    sent = [b"%d" % number for number in range(100)]
    for body in sent:
        world.post("orders", body, delay)
        world.now_ms += 1
    world.save()
    world.now_ms += 1_000 - 100 + delivered - 1
    world.deliver()
    assert len(bodies(world)) == delivered
    world.kill()
    world.pass_time(10)
    assert bodies(world) == sent


@delays
def test_several_kills_in_a_row_repeat_nothing(world: DeliveryWorld, delay: dict[str, str]) -> None:
    sent = [b"%d" % number for number in range(20)]
    for body in sent:
        world.post("orders", body, delay)
        world.now_ms += 300
        world.deliver()
        world.kill()
    world.pass_time(10)
    assert bodies(world) == sent


@pytest.mark.parametrize("back_ms", [0, -300, -500, -2_000])
def test_a_delay_that_was_stored_again_for_its_rest_comes_once_after_a_kill(
    world: DeliveryWorld, back_ms: int
) -> None:
    """The clock was set forward, so that the delay was not over at its time; then back."""
    world.post("orders", b"body", {"TIMER_DELAY_MS": "3000"})
    world.save()
    world.now_ms += 1_000
    world.set_clock(500)
    world.deliver()
    world.now_ms += 1_500
    world.deliver()
    world.set_clock(back_ms)
    world.kill()
    world.pass_time(10)
    assert bodies(world) == [b"body"]


@delays
@pytest.mark.parametrize("seed", range(5))
def test_messages_lost_in_a_power_cut_are_delivered_again(
    world: DeliveryWorld, delay: dict[str, str], seed: int
) -> None:
    sent = [b"%d" % number for number in range(50)]
    for body in sent:
        world.post("orders", body, delay)
    world.save()
    world.now_ms += 1_000
    world.deliver()
    world.lose_power(Random(seed))
    world.pass_time(10)
    assert sorted(bodies(world)) == sorted(sent)


@delays
def test_messages_that_are_alike_are_distinguished_by_their_ids(
    world: DeliveryWorld, delay: dict[str, str]
) -> None:
    for _ in range(3):
        world.post("orders", b"same", delay)
    world.now_ms += 1_000
    world.deliver()
    for _ in range(3):
        world.post("orders", b"same", delay)
    world.kill()
    world.pass_time(10)
    assert bodies(world) == [b"same"] * 6


@delays
@pytest.mark.parametrize("change", ["queue", "body", "birth", "property"])
def test_another_message_with_the_same_id_is_not_mistaken_for_the_delivered_one(
    world: DeliveryWorld, delay: dict[str, str], change: str
) -> None:
    """Java's client keeps the id of a message object that is sent again."""
    properties = {"UNIQ_KEY": "k", **delay}
    header = world.send_header("orders", 0, properties)
    other = world.send_header("orders", int(change == "queue"), properties)
    if change == "birth":
        other = msgspec.structs.replace(other, born_timestamp=world.now_ms + 1)
    if change == "property":
        other = world.send_header("orders", 0, {**properties, "a": "b"})
    world.call(header, b"one")
    world.save()
    world.now_ms += 500
    world.call(other, b"two" if change == "body" else b"one")
    world.save()
    world.now_ms += 500
    world.deliver()
    world.save()
    world.kill()
    world.pass_time(10)
    assert len(bodies(world)) + len(bodies(world, queue_id=1)) == 2


def test_a_retry_that_was_delivered_comes_once(world: DeliveryWorld) -> None:
    world.broker.groups.put(SubscriptionGroupConfig(group_name="billing"))
    message: MessageExt = first_message(world)
    for times in range(1, 4):
        world.give_back(message, "billing", level=1)
        world.now_ms += 1_000
        world.deliver()
        world.kill()
        world.deliver()
        message = world.messages(RETRY)[-1]
        assert [retried.reconsume_times for retried in world.messages(RETRY)] == [
            *range(1, times + 1)
        ]


@delays
def test_a_plain_message_with_the_id_of_a_delayed_one_does_not_count_as_its_delivery(
    world: DeliveryWorld, delay: dict[str, str]
) -> None:
    world.broker.topics.put(plain_topic("orders", 4))
    world.post("orders", b"body", {"UNIQ_KEY": "k", **delay})
    world.post("orders", b"body", {"UNIQ_KEY": "k"})
    world.kill()
    world.pass_time(10)
    assert bodies(world) == [b"body", b"body"]
