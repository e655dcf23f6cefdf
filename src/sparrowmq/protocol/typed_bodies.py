"""Bodies as values: JSON and text, with msgspec structs, pydantic models and dataclasses.

pydantic is not a dependency: its models are recognized by their methods.
"""

from typing import Any, TypeVar, cast

import msgspec

from sparrowmq.protocol.errors import BodyError

T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()


def json_body(value: object) -> bytes:
    """A value as JSON. Raises ValueError naming what cannot be written as JSON."""
    dump = getattr(value, "model_dump_json", None)  # pydantic's
    if dump is not None:
        return cast(str, dump()).encode()
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise ValueError(f"the body cannot be written as JSON: {error}") from error


def json_value(body: bytes, kind: type[T] | Any = Any) -> T:
    """The value of a JSON body, checked against `kind`. Raises BodyError naming what differs."""
    validate = getattr(kind, "model_validate_json", None)  # pydantic's
    try:
        if validate is not None:
            return cast(T, validate(body))
        return cast(T, msgspec.json.decode(body, type=kind))
    except (ValueError, msgspec.MsgspecError) as error:
        wanted = "" if kind is Any else f" of {getattr(kind, '__name__', kind)}"
        raise BodyError(f"the body is not JSON{wanted}: {error}") from error


def text_value(body: bytes) -> str:
    """The text of a UTF-8 body. Raises BodyError for other bytes."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"the body is not UTF-8 text: {error}") from error
