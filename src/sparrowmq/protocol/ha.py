"""RocketMQ's classic HA protocol: raw log bytes from a master to slaves, offsets back.

```
slave  → master   offset 8                     the first asks where to begin, later ones acknowledge
master → slave    offset 8, length 4, body     bytes of the log; length 0 is a heartbeat
```

A heartbeat carries the offset that is sent next: Apache's slave checks every head against the end
of its own log and disconnects if they differ.

The protocol does not identify slaves. Ours therefore first announces itself over the broker's own
port, and before its first offset presents the token it got there:

```
slave  → master   TOKEN_MAGIC 8, token 16      a negative number, which is never an offset
```
"""

import struct
from typing import NamedTuple

from sparrowmq.protocol.errors import ProtocolError

OFFSET = struct.Struct(">q")
CHUNK_HEAD = struct.Struct(">qi")
TOKEN_MAGIC = OFFSET.pack(-0x53504152524F574D)  # "SPARROWM" with its sign turned
TOKEN_BYTES = 16


class Chunk(NamedTuple):
    """Bytes of the log that begin at `log_offset`; a heartbeat has none."""

    log_offset: int
    body: bytes


class HaError(ProtocolError):
    """The other side of an HA connection sent something invalid."""


def encode_chunk_head(log_offset: int, size: int) -> bytes:
    """The head before `size` bytes of the log; 0 for a heartbeat."""
    return CHUNK_HEAD.pack(log_offset, size)


def encode_offset(log_offset: int) -> bytes:
    """A slave's report that it has everything before this offset."""
    return OFFSET.pack(log_offset)


def encode_token(token: bytes) -> bytes:
    """The token that our slave presents before its first report."""
    assert len(token) == TOKEN_BYTES
    return TOKEN_MAGIC + token


class ChunkDecoder:
    """Turns a master's bytes, in any pieces, into complete chunks."""

    def __init__(self, max_body_bytes: int) -> None:
        self._max_body_bytes = max_body_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Chunk]:
        """The chunks that are complete now. Raises HaError for an invalid head."""
        self._buffer += data
        chunks = []
        at = 0
        while len(self._buffer) - at >= CHUNK_HEAD.size:
            log_offset, size = CHUNK_HEAD.unpack_from(self._buffer, at)
            if log_offset < 0 or not 0 <= size <= self._max_body_bytes:
                raise HaError(
                    f"a chunk of {size} bytes for log offset {log_offset}; from offset 0 on, "
                    f"0 to {self._max_body_bytes} bytes are allowed"
                )
            end = at + CHUNK_HEAD.size + size
            if len(self._buffer) < end:
                break
            chunks.append(Chunk(log_offset, bytes(self._buffer[at + CHUNK_HEAD.size : end])))
            at = end
        del self._buffer[:at]
        return chunks


class ReportDecoder:
    """Decodes a slave's bytes, in any pieces: an optional token, then offsets."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._is_first = True
        self.token: bytes | None = None
        """The slave's token; None if it did not present one."""

    def feed(self, data: bytes) -> int | None:
        """The last offset that is complete now, None if there is none. Raises HaError for a number
        that is not an offset; earlier ones in the same piece would be outdated anyway."""
        self._buffer += data
        if self._is_first and not self._take_token():
            return None
        whole = len(self._buffer) // OFFSET.size * OFFSET.size
        if not whole:
            return None
        (log_offset,) = OFFSET.unpack_from(self._buffer, whole - OFFSET.size)
        del self._buffer[:whole]
        if log_offset < 0:
            raise HaError(f"a slave reports log offset {log_offset}, which is negative")
        return int(log_offset)

    def _take_token(self) -> bool:
        """Whether it is clear by now if the connection begins with a token."""
        if len(self._buffer) < OFFSET.size:
            return False
        if self._buffer[: OFFSET.size] == TOKEN_MAGIC:
            end = OFFSET.size + TOKEN_BYTES
            if len(self._buffer) < end:
                return False
            self.token = bytes(self._buffer[OFFSET.size : end])
            del self._buffer[:end]
        self._is_first = False
        return True
