"""Message ids.

    unique id   address 4 or 16 | process 2 | instance 4 | ms since the month began 4 | counter 2
    offset id   store address 4 or 16 | port 4 | offset in the commit log 8

Both in upper-case hex. The client creates the first and sends it as UNIQ_KEY; the second follows
from where the message is stored.
"""

from datetime import UTC, datetime, timedelta, tzinfo
from typing import NamedTuple, Self

from sparrowmq.clock import Clock
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.hosts import Address, decode_host, ip_text


class OffsetId(NamedTuple):
    """Where a message is stored."""

    store_host: Address
    log_offset: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an offset id. Raises BodyError if it is invalid."""
        data = _from_hex(text, "offset id")
        return cls(decode_host(data[:-8]), int.from_bytes(data[-8:], "big"))


def offset_id(store_host: bytes, log_offset: int) -> str:
    """The id of a message at `log_offset`; `store_host` as in a record."""
    return (store_host + log_offset.to_bytes(8, "big")).hex().upper()


class UniqueId(NamedTuple):
    """The parts of a unique id."""

    ip: str
    pid: int
    instance: int
    month_ms: int
    """Milliseconds since the beginning of the month, in the sender's time zone."""
    counter: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a unique id. Raises BodyError if it is invalid."""
        data = _from_hex(text, "unique id")
        numbers = (data[-12:-10], data[-10:-6], data[-6:-2], data[-2:])
        return cls(ip_text(data[:-12]), *(int.from_bytes(part, "big") for part in numbers))

    def near_time_ms(self, now_ms: int, tz: tzinfo = UTC) -> int:
        """When it was probably created: in the latest month in which that is not in the future."""
        start_ms, _ = month_around(now_ms, tz)
        if start_ms + self.month_ms >= now_ms:
            start_ms, _ = month_around(start_ms - 1, tz)
        return start_ms + self.month_ms


class UniqueIds:
    """Generates unique ids for one process.

    `instance` is any 32-bit number that distinguishes processes with the same address and pid: Java
    uses an object's hash; pass a random number.
    """

    __slots__ = ("_clock", "_counter", "_month_end_ms", "_month_start_ms", "_prefix", "_tz")

    def __init__(
        self, clock: Clock, *, ip: bytes, pid: int, instance: int, tz: tzinfo = UTC
    ) -> None:
        if len(ip) not in (4, 16):
            raise ValueError(f"an address of {len(ip)} bytes, must be 4 (IPv4) or 16 (IPv6)")
        self._clock = clock
        self._tz = tz
        self._counter = 0
        self._month_start_ms, self._month_end_ms = month_around(clock(), tz)
        self._prefix = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{instance & 0xFFFFFFFF:08X}"

    def next(self) -> str:
        """An id that no other call returns, in this or another process."""
        now_ms = self._clock()
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = month_around(now_ms, self._tz)
        counter = self._counter
        self._counter = counter + 1 & 0xFFFF
        return f"{self._prefix}{now_ms - self._month_start_ms:08X}{counter:04X}"


def month_around(now_ms: int, tz: tzinfo = UTC) -> tuple[int, int]:
    """Beginning and end, in ms, of the month that contains `now_ms`."""
    now = datetime.fromtimestamp(now_ms / 1000, tz)
    start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    end = (start + timedelta(days=32)).replace(day=1)
    return round(start.timestamp() * 1000), round(end.timestamp() * 1000)


def _from_hex(text: str, what: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in (16, 28) or len(text) != 2 * len(data):
        raise BodyError(f"{what} {text[:80]!r} is not 32 or 56 hex digits")
    return data
