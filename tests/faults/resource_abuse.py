"""Scorecard row 7: peers that take as many resources as they can, along with an honest client.

During the abuse the honest client has to be served, on its connection and on new ones, and
afterwards as well. The broker stays up, takes no more memory than the limits allow, and logs no
failure of its own. How long the loop stood still is reported for every case.
"""

import json
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import abuses
from tests.faults.abused_broker import Abused, abused_broker, allow_open_files
from tests.faults.hostile_input import tracebacks

MB = 1_000_000
STALL_MS = 50.0
"""The longest that the loop may stand still where it is watched."""
_HONEST_TURNS = 5


@dataclass(frozen=True)
class Size:
    """How much of something, the most memory that it may cost, and the broker's options."""

    count: int
    memory_mb: int
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Abuse:
    """A case: what is done, and how much of it."""

    act: Callable[[Abused], AbstractContextManager[None]]
    small: Size | None
    """None where only the full size says anything."""
    full: Size
    open_files: int | None = None
    """Of the broker, soft and hard."""
    is_survived_only: bool = False
    """Whether requests can only be refused meanwhile, not served."""
    may_log: str = ""
    """A failure that belongs to it, as the log names it."""


ABUSES: dict[str, Abuse] = {
    "silent connections": Abuse(
        abuses.silent_connections, Size(1_300, 48), Size(5_000, 64), open_files=1_024
    ),
    "abandoned connections": Abuse(
        abuses.abandoned_connections,
        Size(300, 32, ("--limit-first-frame", "1s")),
        Size(5_000, 64),
        open_files=6_000,
    ),
    "used up descriptors": Abuse(
        abuses.used_up_descriptors,
        *(Size(1_024, 32), Size(1_024, 32)),
        open_files=1_024,
        is_survived_only=True,
        may_log="oo many open files",
    ),
    "half frames": Abuse(
        abuses.half_frames, Size(8, 110, ("--limit-max-unfinished", "64MiB")), Size(40, 400)
    ),
    "trickling frames": Abuse(
        abuses.trickling_frames,
        Size(50, 32, ("--limit-whole-frame", "1s")),
        Size(500, 48, ("--limit-whole-frame", "10s")),
    ),
    "slow readers": Abuse(
        abuses.slow_readers, Size(40, 200, ("--limit-max-unread", "64MiB")), Size(200, 600)
    ),
    "deaf waiters": Abuse(
        abuses.deaf_waiters, Size(200, 64, ("--limit-max-unread", "32MiB")), Size(1_000, 600)
    ),
    "a huge heartbeat": Abuse(abuses.huge_heartbeat, Size(30, 32), Size(1_000, 48)),
    "full tables": Abuse(
        abuses.full_tables,
        Size(1_000, 32, ("--max-topics", "800", "--max-groups", "800")),
        Size(3_000, 64, ("--max-topics", "2000", "--max-groups", "2000")),
    ),
    "full tables by default": Abuse(abuses.full_tables, None, Size(10_500, 128)),
    "parked pulls": Abuse(
        abuses.parked_pulls,
        Size(3_000, 48, ("--max-waiting-pulls", "2000")),
        Size(101_000, 300),
    ),
    "connection churn": Abuse(abuses.connection_churn, Size(300, 32), Size(20_000, 32)),
}


@dataclass
class AbuseResult:
    """What came of it."""

    name: str
    size: int
    grown_bytes: int = 0
    stall_ms: float = 0.0
    """The longest callback, as far as it was our own fault; 0 below 10 ms or not watched."""
    stalled_in: str = ""
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        found = "; ".join(self.problems) or "honest clients were served"
        return (
            f"{self.name} × {self.size}: memory {self.grown_bytes / MB:+.0f} MB,"
            f" loop ≤ {self.stall_ms:.0f} ms, {found}"
        )


def abuse_broker(
    name: str, *, small: bool, is_watched: bool = False, is_planted: bool = False
) -> AbuseResult:
    """Run a case. `is_planted` leaves out the options that make its limits small.

    `is_watched` times the callbacks of asyncio's own loop; its memory, which is not the one of
    production, is not judged.
    """
    case = ABUSES[name]
    size = case.small if small and case.small is not None else case.full
    allow_open_files(size.count + 500)
    result = AbuseResult(name, size.count)
    with tempfile.TemporaryDirectory() as directory:
        stalls = Path(directory) / "stalls" if is_watched else None
        options = () if is_planted else size.options
        with abused_broker(size.count, options, case.open_files, stalls) as abused:
            try:
                _abuse(case, abused, result, stalls)
            except (OSError, AssertionError) as error:
                result.problems.append(f"an honest client was not served: {error!r}")
            _look_at_the_end(abused, case, result)
    if not is_watched and result.grown_bytes > size.memory_mb * MB:
        result.problems.append(f"{size.memory_mb} MB were allowed")
    if result.stall_ms > STALL_MS:
        result.problems.append(f"the loop stood still in {result.stalled_in}")
    return result


def _abuse(case: Abuse, abused: Abused, result: AbuseResult, stalls: Path | None) -> None:
    abused.honest.turn()
    abused.honest.turn(freshly=True)
    before_stalls = _lines(stalls)  # of the start
    before = abused.broker.memory_bytes()
    with case.act(abused):
        for _ in range(0 if case.is_survived_only else _HONEST_TURNS):
            abused.honest.turn()
            abused.honest.turn(freshly=True)
        result.grown_bytes = abused.broker.memory_bytes() - before
    for _ in range(_HONEST_TURNS):
        abused.honest.turn()
        abused.honest.turn(freshly=True)
    _note_longest_stall(_lines(stalls)[len(before_stalls) :], result)


def _look_at_the_end(abused: Abused, case: Abuse, result: AbuseResult) -> None:
    code = abused.broker.stop() if abused.broker.is_running else abused.broker.process.wait()
    log = abused.broker.log.read_text(errors="replace")
    if code:
        result.problems.append(f"the broker ended with {code}: {log[-1500:]}")
    for text, count in tracebacks(log).items():
        if not case.may_log or case.may_log not in text:
            result.problems.append(f"{count} × in the log: {text}")


def _lines(stalls: Path | None) -> list[str]:
    return stalls.read_text().splitlines() if stalls is not None and stalls.exists() else []


def _note_longest_stall(lines: list[str], result: AbuseResult) -> None:
    for stall in map(json.loads, lines):
        own_ms = stall["wall_ms"] - stall["unscheduled_ms"]
        if own_ms > result.stall_ms:
            result.stall_ms, result.stalled_in = own_ms, " < ".join(stall["stack"][-3:][::-1])
