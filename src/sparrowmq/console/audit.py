"""The audit log: one line for every change that was made, or tried, through the console."""

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparrowmq.clock import Clock

SHOWN = 1_000
_MOST_TEXT = 4_000
"""Characters of a field: a form may have a million."""
_ROLL_BYTES = 4 * 1024 * 1024


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
    """The last lines in memory, and all of them in a file. A full file moves aside once."""

    def __init__(self, clock: Clock, path: Path | None) -> None:
        self._clock = clock
        self._path = path
        self._lines: deque[AuditLine] = deque(maxlen=SHOWN)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lines.extend(_read(path))

    @property
    def newest_first(self) -> list[AuditLine]:
        """What the page shows."""
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
        """Write a line; it is in the file when this returns."""
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
        if self._path.exists() and self._path.stat().st_size > _ROLL_BYTES:
            self._path.replace(self._path.with_suffix(".1.jsonl"))
        with self._path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}… ({len(text):,} characters)"


def _read(path: Path) -> list[AuditLine]:
    """The last lines of a file. A line that was cut by a crash is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_bytes().splitlines()[-SHOWN:]:
        try:
            found.append(msgspec.json.decode(line, type=AuditLine))
        except msgspec.DecodeError:
            continue
    return found
