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

_TAIL = 3
_TAIL_POWER = 31**_TAIL
_STEM_POWER = 31 ** (2 * _TAIL)
_STEMS_LIMIT = 4096
_PIECES_LIMIT = 16384


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


class KeyPieces:
    """Hashes of three characters: hex digits make 4,096 of them, less than a megabyte."""

    __slots__ = ("last", "middle")

    def __init__(self) -> None:
        self.last: dict[str, int] = {}
        self.middle: dict[str, int] = {}
        """The same, moved in front of three more characters."""

    def learn(self, middle: str, last: str) -> None:
        """Make sure that both are there; the tables stay bounded."""
        for table, piece, power in ((self.middle, middle, _TAIL_POWER), (self.last, last, 1)):
            if len(table) >= _PIECES_LIMIT:
                table.clear()
            table[piece] = unsigned_java_hash(piece) * power


class KeyHash:
    """Hashes `topic#key` for the many keys of one topic.

    The six last digits of a Java client's unique id are the low byte of a time in milliseconds and
    a counter, the 26 before them change four times a second. A caller in a tight loop adds
    `stems[key[:-6]]`, `pieces.middle[key[-6:-3]]` and `pieces.last[key[-3:]]` in 32 bits, and
    calls `miss` on KeyError; others call `of`.
    """

    __slots__ = ("_pieces", "_topic_hash", "stems")

    def __init__(self, topic: str, pieces: KeyPieces) -> None:
        self._topic_hash = unsigned_java_hash(topic + "#")
        self._pieces = pieces
        self.stems: dict[str, int] = {}

    def of(self, key: str) -> int:
        """The unsigned hash of `topic#key`, without touching the tables."""
        units = _utf16_units(key)
        length = len(units)
        power = _POWERS[length] if length < len(_POWERS) else pow(31, length, 1 << 32)
        own: int = sum(map(mul, units, _descending_powers(length)))
        return (self._topic_hash * power + own) & MASK_32

    def miss(self, key: str) -> int:
        """The same, and remembers the parts of a long key for the next ones that look alike."""
        if len(key) > 4 * _TAIL and key.isascii():
            stem = key[: -2 * _TAIL]
            if len(self.stems) >= _STEMS_LIMIT:
                self.stems.clear()
            self.stems[stem] = self.of(stem) * _STEM_POWER & MASK_32
            self._pieces.learn(key[-2 * _TAIL : -_TAIL], key[-_TAIL:])
        return self.of(key)
