"""What an index file is made of: RocketMQ's hash table from keys to log offsets.

```
header 40   begin time 8, end time 8, begin log offset 8, end log offset 8, used slots 4, count 4
slots       4 bytes each: number of the newest entry whose key hash falls into the slot, 0 = none
entries     20 bytes each: key hash 4, log offset 8, seconds since begin time 4, previous entry 4
```

Entry numbers start at 1, so `count` is the number of the next entry and a file for 20,000,000 holds
one less. All numbers are big-endian.
"""

import struct
from dataclasses import dataclass, replace

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
