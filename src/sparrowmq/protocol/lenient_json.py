"""JSON as Java's fastjson writes and reads it.

Most bodies are standard JSON and take msgspec's path. What is not is read here:

    {0:"addr"}                                  unquoted keys
    {{"brokerName":"a","queueId":0,…}:{…}}      objects as keys (offset tables)
    {"{\\"brokerName\\":\\"a\\",…}":{…}}              the same, as fastjson2 writes it when asked
    {'a':1,}  Set[1,2]  5L  undefined           single quotes, trailing commas, Java's own marks
    {"a":null}                                  null where a plain value is expected: the default
"""

import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeAlias, TypeVar

import msgspec

from sparrowmq.protocol.errors import BodyError

MAX_DEPTH = 32
"""Deeper nesting is refused; RocketMQ's own bodies stay below 10."""

T = TypeVar("T")
Bytes: TypeAlias = bytes | bytearray | memoryview

_NUMERIC_KEY = re.compile(rb"([{,]\s*)(-?\d+)\s*:")
_BLANK = re.compile(r"\s*")
_NUMBER = re.compile(r"[-+]?(\d+)?(\.\d*)?([eE][-+]?\d+)?")
_BARE_WORD = re.compile(r"[\w$@.\-+]+")
_PLAIN_TEXT = {'"': re.compile(r'[^"\\]*'), "'": re.compile(r"[^'\\]*")}
_COLLECTION_MARK = re.compile(r"(?:Tree)?Set(?=\[)")
_ESCAPES = {
    **{mark: mark for mark in "\"'\\/"},
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_WORDS = {"true": True, "false": False, "null": None, "undefined": None}


class ObjectKey(dict[str, Any]):
    """An object that stands where standard JSON allows a string only: as a key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset((name, str(value)) for name, value in self.items()))


def read_json(data: Bytes, kind: type[T]) -> T:
    """Turn a JSON body into a value of `kind`, forgiving what Java forgives.

    Raises BodyError if it is no JSON even for Java, or does not describe a `kind`.
    """
    for attempt in (_unchanged, _with_quoted_numbers):
        try:
            return msgspec.json.decode(attempt(data), type=kind, strict=False)
        except RecursionError:
            raise BodyError(f"JSON nested deeper than {MAX_DEPTH}") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
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


def parse_json(data: Bytes) -> Any:
    """Read any JSON into plain dicts, lists, strings and numbers; keys are strings or ObjectKeys.

    Raises BodyError, which names the position, where even Java would give up.
    """
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise BodyError(f"JSON is not UTF-8 at byte {error.start}") from None
    reader = _Reader(text)
    value = reader.value(0)
    if reader.peek():
        reader.fail("nothing more")
    return value


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


class _Reader:
    """Recursive descent over one text."""

    __slots__ = ("at", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, expected: str) -> NoReturn:
        found = self.text[self.at : self.at + 12] or "the end"
        raise BodyError(f"JSON at character {self.at}: expected {expected}, found {found!r}")

    def peek(self) -> str:
        """The next character that is not blank, '' at the end."""
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
        return self.text[self.at : self.at + 1]

    def value(self, depth: int) -> Any:
        first = self.peek()
        if first == "{":
            return self.object(depth)
        if first == "[":
            return self.array(depth)
        if first in ('"', "'"):
            return self.string(first)
        if first.isdigit() or first in ("-", "+", "."):
            return self.number()
        return self.word(depth)

    def open(self, depth: int) -> None:
        if depth >= MAX_DEPTH:
            raise BodyError(f"JSON nested deeper than {MAX_DEPTH}")
        self.at += 1

    def object(self, depth: int) -> dict[Any, Any]:
        self.open(depth)
        members: dict[Any, Any] = {}
        while (first := self.peek()) != "}":
            if first == ",":
                self.at += 1
                continue
            key = self.key(first, depth)
            if self.peek() != ":":
                self.fail("':'")
            self.at += 1
            members[key] = self.value(depth + 1)
            if self.peek() not in (",", "}"):
                self.fail("',' or '}'")
        self.at += 1
        return members

    def key(self, first: str, depth: int) -> Any:
        if first == "{":
            return ObjectKey(self.value(depth + 1))
        if first in ('"', "'"):
            text = self.string(first)
            return _object_key(text, depth) if text[:1] == "{" and text[-1:] == "}" else text
        word = _BARE_WORD.match(self.text, self.at)
        if word is None:
            self.fail("a key")
        self.at = word.end()
        return word.group()

    def array(self, depth: int) -> list[Any]:
        self.open(depth)
        items: list[Any] = []
        while (first := self.peek()) != "]":
            if first == ",":
                self.at += 1
                continue
            items.append(self.value(depth + 1))
            if self.peek() not in (",", "]"):
                self.fail("',' or ']'")
        self.at += 1
        return items

    def string(self, quote: str) -> str:
        self.at += 1
        plain = _PLAIN_TEXT[quote]
        pieces: list[str] = []
        while True:
            piece = plain.match(self.text, self.at)
            assert piece is not None  # the pattern matches the empty string
            pieces.append(piece.group())
            self.at = piece.end()
            mark = self.text[self.at : self.at + 1]
            if mark == quote:
                self.at += 1
                return _join_surrogates("".join(pieces))
            if not mark:
                self.fail(f"closing {quote}")
            pieces.append(self.escape())

    def escape(self) -> str:
        mark = self.text[self.at + 1 : self.at + 2]
        if mark in _ESCAPES:
            self.at += 2
            return _ESCAPES[mark]
        digits = {"u": 4, "x": 2}.get(mark, 0)
        code = self.text[self.at + 2 : self.at + 2 + digits]
        if not digits or not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", code):
            self.fail("an escape")
        self.at += 2 + digits
        return chr(int(code, 16))

    def number(self) -> int | float:
        found = _NUMBER.match(self.text, self.at)
        assert found is not None  # the pattern matches the empty string
        whole, fraction, exponent = found.groups()
        if whole is None and fraction in (None, "."):
            self.fail("a number")
        try:
            value = float(found.group()) if fraction or exponent else int(found.group())
        except ValueError:  # thousands of digits
            self.fail("a shorter number")
        self.at = found.end()
        if self.text[self.at : self.at + 1] in tuple("LBSFD"):  # Java's type marks
            self.at += 1
        return value

    def word(self, depth: int) -> Any:
        mark = _COLLECTION_MARK.match(self.text, self.at)
        if mark is not None:
            self.at = mark.end()
            return self.array(depth)
        word = _BARE_WORD.match(self.text, self.at)
        if word is None or word.group() not in _WORDS:
            self.fail("a value")
        self.at = word.end()
        return _WORDS[word.group()]


def _object_key(text: str, depth: int) -> Any:
    try:
        value = _Reader(text).value(depth + 1)
    except BodyError:
        return text
    return ObjectKey(value)


def _join_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
