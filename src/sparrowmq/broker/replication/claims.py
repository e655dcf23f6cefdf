"""What a copy of the log says about itself, and whether a slave may follow a master.

The classic HA protocol names nobody and compares nothing: a slave of another cluster, or one whose
log parted from the master's long ago, would be fed bytes that do not continue its own. So a slave
says hello first, with its claim, and the master judges it.

```
master   |==== epoch 7 ====|==== epoch 9 =======|== epoch 12 =====▶
slave    |==== epoch 7 ====|==== epoch 9 ====|           goes on where it ends
slave    |==== epoch 7 ====|== epoch 8 ==|               parted where epoch 8 begins: refused
slave                                                    empty: begins with the master's first file
slave  ==|                                               ends before the master begins: starts anew
```

Epochs begin with every start of a master's store, so two logs with the same epochs up to a place
were one up to there, unless files were changed by hand. The checksum of the last bytes notices
that.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sparrowmq.protocol.body import Body

TAIL_BYTES = 64 * 1024


class EpochStart(Body, frozen=True):
    """An epoch, and the log offset where it began."""

    number: int
    start: int


class LogClaim(Body, frozen=True, kw_only=True):
    """A copy of a log, described by its owner."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    """host:port of the broker."""
    file_size: int
    """Of a log file. Copies of one log are cut into files at the same places."""
    begin: int
    end: int
    """Log offsets of the first byte and just past the last one; equal when the log is empty."""
    epochs: tuple[EpochStart, ...] = ()
    tail_start: int = 0
    tail_end: int = 0
    """The last bytes of the last record's file that belong to records."""
    tail_crc: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the log holds nothing."""
        return self.begin == self.end


ReadLog: TypeAlias = Callable[[int, int], bytes]
"""Reads so many bytes at a log offset; fewer where the log does not have them."""


def tail_range(file_size: int, begin: int, last_record_end: int) -> tuple[int, int]:
    """Which bytes the checksum of a log covers: up to 64 KiB, of one file, none after its records.

    What follows the last record of a file differs between copies, so it is left out.
    """
    if last_record_end <= begin:
        return begin, begin
    file_start = (last_record_end - 1) // file_size * file_size
    return max(begin, file_start, last_record_end - TAIL_BYTES), last_record_end


def tail_checksum(read: ReadLog, start: int, end: int) -> int | None:
    """CRC-32 of these bytes; None where the log does not have all of them."""
    data = read(start, end - start)
    return zlib.crc32(data) if len(data) == end - start else None


@dataclass(frozen=True, slots=True)
class Follow:
    """The slave may follow, from this log offset on."""

    start: int


@dataclass(frozen=True, slots=True)
class StartAnew:
    """The slave's log lies before everything the master has: it has to begin with an empty one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The slave must not follow."""

    reason: str


Verdict: TypeAlias = Follow | StartAnew | Refuse


def judge(master: LogClaim, slave: LogClaim, read: ReadLog) -> Verdict:
    """Whether a slave may follow; `read` reads the master's log."""
    if (fault := _identity_fault(master, slave)) is not None:
        return Refuse(fault)
    if slave.is_empty:
        return Follow(master.begin)
    if slave.end < master.begin:
        return StartAnew(
            f"the slave's log ends at {slave.end:,} and the master's begins at {master.begin:,}: "
            "what lies between has expired"
        )
    if (parted := _parted_at(master, slave)) is not None:
        return Refuse(
            f"the logs of {slave.address} and {master.address} are different from offset "
            f"{parted:,} on; to drop the slave's own end and follow, run there: "
            "sparrowmq store follow"
        )
    if slave.end > master.end:
        return Refuse(
            f"the slave's log ends at {slave.end:,}, past the master's end at {master.end:,}: "
            "it has messages that the master lost"
        )
    if tail_checksum(read, slave.tail_start, slave.tail_end) not in (slave.tail_crc, None):
        return Refuse(
            f"bytes {slave.tail_start:,} to {slave.tail_end:,} of the logs of {slave.address} and "
            f"{master.address} differ, though their history is the same; one of them is damaged: "
            "check both with sparrowmq store verify"
        )
    return Follow(slave.end)


def _identity_fault(master: LogClaim, slave: LogClaim) -> str | None:
    for what, own, theirs in (
        ("cluster", master.cluster, slave.cluster),
        ("broker name", master.broker_name, slave.broker_name),
        ("size of log files", master.file_size, slave.file_size),
    ):
        if own != theirs:
            return f"the slave's {what} is {theirs}, the master's is {own}; they must be equal"
    if slave.broker_id <= master.broker_id:
        return f"the slave's broker id is {slave.broker_id}, must be 1 or more"
    return None


def _parted_at(master: LogClaim, slave: LogClaim) -> int | None:
    """Where the histories part; None where the slave's is a part of the master's."""
    known = {epoch.number: epoch.start for epoch in master.epochs}
    oldest = master.epochs[0].number if master.epochs else 0
    for epoch in slave.epochs:
        is_forgotten = epoch.number < oldest
        has_bytes = epoch.start < slave.end
        if has_bytes and not is_forgotten and known.get(epoch.number) != epoch.start:
            return epoch.start
    last = slave.epochs[-1].number if slave.epochs else 0
    # The master may have begun an epoch before the slave's end without the slave knowing it.
    later = [epoch.start for epoch in master.epochs if epoch.number > last]
    return min(later) if later and min(later) < slave.end else None
