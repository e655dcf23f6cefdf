"""The audit log: one line for every confirmed change, also for one that failed.

A form that comes back because of what was entered asked no broker for a change, and leaves none.
"""

import logging
import os
from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparrowmq.clock import Clock

SHOWN = 1_000
_MOST_TEXT = 4_000
"""Characters kept of a field: a form may have a million."""
ROLL_BYTES = 4 * 1024 * 1024
_ROLLED = ".1.jsonl"

log = logging.getLogger("sparrowmq.console")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditLine:
    """Who changed what, from what to what."""

    time_ms: int
    user: str
    address: str
    action: str
    target: str
    before: str
    after: str
    result: str
    cluster: str = ""


class Audit:
    """The last lines in memory, and all of them in a file. A full file is moved aside once."""

    def __init__(self, clock: Clock, path: Path | None) -> None:
        self._clock = clock
        self._path = path
        self._lines: deque[AuditLine] = deque(maxlen=SHOWN)
        self.unreadable = 0
        """How many lines of the file are malformed, such as one that a crash has cut short."""
        self.fault = ""
        """Why the file lacks changes made since the start."""
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            for each in (path.with_suffix(_ROLLED), path):
                lines, unreadable = _read(each)
                self._lines.extend(lines)
                self.unreadable += unreadable

    @property
    def newest_first(self) -> list[AuditLine]:
        """The lines, in the order in which the page shows them."""
        return list(reversed(self._lines))

    def record(
        self,
        *,
        user: str,
        address: str,
        action: str,
        target: str,
        before: str,
        after: str,
        result: str,
        cluster: str,
    ) -> None:
        """Write a line. It is in the file when this returns, unless `fault` says why not. The
        change was made all the same, and must not be reported as failed."""
        line = AuditLine(
            time_ms=self._clock(),
            user=user,
            address=address,
            action=action,
            target=_cut(target),
            before=_cut(before),
            after=_cut(after),
            result=_cut(result),
            cluster=cluster,
        )
        self._lines.append(line)
        if self._path is None:
            return
        try:
            _append(self._path, msgspec.json.encode(line) + b"\n")
        except OSError as error:
            self.fault = str(error)
            log.error("a line of the audit log could not be written: %s: %s", error, line)


def _append(path: Path, line: bytes) -> None:
    """Append a line on a new line: it must not continue one that a crash has cut short."""
    if path.exists() and path.stat().st_size > ROLL_BYTES:
        path.replace(path.with_suffix(_ROLLED))
    with path.open("ab+") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else b"\n" + line
        file.write(line)


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}… ({len(text):,} characters)"


def _read(path: Path) -> tuple[list[AuditLine], int]:
    """The last lines of a file, and how many of them are malformed."""
    if not path.is_file():
        return [], 0
    found = []
    lines = path.read_bytes().splitlines()[-SHOWN:]
    for line in lines:
        try:
            found.append(msgspec.json.decode(line, type=AuditLine))
        except msgspec.DecodeError:
            continue
    return found, len(lines) - len(found)
