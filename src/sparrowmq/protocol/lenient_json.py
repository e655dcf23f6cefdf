"""JSON as Java's fastjson writes and reads it.

Four attempts, from fast to lenient: msgspec on the bytes as they are; msgspec again with bare
numeric keys quoted, Java's most frequent deviation; the same with objects that are keys quoted too,
as in tables keyed by queues, and a null counting as omitted; then `json_reader`. The last one is
Python, so bodies that need it have a separate limit.
"""

import re
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

import msgspec

from sparrowmq.protocol.errors import BodyError, TooLarge
from sparrowmq.protocol.json_reader import MAX_DEPTH, ObjectKey, object_key, parse_json

SLOW_LIMIT_BYTES = 256 * 1024
"""Largest body for the slow reader, 0.3 s at worst: larger ones would block a server's loop."""

T = TypeVar("T")
Bytes: TypeAlias = bytes | bytearray | memoryview

_NUMERIC_KEY = re.compile(rb"([{,]\s*)(-?\d+)\s*:")
_OBJECT_KEY = re.compile(rb'([{,])(\{(?:"[^"\\]*":(?:"[^"\\]*"|-?\d+),?){1,8}\})(?=:)')
"""Flat, compact, without escapes, and of few fields: a queue has three. The bound keeps the search
linear whatever a body holds."""


def read_json(data: Bytes, kind: type[T], slow_limit_bytes: int = SLOW_LIMIT_BYTES) -> T:
    """Turn a JSON body into a value of `kind`, as lenient as Java.

    Raises BodyError if it is not JSON even for Java, or does not describe a `kind`; TooLarge if it
    needs the slow reader and has more than `slow_limit_bytes`.
    """
    regular = data
    for attempt in (_unchanged, _with_quoted_numbers):
        regular = attempt(data)
        try:
            return msgspec.json.decode(regular, type=kind, strict=False)
        except RecursionError:
            raise BodyError(f"JSON nested deeper than {MAX_DEPTH}") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    try:
        value = _read_keys(msgspec.json.decode(_with_quoted_objects(regular)))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if len(data) > slow_limit_bytes:
            raise TooLarge(
                f"irregular JSON for {kind.__name__}", slow_limit_bytes, len(data)
            ) from None
        value = without_nulls(parse_json(data))
    try:
        return msgspec.convert(value, kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise BodyError(f"not a {kind.__name__}: {error}") from error


def _unchanged(data: Bytes) -> Bytes:
    return data


def _with_quoted_numbers(data: Bytes) -> Bytes:
    # Numeric keys are Java's most frequent deviation, in routes and offset tables of megabytes. If
    # a text contains something like one, the quotes make the JSON invalid: the next way follows.
    return _NUMERIC_KEY.sub(rb'\1"\2":', data)


def _with_quoted_objects(data: Bytes) -> Bytes:
    # As above: within a text, the quotes make the JSON invalid. An answer of 2.4 MB with 16,000
    # queues takes 0.1 s this way, and 0.44 s with `json_reader`.
    return _OBJECT_KEY.sub(
        lambda found: found[1] + b'"' + found[2].replace(b'"', b'\\"') + b'"',
        data,
    )


def _read_keys(value: Any) -> Any:
    """The same value, with objects in quotes as keys read, and without null members."""
    kind = type(value)
    if kind is dict:
        return {
            _read_key(key) if key[:1] == "{" and key[-1:] == "}" else key: (
                _read_keys(item) if type(item) in _NESTING else item
            )
            for key, item in value.items()
            if item is not None
        }
    return [_read_keys(item) for item in value] if kind is list else value


def _read_key(text: str) -> Any:
    try:
        return ObjectKey(msgspec.json.decode(text))
    except msgspec.DecodeError:
        return object_key(text)


def write_json(value: Any) -> bytes:
    """Encode structs, dicts, sequences and sets compactly, the way Java reads them.

    Fields in alphabetical order and without None, like fastjson; numeric keys quoted, which Java
    and Go both read; structs as keys the way fastjson writes them. No spaces: the Go client parses
    some bodies with string functions.
    """
    return _ENCODER.encode(_plain(value))


def without_nulls(value: Any) -> Any:
    """The same value without the null members of its objects."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    """A value that msgspec can encode directly, in the way `write_json` promises.

    Tables have 10,000 rows and more, and a server's loop is blocked meanwhile. What a struct needs
    is therefore decided once per type; most rows are left entirely to msgspec.
    """
    kind = type(value)
    if kind in _SCALARS:
        return value
    if isinstance(value, msgspec.Struct):
        plan = _PLANS.get(kind)
        if plan is None:
            plan = _PLANS[kind] = _Plan(kind)
        return plan.plain(value)
    if isinstance(value, Mapping):
        return _plain_mapping(value)
    if isinstance(value, (set, frozenset)):
        return [_plain(item) for item in sorted(value)]
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


class _Plan:
    """How structs of one type are encoded."""

    def __init__(self, kind: type[msgspec.Struct]) -> None:
        info = msgspec.inspect.type_info(kind)
        assert isinstance(info, msgspec.inspect.StructType)
        fields = sorted(info.fields, key=lambda field: field.encode_name)
        self._is_simple = _is_simple(info)
        self._wires = [field.encode_name for field in fields]
        names = [field.name for field in fields]
        # The first one twice: for a single name attrgetter would not return a tuple.
        self._members = attrgetter(*names, names[0]) if names else lambda value: ()
        self._others = [
            field.encode_name for field in fields if not isinstance(field.type, _SIMPLE)
        ]

    def plain(self, value: msgspec.Struct) -> Any:
        if self._is_simple:
            return msgspec.Raw(_SORTED.encode(value))
        found = dict(zip(self._wires, self._members(value), strict=False))
        for wire in self._others:
            if found[wire] is None:
                del found[wire]
            else:
                found[wire] = _plain(found[wire])
        return found


def _is_simple(kind: Any) -> bool:
    """Whether msgspec encodes such values as `write_json` does, except for the order of fields."""
    match kind:
        case msgspec.inspect.DictType(key_type=msgspec.inspect.StrType(), value_type=inner):
            return _is_simple(inner)
        case msgspec.inspect.ListType(item_type=inner):
            return _is_simple(inner)
        case msgspec.inspect.VarTupleType(item_type=inner):
            return _is_simple(inner)
        case msgspec.inspect.StructType(fields=fields):
            return all(_is_simple(field.type) for field in fields)
    return isinstance(kind, _SIMPLE)


_SIMPLE = (
    msgspec.inspect.StrType,
    msgspec.inspect.IntType,
    msgspec.inspect.FloatType,
    msgspec.inspect.BoolType,
    msgspec.inspect.EnumType,
)
_NESTING = (dict, list)
_SCALARS = frozenset((str, int, float, bool, type(None), msgspec.Raw))
_ENCODER = msgspec.json.Encoder()
_SORTED = msgspec.json.Encoder(order="sorted")
_PLANS: dict[type, _Plan] = {}
"""Depends only on the types, so it may be shared."""


def _plain_mapping(value: Mapping[Any, Any]) -> Any:
    if any(issubclass(kind, msgspec.Struct) for kind in set(map(type, value))):
        members = (write_json(key) + b":" + write_json(member) for key, member in value.items())
        return msgspec.Raw(b"{" + b",".join(members) + b"}")
    if type(value) is dict and _SCALARS.issuperset(map(type, value.values())):
        return value
    return {key: _plain(member) for key, member in value.items()}
