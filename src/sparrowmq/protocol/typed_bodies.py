"""Bodies as values: JSON and text, with msgspec structs, pydantic models and dataclasses.

pydantic is not a dependency: its models are recognized by their methods, wherever they are in a
body. They write and read their part of the JSON themselves, because JSON means more to them than
Python's values do: a strict model takes the text of a time from JSON only.
"""

import math
from typing import Any, TypeVar, cast

import msgspec

from sparrowmq.protocol.errors import BodyError

T = TypeVar("T")
_NULL = b"null"


def json_body(value: object) -> bytes:
    """A value as JSON. Raises ValueError naming what cannot be written as JSON. A model of
    pydantic's decides itself how it writes a number that JSON does not have."""
    try:
        body = _ENCODER.encode(value)
        if _NULL in body:  # msgspec also writes it for NaN and infinities
            _refuse_null_numbers("", msgspec.to_builtins(value, enc_hook=lambda _: None))
    except (TypeError, ValueError, msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise ValueError(f"the body cannot be written as JSON: {error}") from error
    return body


def _refuse_null_numbers(place: str, value: object) -> None:
    """Raises ValueError for a number that JSON does not have, with its place."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(
            f"{place or 'it'} is {value}, a number that JSON does not have; None becomes null"
        )
    if isinstance(value, dict):
        for name, part in value.items():
            _refuse_null_numbers(f"{place}.{name}" if place else str(name), part)
    elif isinstance(value, list | tuple | set | frozenset):
        for number, part in enumerate(value):
            _refuse_null_numbers(f"{place}[{number}]", part)


def json_value(body: bytes, kind: type[T] | Any = Any) -> T:
    """The value of a JSON body, checked against `kind`. Raises BodyError naming what differs, and
    ValueError for a kind that is no type."""
    validate = getattr(kind, "model_validate_json", None)  # pydantic's
    read = _decoder(kind).decode if validate is None else validate
    try:
        return cast(T, read(body))
    except (ValueError, msgspec.MsgspecError) as error:
        name = kind.__name__ if isinstance(kind, type) else kind
        wanted = "" if kind is Any else f" of {name}"
        raise BodyError(f"the body is not JSON{wanted}: {error}") from error


def _decoder(kind: Any) -> "msgspec.json.Decoder[Any]":
    """Raises ValueError for what is no type."""
    try:
        return msgspec.json.Decoder(kind, dec_hook=_read_model)
    except TypeError as error:
        raise ValueError(f"kind is {kind!r}, must be a type, such as dict: {error}") from error


def _write_model(value: Any) -> msgspec.Raw:
    """What msgspec cannot write itself. Raises TypeError unless it is a model of pydantic's."""
    dump = getattr(value, "model_dump_json", None)
    if dump is None:
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return msgspec.Raw(cast(str, dump()).encode())


def _read_model(kind: type[Any], value: Any) -> Any:
    """A value as a class that msgspec does not know. Raises ValueError unless it is a model of
    pydantic's, and the value fits."""
    validate = getattr(kind, "model_validate_json", None)
    if validate is None:
        raise ValueError(f"Expected `{kind.__name__}`, got `{type(value).__name__}`")
    return validate(msgspec.json.encode(value))


_ENCODER = msgspec.json.Encoder(enc_hook=_write_model)


def text_value(body: bytes) -> str:
    """The text of a UTF-8 body. Raises BodyError for other bytes."""
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BodyError(f"the body is not UTF-8 text: {error}") from error
