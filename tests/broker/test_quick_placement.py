"""What a look at raw properties decides is what taking them apart decides."""

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import place, place_quickly
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from sparrowmq.protocol.properties import parse_properties
from sparrowmq.store.messages import PutMessage
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld

PAIRS = {
    "a": ["b", "\x01", "DELAY", "TIMER_", ""],
    "TIMER_DELIVER_MS": [str(EPOCH_MS + 1), str(EPOCH_MS), str(EPOCH_MS + 10**9), "", "soon"],
    "TIMER_DELAY_MS": ["1", "0", "7500", "-1", "9" * 15, "9" * 19, "٣"],
    "TIMER_DELAY_SEC": ["3", "0", "259200", "259201"],
    "MY_TIMER_DELAY_SEC": ["3"],
    "TIMER_OUT_MS": ["1700000000000"],
    "TIMER_DEL_UNIQKEY": ["orders+key"],
    "DELAY": ["1", "18", "19", "99", "100", "0", "-1", "03", "x", ""],
    "MYDELAY": ["3"],
    "TRAN_MSG": ["true", "True", "false", ""],
    "XTRAN_MSG": ["true"],
    "PGROUP": ["group", ""],
    "REAL_TOPIC": ["orders"],
    "REAL_QID": ["1"],
    "__transactionId__": ["id"],
    "CHECK_IMMUNITY_TIME_IN_SECONDS": ["60", "x"],
    "TRANSACTION_CHECK_TIMES": ["1"],
    "TRAN_PREPARED_QUEUE_OFFSET": ["1"],
}
WHOLE = [f"{name}\x01{value}\x02" for name, values in PAIRS.items() for value in values]
TORN = ["\x01", "é", "TIMER_DELIVER_MS", "DELAY", "TRAN_MSG\x01true", "PGROUP\x01"]


WISHES = {
    f"TIMER_DELIVER_MS\x01{EPOCH_MS + 1}\x02": TIMER_TOPIC,
    "TIMER_DELAY_MS\x017500\x02": TIMER_TOPIC,
    "TIMER_DELAY_SEC\x013\x02": TIMER_TOPIC,
    "DELAY\x013\x02": SCHEDULE_TOPIC,
    "TRAN_MSG\x01true\x02PGROUP\x01group\x02": TRANS_HALF_TOPIC,
}
"""What nearly all special messages ask for, and where they lie."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with DeliveryWorld() as world:
        yield world.broker


def put_of(text: str) -> PutMessage:
    properties = text.encode() + b"CLUSTER\x01c\x02"
    return PutMessage("orders", 3, 0, 4, EPOCH_MS, bytes(8), 0, b"body", properties, 77, "key")


def agrees(broker: Broker, text: str) -> bool:
    """Whether a quick look leaves it to `place`, or does the same."""
    put, same = put_of(text), put_of(text)
    quick = place_quickly(broker, put, text, EPOCH_MS)
    if quick is None:
        return put == same
    return quick == place(broker, same, parse_properties(text), EPOCH_MS, producer_group="g")


@pytest.mark.parametrize("wish", [*WISHES, "TRAN_MSG\x01true\x02"])
def test_a_quick_look_places_a_message_as_taking_it_apart_does(broker: Broker, wish: str) -> None:
    pieces = ["", *WHOLE, *TORN]
    texts = [f"{one}\x02{wish}{two}\x02" for one in pieces for two in pieces]
    assert [text for text in texts if not agrees(broker, text)] == []


@given(some.lists(some.sampled_from(WHOLE + TORN), min_size=1, max_size=6).map("".join))
def test_any_properties_are_placed_as_taking_them_apart_does(broker: Broker, text: str) -> None:
    assert agrees(broker, f"{text}\x02")


@pytest.mark.parametrize(("wish", "topic"), WISHES.items())
@pytest.mark.parametrize("others", ["", "KEYS\x01o-1\x02", "WAIT\x01true\x02a\x01b\x02"])
def test_what_nearly_all_ask_for_is_placed_by_a_quick_look(
    broker: Broker, wish: str, topic: str, others: str
) -> None:
    for text in (wish + others, others + wish):
        placement = place_quickly(broker, put_of(text), text, EPOCH_MS)
        assert placement is not None
        assert placement.put.topic == topic


def test_a_message_is_looked_at_again_when_a_quick_look_cannot_tell(broker: Broker) -> None:
    text = f"TIMER_DELIVER_MS\x01{EPOCH_MS + 1}\x02TIMER_DELAY_MS\x015\x02"
    put = put_of(text)
    assert place_quickly(broker, put, text, EPOCH_MS) is None
    slow = place(broker, msgspec.structs.replace(put), parse_properties(text), EPOCH_MS)
    assert slow.due_ms == EPOCH_MS + 5
