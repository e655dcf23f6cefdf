"""Messages that cannot be sent back are refused, or become dead letters at once."""

from collections.abc import Iterator
from dataclasses import replace

import msgspec
import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.sys_flag import TRANSACTION_PREPARED
from sparrowmq.store.messages import PutMessage
from tests.broker.delivery_world import DeliveryWorld
from tests.broker.retry_world import DEAD, RETRY, first_message


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        yield world


@pytest.mark.parametrize("offset", [-1, 1, 10**15])
def test_a_place_without_a_message_is_refused(world: DeliveryWorld, offset: int) -> None:
    message = first_message(world)
    message.record = msgspec.structs.replace(message.record, log_offset=offset)
    reply = world.give_back(message, "billing")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert f"no message at log offset {offset}" in reply.remark


def test_a_group_that_does_not_exist_and_is_not_created_is_refused() -> None:
    with DeliveryWorld(auto_create_group=False) as world:
        reply = world.give_back(first_message(world), "billing")
        assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "billing" in reply.remark
        assert RETRY not in world.broker.topics


def test_a_prepared_message_of_an_old_store_cannot_be_sent_back(world: DeliveryWorld) -> None:
    """It has no place in a queue: no group can have consumed it, and none would its copy."""
    message = first_message(world)
    put = PutMessage("orders", 0, 0, TRANSACTION_PREPARED, 0, b"\x7f\0\0\1\0\0\0\1", 0, b"x", b"")
    stored = world.broker.store.append(put, world.broker.clock())
    message.record = msgspec.structs.replace(message.record, log_offset=stored.log_offset)
    reply = world.give_back(message, "billing")
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "which no group consumes" in reply.remark


def test_a_message_that_is_still_delayed_cannot_be_sent_back(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="3")
    (waiting,) = world.messages(SCHEDULE_TOPIC, 2)
    reply = world.give_back(waiting, "billing")
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert SCHEDULE_TOPIC in reply.remark


@pytest.mark.parametrize("too_large", ["properties", "body"])
def test_a_message_that_is_too_large_to_be_retried_becomes_a_dead_letter(too_large: str) -> None:
    with DeliveryWorld() as world:
        room = world.config.max_properties_bytes - 200
        more = {"mine": "x" * room} if too_large == "properties" else {}
        world.post("orders", b"x" * 2_000, {"UNIQ_KEY": "U1", "TAGS": "created"} | more)
        (message,) = world.messages("orders")
        if too_large == "body":
            world.broker.config = replace(world.broker.config, max_message_bytes=1_000)
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        (letter,) = world.messages(DEAD)
        assert (letter.body, letter.tags) == (message.body, "created")
        assert letter.properties["UNIQ_KEY"] == "U1"
        assert letter.reconsume_times == 1
        world.pass_time(3 * 3600)
        assert world.messages(RETRY) == []


def test_a_read_only_retry_topic_takes_nothing_back(world: DeliveryWorld) -> None:
    message = first_message(world)
    world.give_back(message, "billing")
    config = world.broker.topics.get(RETRY)
    assert config is not None
    world.broker.topics.put(type(config)(topic_name=RETRY, perm=4))
    assert world.give_back(message, "billing").code == ResponseCode.NO_PERMISSION
