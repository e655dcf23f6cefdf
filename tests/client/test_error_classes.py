"""Which errors a program catches: one base for everything but its own mistakes."""

import inspect

import pytest

import sparrowmq
from sparrowmq import SparrowMQError
from sparrowmq.client import errors as client_errors
from sparrowmq.protocol import errors as protocol_errors

PUBLIC = [getattr(sparrowmq, name) for name in sparrowmq.__all__]
NAMED = [*PUBLIC, *vars(client_errors).values(), *vars(protocol_errors).values()]
ERRORS: list[type[Exception]] = sorted(
    {kind for kind in NAMED if inspect.isclass(kind) and issubclass(kind, Exception)}
    - {sparrowmq.RetryLater},  # which users raise
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", ERRORS)
def test_every_error_has_one_base_and_is_no_mistake_of_the_caller(kind: type[Exception]) -> None:
    assert issubclass(kind, SparrowMQError)
    assert not issubclass(kind, ValueError | TypeError)
