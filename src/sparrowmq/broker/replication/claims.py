"""Claims: how a broker describes its log, and whether a slave may follow a master.

The classic HA protocol neither identifies brokers nor compares logs: a slave of another cluster, or
one whose log diverged from the master's long ago, would be fed bytes that do not continue its own.
So a slave says hello first, with its claim, and the master judges it.

```
master   |==== epoch 7 ====|==== epoch 9 =======|== epoch 12 =====▶
slave    |==== epoch 7 ====|==== epoch 9 ====|           continues at its end
slave    |==== epoch 7 ====|== epoch 8 ==|               diverged where epoch 8 begins: refused
slave                                                    empty: begins with the master's first file
slave  ==|                                               ends before the master begins: starts over
```

Every start of a master begins an epoch, so two logs with the same starts up to a point were one
until there, unless files were changed by hand. The checksum of the last bytes detects that.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from sparrowmq.protocol.body import Body
from sparrowmq.store.epochs import LogStart

TAIL_BYTES = 64 * 1024


class LogClaim(Body, frozen=True, kw_only=True):
    """A description of a copy of a log, by its owner."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    """host:port of the broker."""
    file_size: int
    """Size of a log file. Copies of one log are split into files at the same offsets."""
    begin: int
    end: int
    """Log offsets of the first byte and just past the last one; equal when the log is empty."""
    lineage: tuple[LogStart, ...] = ()
    """Starts of masters, oldest first (`store/epochs.py`)."""
    tail_start: int = 0
    tail_end: int = 0
    """The checksum covers the last bytes of the last record's file that belong to records."""
    tail_crc: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the log holds nothing."""
        return self.begin == self.end

    def is_copy_of(self, cluster: str, broker_name: str) -> bool:
        """Whether this is a copy of that broker's log."""
        return (self.cluster, self.broker_name) == (cluster, broker_name)


ReadLog: TypeAlias = Callable[[int, int], bytes]
"""Reads bytes, given a log offset and a count; returns fewer if the log has fewer."""


def tail_range(file_size: int, begin: int, last_record_end: int) -> tuple[int, int]:
    """Which bytes the checksum of a log covers: up to 64 KiB of one file, none past its records.

    What follows the last record of a file differs between copies, so it is left out.
    """
    if last_record_end <= begin:
        return begin, begin
    file_start = (last_record_end - 1) // file_size * file_size
    return max(begin, file_start, last_record_end - TAIL_BYTES), last_record_end


def tail_checksum(read: ReadLog, start: int, end: int) -> int | None:
    """CRC-32 of these bytes; None if the log does not have all of them."""
    data = read(start, end - start)
    return zlib.crc32(data) if len(data) == end - start else None


@dataclass(frozen=True, slots=True)
class Follow:
    """The slave may follow, from this log offset on."""

    start: int


@dataclass(frozen=True, slots=True)
class StartAnew:
    """The slave's log ends before the master's begins: it has to start with an empty one."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """The slave must not follow."""

    reason: str


Verdict: TypeAlias = Follow | StartAnew | Refuse


def judge(source: LogClaim, follower: LogClaim, read: ReadLog) -> Verdict:
    """Whether a follower may copy the log of `source`, which `read` reads.

    The source is a master, or the slave of a returning master whose log has lost its end.
    """
    if (fault := identity_fault(source, follower)) is not None:
        return Refuse(fault)
    if follower.is_empty:
        return Follow(source.begin)
    if follower.end < source.begin:
        return StartAnew(
            f"the log of {follower.address} ends at {follower.end:,} and the log of"
            f" {source.address} begins at {source.begin:,}: what lies between has expired"
        )
    if (at := diverged_at(source, follower)) is not None:
        return Refuse(
            f"the logs of {follower.address} and {source.address} differ from offset {at:,} on;"
            f" to keep the end of {follower.address} aside and follow, stop it and run there:"
            " sparrowmq store follow"
        )
    if follower.end > source.end:
        return Refuse(
            f"the log of {follower.address} ends at {follower.end:,}, past the end of"
            f" {source.address} at {source.end:,}: it has messages that the other one lost;"
            " restart the master, which then copies them back"
        )
    if tail_checksum(read, follower.tail_start, follower.tail_end) not in (follower.tail_crc, None):
        return Refuse(
            f"bytes {follower.tail_start:,} to {follower.tail_end:,} of the logs of"
            f" {follower.address} and {source.address} differ, though their history is the same;"
            " one of them is damaged, or another broker's; check the master's with sparrowmq store"
            " verify, and if it is sound, start the slave with an empty directory"
        )
    return Follow(follower.end)


def identity_fault(source: LogClaim, follower: LogClaim) -> str | None:
    """Why these can never be copies of one log; None if they can."""
    for what, own, theirs in (
        ("cluster", source.cluster, follower.cluster),
        ("broker name", source.broker_name, follower.broker_name),
        ("size of log files (mappedFileSizeCommitLog)", source.file_size, follower.file_size),
    ):
        if own != theirs:
            return (
                f"the {what} of {follower.address} is {theirs}, that of {source.address} is {own};"
                " they must be equal"
            )
    if (source.broker_id == 0) == (follower.broker_id == 0):
        return (
            f"{follower.address} has the broker id {follower.broker_id} and {source.address} has"
            f" {source.broker_id}: a slave (1 or more) follows a master (0), and a master that"
            " comes back copies from a slave"
        )
    return None


def diverged_at(one: LogClaim, other: LogClaim) -> int | None:
    """The log offset at which two copies part; None if the longer continues the other."""
    if not one.lineage or not other.lineage:
        return None
    oldest = max(one.lineage[0].number, other.lineage[0].number)
    # Starts that only one of them has forgotten were common: they expired there.
    ours = [start for start in one.lineage if start.number >= oldest]
    theirs = [start for start in other.lineage if start.number >= oldest]
    common = 0
    while common < min(len(ours), len(theirs)) and ours[common] == theirs[common]:
        common += 1
    starts = [each[common].start for each in (ours, theirs) if len(each) > common]
    diverged = min(starts, default=None)
    return diverged if diverged is not None and diverged < min(one.end, other.end) else None
