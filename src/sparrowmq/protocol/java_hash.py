"""Java's String.hashCode, which RocketMQ writes into consume queues (tags) and index files (keys).

    hash = s[0]*31^(n-1) + s[1]*31^(n-2) + ... + s[n-1]      over UTF-16 units, in 32 bits

A Python loop over the characters costs 3 to 5 microseconds for a client's unique id, more than
everything else an index entry needs. Three facts make it cheap: the sum is a C loop when written as
`sum(map(mul, ...))`, the hash of a text is its stem's hash times a power of 31 plus its tail's, and
the unique ids of one producer differ for many messages in a row in their last digits only.
"""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from operator import mul

MASK_32 = 0xFFFFFFFF
_SIGN = 0x80000000
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(256))

TAIL_LENGTH = 3
"""Characters hashed through a table: 4,096 tails of hex digits stay below a megabyte."""

_TAIL_POWER = 31**TAIL_LENGTH
_STEMS_LIMIT = 4096
_TAILS_LIMIT = 16384


@lru_cache(maxsize=512)
def _descending_powers(length: int) -> tuple[int, ...]:
    if length <= len(_POWERS):
        return _POWERS[:length][::-1]
    return tuple(pow(31, exponent, 1 << 32) for exponent in range(length - 1, -1, -1))


def _utf16_units(text: str) -> Sequence[int]:
    if text.isascii():
        return text.encode("ascii")
    units = array("H")
    # surrogatepass: Java strings may hold half of a pair, and so may what was decoded from them.
    units.frombytes(text.encode("utf-16-le", "surrogatepass"))
    if array("H", [1]).tobytes() != b"\x01\x00":
        units.byteswap()
    return units


def unsigned_java_hash(text: str) -> int:
    """The hash as a number from 0 to 2^32 - 1."""
    units = _utf16_units(text)
    value: int = sum(map(mul, units, _descending_powers(len(units))))
    return value & MASK_32


def java_hash(text: str) -> int:
    """The hash as Java shows it: a signed 32-bit number."""
    value = unsigned_java_hash(text)
    return value - (1 << 32) if value & _SIGN else value


def positive_index_hash(unsigned: int) -> int:
    """What an index file stores: the absolute value, 0 for Integer.MIN_VALUE."""
    # as in IndexFile.indexKeyHashMethod, where Math.abs(MIN_VALUE) stays negative
    if unsigned < _SIGN:
        return unsigned
    return (1 << 32) - unsigned if unsigned > _SIGN else 0


class KeyHash:
    """Hashes `topic#key` for the many keys of one topic.

    A caller in a tight loop adds `stems[key[:-TAIL_LENGTH]]` and `tails[key[-TAIL_LENGTH:]]` in 32
    bits, and calls `miss` on KeyError; others call `of`. Both tables are bounded.
    """

    __slots__ = ("_topic_hash", "stems", "tails")

    def __init__(self, topic: str, tails: dict[str, int]) -> None:
        self._topic_hash = unsigned_java_hash(topic + "#")
        self.stems: dict[str, int] = {}
        self.tails = tails

    def of(self, key: str) -> int:
        """The unsigned hash of `topic#key`, without touching the tables."""
        units = _utf16_units(key)
        length = len(units)
        power = _POWERS[length] if length < len(_POWERS) else pow(31, length, 1 << 32)
        own: int = sum(map(mul, units, _descending_powers(length)))
        return (self._topic_hash * power + own) & MASK_32

    def miss(self, key: str) -> int:
        """The same, and remembers stem and tail for the next keys that look alike."""
        if len(key) <= TAIL_LENGTH * 2 or not key.isascii():
            return self.of(key)
        stem, tail = key[:-TAIL_LENGTH], key[-TAIL_LENGTH:]
        shifted = self._shifted_stem(stem)
        return (shifted + self._tail(tail)) & MASK_32

    def _shifted_stem(self, stem: str) -> int:
        stems = self.stems
        shifted = stems.get(stem)
        if shifted is None:
            # The stem of the stem changes four times a second, the stem itself every millisecond.
            outer = stems.get(stem[:-TAIL_LENGTH])
            if len(stems) >= _STEMS_LIMIT:
                stems.clear()
            if outer is None:
                outer = self.of(stem[:-TAIL_LENGTH]) * _TAIL_POWER & MASK_32
                stems[stem[:-TAIL_LENGTH]] = outer
            shifted = (outer + self._tail(stem[-TAIL_LENGTH:])) * _TAIL_POWER & MASK_32
            stems[stem] = shifted
        return shifted

    def _tail(self, tail: str) -> int:
        value = self.tails.get(tail)
        if value is None:
            value = unsigned_java_hash(tail)
            if len(self.tails) >= _TAILS_LIMIT:
                self.tails.clear()
            self.tails[tail] = value
        return value
