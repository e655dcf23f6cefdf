"""Which errors a program catches: one base for everything but its own mistakes."""

import inspect
import pickle

import pytest

import sparrowmq
from sparrowmq import (
    BrokerRefused,
    InUse,
    LimitReached,
    MessageQueue,
    NoNameServer,
    NotFound,
    OffsetMove,
    PartlyReset,
    QueueLost,
    SendFailed,
    SparrowMQError,
)
from sparrowmq.client import errors as client_errors
from sparrowmq.net.errors import CallTimedOut, NotConnected
from sparrowmq.protocol import errors as protocol_errors
from sparrowmq.protocol.errors import TooLarge

PUBLIC = [getattr(sparrowmq, name) for name in sparrowmq.__all__]
NAMED = [*PUBLIC, *vars(client_errors).values(), *vars(protocol_errors).values()]
ERRORS: list[type[Exception]] = sorted(
    {kind for kind in NAMED if inspect.isclass(kind) and issubclass(kind, Exception)}
    - {sparrowmq.RetryLater},  # which users raise
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_one_base_class_and_is_not_a_value_or_type_error(
    kind: type[Exception],
) -> None:
    assert issubclass(kind, SparrowMQError)
    assert not issubclass(kind, ValueError | TypeError)


QUEUE = MessageQueue("orders", "broker-a", 0)
MADE: list[SparrowMQError] = [
    NoNameServer("orders", ["a:1"], "the default", "connection refused"),
    SendFailed("orders", [("broker-a", "busy")], 1.5),
    BrokerRefused("a:1", 1, "disk is full"),
    LimitReached("a:1", 215, "over quota", 0.5),
    QueueLost(QUEUE),
    NotConnected("a:1", "connection refused"),
    CallTimedOut("a:1", "SendMessage", 3.0),
    NotFound("topic", "orders", "create it"),
    InUse("billing", ["a@1"], "stop them"),
    PartlyReset("moved", ["broker-a"], {"broker-b": "away"}, [OffsetMove(QUEUE, 1, 2)]),
    TooLarge("a frame", 10, 20),
]


@pytest.mark.parametrize("error", MADE, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling(error: SparrowMQError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
