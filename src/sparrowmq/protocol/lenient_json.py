"""JSON as Java's fastjson writes and reads it.

Three attempts, from fast to forgiving: msgspec on the bytes as they are; msgspec once more with
bare numeric keys quoted, which is what Java does most; then `json_reader`, where a null also counts
as left out. The last one is Python, so bodies that need it have a limit of their own.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar

import msgspec

from sparrowmq.protocol.errors import BodyError, TooLarge
from sparrowmq.protocol.json_reader import MAX_DEPTH, parse_json

SLOW_LIMIT_BYTES = 256 * 1024
"""Largest body for the slow reader, 0.3 s at worst: larger ones would stop a server's loop."""

T = TypeVar("T")
Bytes: TypeAlias = bytes | bytearray | memoryview

_NUMERIC_KEY = re.compile(rb"([{,]\s*)(-?\d+)\s*:")


def read_json(data: Bytes, kind: type[T], slow_limit_bytes: int = SLOW_LIMIT_BYTES) -> T:
    """Turn a JSON body into a value of `kind`, forgiving what Java forgives.

    Raises BodyError if it is no JSON even for Java, or does not describe a `kind`; TooLarge if it
    needs the slow reader and has more than `slow_limit_bytes`.
    """
    for attempt in (_unchanged, _with_quoted_numbers):
        try:
            return msgspec.json.decode(attempt(data), type=kind, strict=False)
        except RecursionError:
            raise BodyError(f"JSON nested deeper than {MAX_DEPTH}") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    if len(data) > slow_limit_bytes:
        raise TooLarge(f"irregular JSON for {kind.__name__}", slow_limit_bytes, len(data))
    value = without_nulls(parse_json(data))
    try:
        return msgspec.convert(value, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise BodyError(f"not a {kind.__name__}: {error}") from error


def _unchanged(data: Bytes) -> Bytes:
    return data


def _with_quoted_numbers(data: Bytes) -> Bytes:
    # Numeric keys are what Java does most, in routes and offset tables of megabytes. Should a text
    # hold something that looks like one, the quotes tear it open, which is no JSON: we read on.
    return _NUMERIC_KEY.sub(rb'\1"\2":', data)


def write_json(value: Any) -> bytes:
    """Encode structs, dicts, sequences and sets compactly, the way Java reads them.

    Fields in alphabetical order and None left out, as fastjson does it; numeric keys quoted, which
    Java and Go both read; structs as keys the way fastjson writes them. No spaces: the Go client
    takes some bodies apart with string functions.
    """
    return msgspec.json.encode(_plain(value))


def without_nulls(value: Any) -> Any:
    """The same value without the null members of its objects."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _plain_struct(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    if isinstance(value, (set, frozenset)):
        return [_plain(item) for item in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _plain_struct(value: msgspec.Struct) -> dict[str, Any]:
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    members = ((wire, getattr(value, name)) for wire, name in sorted(names))
    return {wire: _plain(member) for wire, member in members if member is not None}


def _plain_mapping(value: Mapping[Any, Any]) -> Any:
    if not any(isinstance(key, msgspec.Struct) for key in value):
        return {key: _plain(member) for key, member in value.items()}
    members = (write_json(key) + b":" + write_json(member) for key, member in value.items())
    return msgspec.Raw(b"{" + b",".join(members) + b"}")
