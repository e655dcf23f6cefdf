"""Sends look for parts of names before they take properties apart."""

import pytest

from sparrowmq.broker.delivery.placement import SPECIAL
from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.headers.send import MessageSent
from tests.broker.delivery_world import DeliveryWorld


def test_every_property_that_makes_a_message_special_is_noticed() -> None:
    hints = ("DELAY", "TIMER_", "TRAN_MSG")
    assert [name for name in SPECIAL if not any(hint in name for hint in hints)] == []


@pytest.mark.parametrize(
    "name", ["MYDELAY", "DELAYED", "TIMER_NOTE", "X_TIMER_DELAY_MS", "TRAN_MSGS"]
)
def test_a_property_whose_name_only_sounds_special_delays_nothing(name: str) -> None:
    with DeliveryWorld() as world:
        world.broker.topics.put(plain_topic("orders", 4))
        sent = world.post("orders", b"body", {name: "3", "a": "b"})
        (message,) = world.messages("orders")
        assert (message.body, message.properties[name]) == (b"body", "3")
        assert isinstance(sent, MessageSent)
        assert "REAL_TOPIC" not in message.properties
