"""What goes into the store and what comes out of it."""

from collections.abc import Callable, Sequence
from enum import Enum
from typing import TypeAlias

import msgspec

from sparrowmq.protocol.record_batch import BatchedPuts


class PutMessage(msgspec.Struct, gc=False):
    """A message to append; names and sizes have been checked by the caller."""

    topic: str
    queue_id: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    """Address and port as stored: 4 + 4 bytes, IPv6 16 + 4."""
    reconsume_times: int
    body: bytes
    properties: bytes
    """Encoded, without `__CRC32#`."""
    tags_code: int = 0
    """The tag field of the queue unit: the hash of the tag, for delay topics the delivery time."""
    uniq_key: str = ""
    keys: str = ""
    prepared_transaction_offset: int = 0


class PutBatch(msgspec.Struct, gc=False):
    """Messages of one queue to append together; names and sizes have been checked."""

    topic: str
    queue_id: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int
    messages: BatchedPuts


class Stored(msgspec.Struct, gc=False):
    """Where a message lies."""

    log_offset: int
    size: int
    queue_offset: int
    store_timestamp: int


class StoredBatch(msgspec.Struct, gc=False):
    """Where the messages of a batch lie: one after the other."""

    log_offsets: list[int]
    end: int
    """Log offset just past the last record."""
    queue_offset: int
    """Of the first; the others follow without gaps."""


class ReadStatus(Enum):
    """RocketMQ's GetMessageStatus."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class QueueRead(msgspec.Struct, gc=False):
    """The result of reading a queue: complete records, in order, ready to be sent unchanged."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    chunks: Sequence[bytes | memoryview] = ()
    count: int = 0
    size: int = 0
    has_unsynced: bool = False
    """There are more messages, which consumers see once they are synced."""


class Damage(msgspec.Struct, frozen=True):
    """Damaged bytes of a file, and what was done about them."""

    path: str
    position: int
    length: int
    reason: str
    action: str

    def __str__(self) -> str:
        return (
            f"{self.path} is damaged at byte {self.position} ({self.length} bytes):"
            f" {self.reason}; {self.action}"
        )


class StartProgress(msgspec.Struct, frozen=True):
    """Progress of a long task at start."""

    what: str
    done: int
    total: int

    def __str__(self) -> str:
        return f"{self.what}: {self.done:,} of at most {self.total:,} bytes"


Report: TypeAlias = Callable[[Damage | StartProgress], None]
"""Called with what a start, or a read, finds worth reporting."""
