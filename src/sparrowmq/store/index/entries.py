"""The layout of an index file, RocketMQ's hash table from keys to log offsets, and its entries.

```
header 40   begin time 8, end time 8, begin log offset 8, end log offset 8, used slots 4, count 4
slots       4 bytes each: number of the newest entry whose key hash falls into the slot, 0 = none
entries     20 bytes each: key hash 4, log offset 8, seconds since begin time 4, previous entry 4
```

Entry numbers start at 1, so `count` is the number of the next entry and a file for 20,000,000
holds one less. All numbers are big-endian.

Entries of many messages are made at once, in columns. Every message of a Java client has a unique
id and therefore an entry. One at a time, hashing an id costs more than everything else the entry
needs, and slots and entries are far apart in memory. With numpy a whole batch takes a few steps, a
tenth of the time (decision 13).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sparrowmq.disk.disk import Words
from sparrowmq.protocol.java import unsigned_java_hash

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
HEADER = struct.Struct(">qqqqii")
ENTRY = struct.Struct(">IqiI")


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The first 40 bytes of an index file."""

    begin_time: int = 0
    end_time: int = 0
    begin_log_offset: int = 0
    end_log_offset: int = 0
    used_slots: int = 0
    count: int = 1
    """Number of the next entry."""

    @staticmethod
    def decode(data: bytes) -> "IndexHeader":
        """A header that was never written is all zeros and counts as empty."""
        header = IndexHeader(*HEADER.unpack(data))
        return header if header.count > 0 else replace(header, count=1)

    def encode(self) -> bytes:
        return HEADER.pack(
            self.begin_time,
            self.end_time,
            self.begin_log_offset,
            self.end_log_offset,
            self.used_slots,
            self.count,
        )


@dataclass(frozen=True, slots=True)
class IndexLayout:
    """How many slots and entries each index file has; RocketMQ's maxHashSlotNum, maxIndexNum."""

    slots: int = 5_000_000
    entries: int = 20_000_000

    def __post_init__(self) -> None:
        if self.slots < 1 or self.entries < 2:
            raise ValueError(f"{self.slots} slots, {self.entries} entries: need 1 and 2 at least")

    @property
    def entries_at(self) -> int:
        return HEADER_SIZE + self.slots * SLOT_SIZE

    @property
    def file_size(self) -> int:
        return self.entries_at + self.entries * ENTRY_SIZE


IndexRequest: TypeAlias = tuple[str, str, str, int, int]
"""Topic, unique id, keys separated by spaces, log offset, store timestamp."""

Longs: TypeAlias = npt.NDArray[np.int64]

_LONGEST = 128
"""Keys up to here are hashed together. Unique ids have 32 characters, with IPv6 56."""
_POWERS: Words = np.array([pow(31, exponent, 1 << 32) for exponent in range(_LONGEST + 1)], "u4")
_SIGN = 0x80000000


@dataclass(frozen=True, slots=True)
class KeyEntries:
    """The content of a file's entries, apart from how they are chained."""

    key_hashes: Words
    """As they are stored: 31 bits."""
    log_offsets: Longs
    timestamps: Longs

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.key_hashes)

    def part(self, start: int, stop: int | None = None) -> "KeyEntries":
        """The entries from `start` to before `stop`."""
        return KeyEntries(
            self.key_hashes[start:stop], self.log_offsets[start:stop], self.timestamps[start:stop]
        )


def entries_of(requests: Sequence[IndexRequest]) -> KeyEntries:
    """An entry for the unique id and for each key of every message, in order."""
    topics, keys, more, log_offsets, timestamps = zip(*requests, strict=True)
    if any(more) or not all(keys):
        each = [(request[0], key, *request[3:]) for request in requests for key in _keys(request)]
        if not each:
            return NO_ENTRIES
        topics, keys, log_offsets, timestamps = zip(*each, strict=True)
    return KeyEntries(
        stored_hashes(topics, keys), np.array(log_offsets, "i8"), np.array(timestamps, "i8")
    )


def _keys(request: IndexRequest) -> list[str]:
    return [key for key in (request[1], *request[2].split(" ")) if key]


def stored_hashes(topics: Sequence[str], keys: Sequence[str]) -> Words:
    """What an index file stores for `topic#key` of each."""
    lengths = np.fromiter(map(len, keys), "i8", len(keys))
    longest = int(lengths.max())
    if longest > _LONGEST or not "".join(keys).isascii():
        odd = [n for n, key in enumerate(keys) if len(key) > _LONGEST or not key.isascii()]
        odd_hashes = [unsigned_java_hash(f"{topics[n]}#{keys[n]}") for n in odd]
        plain = list(keys)
        for n in odd:
            plain[n] = ""
        lengths[odd] = 0
        hashes = _hashes(topics, plain, lengths)
        hashes[odd] = odd_hashes
    else:
        hashes = _hashes(topics, keys, lengths)
    # The absolute value, as in IndexFile.indexKeyHashMethod, which makes 0 of Integer.MIN_VALUE.
    return np.where(hashes >= _SIGN, -hashes & 0x7FFFFFFF, hashes)


def _hashes(topics: Sequence[str], keys: Sequence[str], lengths: Longs) -> Words:
    """String.hashCode of `topic#key`, unsigned: the topic's hash, shifted, plus the key's.

    Zeros in front of a shorter key add nothing to its hash.
    """
    width = int(lengths.max())
    if int(lengths.min()) < width:
        keys = [key.rjust(width, "\0") for key in keys]
    characters = np.frombuffer("".join(keys).encode("ascii"), "u1").reshape(len(keys), width)
    own: Words = np.einsum("ij,j->i", characters.astype("u4"), _POWERS[:width][::-1])
    if topics.count(topics[0]) == len(topics):
        before: Words = np.full(1, _topic_hash(topics[0]), "u4")
    else:
        before = np.fromiter(map(_topic_hash, topics), "u4", len(topics))
    moved: Words = before * _POWERS[lengths] + own
    return moved


@lru_cache(maxsize=4096)
def _topic_hash(topic: str) -> int:
    return unsigned_java_hash(f"{topic}#")


NO_ENTRIES = KeyEntries(np.empty(0, "u4"), np.empty(0, "i8"), np.empty(0, "i8"))
