"""Bodies and times of messages as Python values."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, Self

import msgspec
import pydantic
import pytest

from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.message import Message, MessageSettings, wire_properties
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.record import Record


@dataclass
class Order:
    id: str
    amount: int


class Payment(msgspec.Struct):
    id: str
    amount: int


class Model:
    """As pydantic's models look from outside."""

    def __init__(self, id: str, amount: int) -> None:
        self.id, self.amount = id, amount

    def model_dump_json(self) -> str:
        return f'{{"id":"{self.id}","amount":{self.amount}}}'

    @classmethod
    def model_validate_json(cls, data: bytes) -> Self:
        fields = msgspec.json.decode(data)
        if not isinstance(fields.get("amount"), int):
            raise ValueError("amount: input should be a valid integer")
        return cls(**fields)


class Invoice(pydantic.BaseModel):
    """A real model, which takes no text for a time from Python, only from JSON."""

    model_config = pydantic.ConfigDict(strict=True)

    id: str
    at: datetime


@dataclass
class Page:
    number: int
    invoices: list[Invoice]


class Decimals:
    """Nothing that JSON could be read into."""


class Parcel(msgspec.Struct):
    invoice: Invoice | None


HOST = bytes([127, 0, 0, 1, 0, 0, 0, 1])
RECORD = Record(
    *(100, 0, 0, 0, 0, 0, 0, 0),
    born_timestamp=1794832200500,
    born_host=HOST,
    store_timestamp=1794832200501,
    store_host=HOST,
    reconsume_times=0,
    prepared_transaction_offset=0,
    body=b"",
    topic="orders",
    properties=b"",
)


def arrived(body: bytes) -> MessageExt:
    """A message as consumers get it."""
    return MessageExt(msgspec.structs.replace(RECORD, body=body))


@pytest.mark.parametrize(
    "value", [{"id": "o-1", "amount": 3}, Order("o-1", 3), Payment("o-1", 3), Model("o-1", 3)]
)
def test_a_body_of_json_is_any_value_that_json_can_hold(value: object) -> None:
    message = Message.json("orders", value, tags="created", keys="o-1")
    assert message.body == b'{"id":"o-1","amount":3}'
    assert (message.tags, message.keys) == ("created", ("o-1",))


@pytest.mark.parametrize("kind", [Order, Payment, Model])
def test_a_json_body_is_decoded_as_the_requested_class(kind: type[Any]) -> None:
    order = arrived(b'{"id":"o-1","amount":3}').json(kind)
    assert isinstance(order, kind)
    assert (order.id, order.amount) == ("o-1", 3)


def test_a_body_of_json_arrives_as_plain_values_and_text_as_text() -> None:
    assert arrived(b'[1, {"a": null}]').json() == [1, {"a": None}]
    assert arrived("zwölf".encode()).text() == "zwölf"
    assert Message.text("orders", "zwölf").body == "zwölf".encode()


INVOICE = Invoice(id="i-1", at=datetime(2026, 11, 16, tzinfo=UTC))
INVOICE_JSON = b'{"id":"i-1","at":"2026-11-16T00:00:00Z"}'


@pytest.mark.parametrize(
    ("kind", "value", "body"),
    [
        (Invoice, INVOICE, INVOICE_JSON),
        (list[Invoice], [INVOICE, INVOICE], b"[%b,%b]" % (INVOICE_JSON, INVOICE_JSON)),
        (dict[str, Invoice | None], {"a": INVOICE, "b": None}, b'{"a":%b,"b":null}' % INVOICE_JSON),
        (Page, Page(1, [INVOICE]), b'{"number":1,"invoices":[%b]}' % INVOICE_JSON),
        (Parcel, Parcel(INVOICE), b'{"invoice":%b}' % INVOICE_JSON),
        (list[Model], [Model("o-1", 3)], b'[{"id":"o-1","amount":3}]'),
    ],
    ids=lambda value: str(value)[:30],
)
def test_models_are_read_and_written_anywhere_in_a_body(kind: Any, value: Any, body: bytes) -> None:
    assert Message.json("orders", value).body == body
    again = arrived(body).json(kind)
    if kind != list[Model]:  # which cannot be compared
        assert again == value
    else:
        assert [vars(each) for each in again] == [vars(each) for each in value]


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        (b"{", Any, "the body is not JSON: "),
        (b'{"id":"o-1","amount":"x"}', Order, "not JSON of Order: .*amount"),
        (b'{"id":"o-1","amount":"x"}', Payment, "not JSON of Payment: .*amount"),
        (b'{"id":"o-1","amount":"x"}', Model, "not JSON of Model: amount"),
        (b'[{"id":1,"at":"x"}]', list[Invoice], r"(?s)JSON of list\[.*Invoice\]: .*id.*\$\[0\]"),
        (b'{"invoice":5}', Parcel, "(?s)not JSON of Parcel: .*invoice"),
        (b"[{}]", list[Decimals], r"JSON of list\[.*Decimals\]: Expected `Decimals`, got `dict`"),
    ],
)
def test_a_body_that_does_not_match_the_requested_class_is_refused(
    body: bytes, kind: Any, said: str
) -> None:
    with pytest.raises(BodyError, match=said):
        arrived(body).json(kind)


def test_bytes_that_are_not_text_are_refused() -> None:
    with pytest.raises(BodyError, match="not UTF-8"):
        arrived(b"\xff").text()


@pytest.mark.parametrize("value", [object(), [object()], {1, 2}.__iter__(), "\ud800"])
def test_what_json_cannot_hold_is_refused_when_the_message_is_built(value: object) -> None:
    with pytest.raises(ValueError, match="cannot be written as JSON"):
        Message.json("orders", value)


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (NAN, "it is nan, a number that JSON does not have; None becomes null"),
        ({"price": NAN}, "price is nan"),
        ({"orders": [{"price": 1.5}, {"price": -INFINITE}]}, r"orders\[1\].price is -inf"),
        (Order("o-1", INFINITE), "amount is inf"),  # type: ignore[arg-type]
        (Payment("o-1", NAN), "amount is nan"),  # type: ignore[arg-type]
        ((1, NAN, Model("o-1", 1)), r"\[1\] is nan"),
    ],
)
def test_numbers_that_json_does_not_have_are_refused_with_their_place(
    value: object, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        Message.json("orders", value)


def test_null_and_texts_that_contain_it_are_written() -> None:
    value = {"price": None, "note": "null", "model": Model("o-1", 3)}
    message = Message.json("orders", value)
    assert message.body == b'{"price":null,"note":"null","model":{"id":"o-1","amount":3}}'


def test_a_kind_that_is_no_type_is_refused() -> None:
    with pytest.raises(ValueError, match="kind is 5, must be a type, such as dict"):
        arrived(b"{}").json(5)  # type: ignore[call-overload]


AT = datetime(2026, 11, 16, 13, 30, 0, 500_000, timezone(timedelta(hours=1)))


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"delay": timedelta(seconds=90)}, "TIMER_DELAY_MS", "90000"),
        ({"delay": timedelta(0)}, "TIMER_DELAY_MS", "0"),
        ({"deliver_at": AT}, "TIMER_DELIVER_MS", "1794832200500"),
    ],
)
def test_durations_and_dates_become_milliseconds(
    settings: MessageSettings, name: str, value: str
) -> None:
    assert wire_properties(Message("orders", b"x", **settings))[name] == value


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"deliver_at": datetime(2026, 11, 16)}, "must be a datetime with a time zone"),  # noqa: DTZ001
        ({"deliver_at": 5}, "must be a datetime with a time zone"),
        ({"delay": 5}, "must be a timedelta; delay_ms takes numbers"),
        ({"delay": timedelta(seconds=-1)}, "delay_ms is -1000, must be 0 or more"),
        ({"delay": timedelta(1), "deliver_at": AT}, "cannot be combined"),
        ({"delay": timedelta(1), "delay_level": 3}, "cannot be combined"),
        ({"deliver_at": AT, "deliver_time_ms": 1}, "cannot be combined"),
        ({"delay_level": 19}, "delay_level is 19, must be 0 to 18"),
        ({"delay_level": -1}, "delay_level is -1, must be 0 to 18"),
    ],
)
def test_invalid_times_are_refused(settings: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Message("orders", b"x", **settings)


def test_times_of_a_message_are_dates_in_utc() -> None:
    message = MessageExt(RECORD)
    assert message.born_at == AT
    assert message.stored_at - message.born_at == timedelta(milliseconds=1)
    assert message.born_at.tzinfo is UTC
