"""Messages as users build them: the fields sent and the errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.lenient_json import write_json
from sparrowmq.protocol.message import Message, MessageQueue, wire_properties
from sparrowmq.protocol.properties import SYSTEM_PROPERTIES


def test_a_message_needs_a_topic_and_a_body() -> None:
    message = Message("orders", b"hello")
    assert (message.topic, message.body) == ("orders", b"hello")
    assert wire_properties(message) == {"WAIT": "true"}


def test_everything_a_message_carries_becomes_a_property() -> None:
    message = Message(
        "orders",
        b"hello",
        tags="paid",
        keys=["o-1", "o-2"],
        properties={"region": "eu"},
        delay_level=3,
        sharding_key="customer-7",
        wait_store_ok=False,
    )
    assert wire_properties(message) == {
        "region": "eu",
        "KEYS": "o-1 o-2",
        "TAGS": "paid",
        "WAIT": "false",
        "DELAY": "3",
        "__SHARDINGKEY": "customer-7",
    }


def test_a_delivery_time_may_be_a_moment_or_a_delay() -> None:
    assert wire_properties(Message("t", b"x", delay_ms=1_500))["TIMER_DELAY_MS"] == "1500"
    later = Message("t", b"x", deliver_time_ms=1_700_000_000_000)
    assert wire_properties(later)["TIMER_DELIVER_MS"] == "1700000000000"


@pytest.mark.parametrize("keys", ["o-1 o-2", ["o-1", "o-2"], ("o-1", "o-2"), "  o-1   o-2 "])
def test_keys_are_a_text_or_a_sequence(keys: Any) -> None:
    assert Message("t", b"x", keys=keys).keys == ("o-1", "o-2")


def test_a_message_cannot_be_changed_and_its_properties_are_copied() -> None:
    message = Message("t", b"x", properties={"a": "b"})
    with pytest.raises(AttributeError):
        message.topic = "other"  # type: ignore[misc]
    wire_properties(message)["a"] = "changed"
    assert wire_properties(message)["a"] == "b"


def test_changing_the_callers_properties_does_not_change_the_message() -> None:
    own = {"a": "b"}
    message = Message("t", b"x", properties=own)
    own["KEYS"] = "smuggled"
    assert wire_properties(message) == {"a": "b", "WAIT": "true"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"topic": "a b"}, "digits, %, |, _ and -"),
        ({"topic": ""}, "blank"),
        ({"topic": "t" * 128}, "at most 127"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "clients cannot send"),
        ({"body": "text"}, "body is str, must be bytes"),
        ({"body": None}, "body is NoneType, must be bytes"),
        ({"body": b""}, "body is empty"),
        ({"tags": ""}, "blank"),
        ({"tags": " paid"}, "blanks around it"),
        ({"tags": "a || b"}, "a message has one tag"),
        ({"tags": "*"}, "a message has one tag"),
        ({"tags": "a\x01b"}, "separate properties"),
        ({"keys": "a\x02b"}, "separate properties"),
        ({"keys": ["a\x02b"]}, "separate properties"),
        ({"keys": ["a b"]}, "which separate keys"),
        ({"keys": [""]}, "which separate keys"),
        ({"keys": [7]}, "key 7 is int, must be str"),
        ({"properties": {"KEYS": "x"}}, "belongs to RocketMQ"),
        ({"properties": {"a": 1}}, "must be two str, a name and a value"),
        ({"properties": {"": "x"}}, "blank name or value"),
        ({"properties": {"a": " "}}, "blank name or value"),
        ({"properties": {"a\x01": "x"}}, "separate properties"),
        ({"properties": {"a": "x" * 40_000}}, "at most 32767 allowed"),
        ({"delay_level": -1}, "must be 0 to 18"),
        ({"delay_ms": -1}, "must be 0 or more"),
        ({"deliver_time_ms": 0}, "must be milliseconds since 1970"),
        ({"delay_level": 1, "delay_ms": 5}, "cannot be combined"),
        ({"deliver_time_ms": 1, "delay_ms": 5}, "cannot be combined"),
        ({"sharding_key": "a\x02"}, "separate properties"),
        ({"sharding_key": ""}, "sharding_key is blank"),
        ({"flag": 2**31}, "flag is 2147483648, must fit 32 bits"),
    ],
)
def test_an_invalid_message_field_is_refused_with_what_is_allowed(
    wrong: dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError) as caught:
        Message(**({"topic": "t", "body": b"x"} | wrong))
    assert said in str(caught.value)


@given(st.sampled_from(sorted(SYSTEM_PROPERTIES)))
def test_no_system_property_can_be_set_by_hand(name: str) -> None:
    with pytest.raises(ValueError, match="belongs to RocketMQ"):
        Message("t", b"x", properties={name: "1"})


def test_queues_sort_by_topic_broker_and_number() -> None:
    queues = [
        MessageQueue("b", "broker-a", 0),
        MessageQueue("a", "broker-b", 0),
        MessageQueue("a", "broker-a", 10),
        MessageQueue("a", "broker-a", 2),
    ]
    assert sorted(queues) == queues[::-1]


def test_a_queue_reads_as_java_prints_it() -> None:
    """Consistent hashing takes this text as the queue's key."""
    queue = MessageQueue("orders", "broker-a", 3)
    assert str(queue) == "MessageQueue [topic=orders, brokerName=broker-a, queueId=3]"
    assert write_json(queue) == b'{"brokerName":"broker-a","queueId":3,"topic":"orders"}'


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("x", "body is str, must be bytes; Message.text takes a str"),
        ({"a": 1}, "body is dict, must be bytes; Message.json takes a value for JSON"),
        ([1], "body is list, must be bytes; Message.json takes a value for JSON"),
    ],
)
def test_a_body_that_is_not_bytes_is_refused_with_the_constructor_to_use(
    body: Any, says: str
) -> None:
    with pytest.raises(ValueError) as caught:
        Message("orders", body)
    assert str(caught.value) == says
