"""Which slaves may follow a master."""

import re
import zlib
from typing import Any

import msgspec
import pytest

from sparrowmq.broker.replication.claims import (
    Follow,
    LogClaim,
    Refuse,
    StartAnew,
    judge,
    tail_range,
)
from sparrowmq.store.epochs import LogStart

FILE = 1000
LOG = bytes(range(250)) * 20
"""The master's log has the offsets 1,000 to 5,000 of it."""
MASTER = LogClaim(
    cluster="c",
    broker_name="broker-a",
    broker_id=0,
    address="10.0.0.1:10911",
    file_size=FILE,
    begin=1000,
    end=5000,
    lineage=(LogStart(7, 1000), LogStart(9, 2500), LogStart(12, 4000)),
)


def read(start: int, size: int) -> bytes:
    return LOG[start : start + size] if start >= MASTER.begin else b""


def slave(begin: int = 1000, end: int = 3000, **changes: Any) -> LogClaim:
    """A slave with the master's bytes from `begin` to `end`."""
    start = max(begin, end - 64)
    claim = msgspec.structs.replace(
        MASTER,
        broker_id=1,
        address="10.0.0.2:10911",
        begin=begin,
        end=end,
        lineage=tuple(one for one in MASTER.lineage if one.start < end),
        tail_start=start,
        tail_end=end,
        tail_crc=zlib.crc32(LOG[start:end]),
    )
    return msgspec.structs.replace(claim, **changes)


@pytest.mark.parametrize(
    ("claim", "start"),
    [
        (slave(), 3000),
        (slave(end=5000), 5000),
        (slave(begin=2000, end=2600), 2600),
        (slave(begin=0, end=0, lineage=()), 1000),
        (slave(begin=0, end=1000, lineage=(LogStart(5, 0),)), 1000),
        (slave(end=2500), 2500),
    ],
    ids=["behind", "equal", "shorter", "empty", "expired tail", "at an epoch's start"],
)
def test_a_slave_with_the_masters_history_continues_at_its_own_end(
    claim: LogClaim, start: int
) -> None:
    assert judge(MASTER, claim, read) == Follow(start)


def test_a_slave_that_was_away_too_long_starts_over() -> None:
    verdict = judge(MASTER, slave(begin=0, end=999), read)
    assert isinstance(verdict, StartAnew)
    assert re.search("ends at 999 and the log of .* begins at 1,000", verdict.reason)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (
            slave(cluster="other"),
            "the cluster of 10.0.0.2:10911 is other, that of 10.0.0.1:10911 is c",
        ),
        (slave(broker_name="broker-b"), "broker name of .* is broker-b"),
        (slave(file_size=2000), "size of log files .* is 2000, that of .* is 1000"),
        (slave(broker_id=0), "has the broker id 0 and 10.0.0.1:10911 has 0"),
        (slave(end=6000), "ends at 6,000, past the end of 10.0.0.1:10911 at 5,000"),
        (slave(lineage=(LogStart(7, 1000), LogStart(8, 2600))), "differ from offset 2,500"),
        (slave(lineage=(LogStart(7, 1000), LogStart(9, 2600))), "differ from offset 2,500"),
        (slave(lineage=(LogStart(7, 1000),)), "differ from offset 2,500"),
        (slave(tail_crc=1), "bytes 2,936 to 3,000 .* differ"),
    ],
)
def test_a_slave_that_cannot_follow_learns_why(claim: LogClaim, said: str) -> None:
    verdict = judge(MASTER, claim, read)
    assert isinstance(verdict, Refuse)
    assert re.search(said, verdict.reason)


@pytest.mark.parametrize(
    ("begin", "last_record_end", "expected"),
    [
        (0, 0, (0, 0)),
        (0, 500, (0, 500)),
        (0, 1000, (0, 1000)),
        (0, 1400, (1000, 1400)),
        (1200, 1400, (1200, 1400)),
        (3000, 2900, (3000, 3000)),
    ],
)
def test_the_checksum_covers_records_of_one_file(
    begin: int, last_record_end: int, expected: tuple[int, int]
) -> None:
    assert tail_range(FILE, begin, last_record_end) == expected
