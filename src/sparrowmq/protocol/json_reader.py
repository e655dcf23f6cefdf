"""A reader for JSON with the deviations of Java's fastjson.

{0:"addr"}                                  unquoted keys
{{"brokerName":"a","queueId":0,…}:{…}}      objects as keys (offset tables)
{"{\\"brokerName\\":\\"a\\",…}":{…}}              the same, as fastjson2 writes it when asked
{'a':1,}  Set[1,2]  5L  undefined           single quotes, trailing commas, Java's type marks
"""

import re
from typing import Any, NoReturn

from sparrowmq.protocol.errors import BodyError

MAX_DEPTH = 32
"""Deeper nesting is refused; RocketMQ's own bodies stay below 10."""

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
    """An object used as a key, where standard JSON only allows a string."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset((name, str(value)) for name, value in self.items()))


def parse_json(data: bytes | bytearray | memoryview) -> Any:
    """Read any JSON into plain dicts, lists, strings and numbers; keys are strings or ObjectKeys.

    Raises BodyError, which names the position, if even Java would give up.
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
            return object_key(text, depth) if text[:1] == "{" and text[-1:] == "}" else text
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


def object_key(text: str, depth: int = 0) -> Any:
    """The object that a key in braces is; the text itself if it is none."""
    try:
        value = _Reader(text).value(depth + 1)
    except BodyError:
        return text
    return ObjectKey(value)


def _join_surrogates(text: str) -> str:
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
