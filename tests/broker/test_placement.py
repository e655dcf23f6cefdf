"""Where a message is stored first, by its properties: `place` decides it, as does `place_quickly`
wherever it decides at all."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.placement import SPECIAL, Placement, place, place_quickly
from sparrowmq.broker.topics import plain_topic
from sparrowmq.net.errors import RequestRefused
from sparrowmq.protocol.headers.send import MessageSent
from sparrowmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC
from sparrowmq.protocol.properties import parse_properties
from sparrowmq.store.messages import PutMessage
from tests.broker.delivery_world import EPOCH_MS, DeliveryWorld

REFUSED = "refused"


@dataclass(frozen=True)
class Case:
    """Properties, and where a message with them goes: its topic, queue and due time."""

    properties: Mapping[str, str]
    topic: str
    queue_id: int = 0
    due_ms: int = 0
    is_quick: bool = False
    """Whether a look at the raw properties is enough."""


CASES = {
    "nothing special": Case({"KEYS": "o-1"}, "orders", 3),
    "a delivery time": Case(
        {"TIMER_DELIVER_MS": str(EPOCH_MS + 1)}, TIMER_TOPIC, 0, EPOCH_MS + 1, is_quick=True
    ),
    "a delay in milliseconds": Case(
        {"TIMER_DELAY_MS": "7500"}, TIMER_TOPIC, 0, EPOCH_MS + 7500, is_quick=True
    ),
    "a delay in seconds": Case(
        {"TIMER_DELAY_SEC": "3"}, TIMER_TOPIC, 0, EPOCH_MS + 3000, is_quick=True
    ),
    "seconds win over milliseconds": Case(
        {"TIMER_DELAY_MS": "1", "TIMER_DELAY_SEC": "3"}, TIMER_TOPIC, 0, EPOCH_MS + 3000
    ),
    "a delay wins over a time": Case(
        {"TIMER_DELIVER_MS": str(EPOCH_MS + 1), "TIMER_DELAY_MS": "5"},
        *(TIMER_TOPIC, 0, EPOCH_MS + 5),
    ),
    "a time that is over": Case({"TIMER_DELIVER_MS": str(EPOCH_MS)}, "orders", 3),
    "no delay at all": Case({"TIMER_DELAY_MS": "0"}, "orders", 3),
    "a negative delay": Case({"TIMER_DELAY_MS": "-1"}, "orders", 3),
    "a time too far ahead": Case({"TIMER_DELAY_SEC": "259201"}, REFUSED),
    "a time that is no number": Case({"TIMER_DELIVER_MS": "soon"}, REFUSED),
    "a recall": Case(
        {"TIMER_DELIVER_MS": str(EPOCH_MS + 2000), "TIMER_DEL_UNIQKEY": "orders+key"},
        *(TIMER_TOPIC, 0, EPOCH_MS + 1000),
    ),
    "a delay level": Case({"DELAY": "3"}, SCHEDULE_TOPIC, 2, EPOCH_MS + 10_000, is_quick=True),
    "the highest level": Case({"DELAY": "18"}, SCHEDULE_TOPIC, 17, EPOCH_MS + 7_200_000, True),
    "a level above the highest": Case({"DELAY": "99"}, SCHEDULE_TOPIC, 17, EPOCH_MS + 7_200_000),
    "level 0": Case({"DELAY": "0"}, "orders", 3),
    "a level with a leading zero": Case({"DELAY": "03"}, SCHEDULE_TOPIC, 2, EPOCH_MS + 10_000),
    "a level that is no number": Case({"DELAY": "x"}, REFUSED),
    "a level wins over a time": Case(
        {"DELAY": "3", "TIMER_DELAY_MS": "1"}, SCHEDULE_TOPIC, 2, EPOCH_MS + 10_000
    ),
    "a half message": Case(
        {"TRAN_MSG": "true", "PGROUP": "group"}, TRANS_HALF_TOPIC, 0, EPOCH_MS + 6000, is_quick=True
    ),
    "a half message without a group": Case(
        {"TRAN_MSG": "true"}, TRANS_HALF_TOPIC, 0, EPOCH_MS + 6000
    ),
    "a half message in capitals": Case(
        {"TRAN_MSG": "True", "PGROUP": "group"}, TRANS_HALF_TOPIC, 0, EPOCH_MS + 6000
    ),
    "a half message that chose its time": Case(
        {"TRAN_MSG": "true", "PGROUP": "group", "CHECK_IMMUNITY_TIME_IN_SECONDS": "60"},
        *(TRANS_HALF_TOPIC, 0, EPOCH_MS + 60_000),
    ),
    "a delayed half message": Case(
        {"TRAN_MSG": "true", "PGROUP": "group", "DELAY": "3"},
        *(TRANS_HALF_TOPIC, 0, EPOCH_MS + 6000),
    ),
    "a half message delayed too far": Case(
        {"TRAN_MSG": "true", "PGROUP": "group", "TIMER_DELAY_SEC": "259201"}, REFUSED
    ),
    "no half message": Case({"TRAN_MSG": "false", "PGROUP": "group"}, "orders", 3),
    "a name that only ends like one": Case({"MYDELAY": "3"}, "orders", 3),
    "a timer's name with a prefix": Case({"MY_TIMER_DELAY_SEC": "3"}, "orders", 3),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with DeliveryWorld() as world:
        yield world.broker


def text_of(fields: Mapping[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in fields.items())


def put_of(text: str) -> PutMessage:
    properties = text.encode() + b"CLUSTER\x01c\x02"
    return PutMessage("orders", 3, 0, 4, EPOCH_MS, bytes(8), 0, b"body", properties, 77, "key")


def placed(broker: Broker, text: str) -> Placement | None:
    """What `place` decides; None for a refusal."""
    try:
        return place(broker, put_of(text), parse_properties(text), EPOCH_MS, producer_group="g")
    except RequestRefused:
        return None


@pytest.mark.parametrize("others", [{}, {"KEYS": "o-1"}, {"WAIT": "true", "a": "b"}])
@pytest.mark.parametrize("name", CASES)
def test_a_message_is_placed_by_its_properties(
    broker: Broker, name: str, others: dict[str, str]
) -> None:
    case = CASES[name]
    for fields in ({**case.properties, **others}, {**others, **case.properties}):
        text = text_of(fields)
        decided, quick = placed(broker, text), place_quickly(broker, put_of(text), text, EPOCH_MS)
        if decided is None:
            assert case.topic == REFUSED
        else:
            put = decided.put
            expected = (case.topic, case.queue_id, case.due_ms)
            assert (put.topic, put.queue_id, decided.due_ms) == expected
        assert quick == (decided if case.is_quick else None)


# Any other mixture of these, whole or torn: a quick look must not decide anything else.

VALUES = {
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
WHOLE = [f"{name}\x01{value}\x02" for name, values in VALUES.items() for value in values]
TORN = ["\x01", "é", "TIMER_DELIVER_MS", "DELAY", "TRAN_MSG\x01true", "PGROUP\x01"]


def agree(broker: Broker, text: str) -> bool:
    """Whether a quick look leaves the decision to `place` with the message untouched, or decides
    the same."""
    put = put_of(text)
    quick = place_quickly(broker, put, text, EPOCH_MS)
    if quick is None:
        return put == put_of(text)
    return quick == placed(broker, text)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_quick])
def test_a_quick_look_agrees_with_any_text_before_and_after(broker: Broker, name: str) -> None:
    wish, pieces = text_of(CASES[name].properties), ["", *WHOLE, *TORN]
    texts = [f"{one}\x02{wish}{two}\x02" for one in pieces for two in pieces]
    assert [text for text in texts if not agree(broker, text)] == []


@given(some.lists(some.sampled_from(WHOLE + TORN), min_size=1, max_size=6).map("".join))
def test_a_quick_look_agrees_on_any_properties(broker: Broker, text: str) -> None:
    assert agree(broker, f"{text}\x02")


def test_place_changes_nothing_when_it_refuses(broker: Broker) -> None:
    put = put_of("TIMER_DELAY_SEC\x01259201\x02")
    before = msgspec.structs.replace(put)
    with pytest.raises(RequestRefused, match="at most 259200 s"):
        place(broker, put, {"TIMER_DELAY_SEC": "259201"}, EPOCH_MS)
    assert put == before


# Sends look for parts of names before they take properties apart.


def test_every_property_that_makes_a_message_special_is_noticed_by_a_send() -> None:
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
