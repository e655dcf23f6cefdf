"""The log of an archive: which files are in it, and up to where topics are archived.

    _log/00000000000000000007.json             what commit 7 added and removed, and its offsets
    _log/00000000000000000050.snapshot.json    all that holds after commit 50
    _staging/                                  files that no commit names yet
    topic=orders/date=2026-11-15/0000000007-0000.parquet

A commit is one file that appears whole or not at all; files and offsets are in the same one, so
that they cannot disagree. Readers take the files that the log names and see no half-done work.
"""

import json
from dataclasses import dataclass, field
from datetime import date
from typing import Any
from urllib.parse import unquote

from sparrowmq.spark.jobs.archive_files import ArchiveFiles
from sparrowmq.spark.jobs.errors import JobError
from sparrowmq.spark.offsets import Offsets, from_json, to_json

LOG = "_log"
SNAPSHOT_EVERY = 50
"""Commits: reading the log costs at most so many small files."""
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive holds after some commit."""

    version: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """Sizes by name."""
    offsets: Offsets = field(default_factory=dict)
    rows: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    """Files that no reader takes any more, and when (ms) that began."""

    def after(self, commit: dict[str, Any]) -> "Archive":
        """The same with one more commit."""
        gone = dict.fromkeys(commit["remove"], commit["atMs"])
        dropped = set(commit["drop"])
        files = {name: size for name, size in self.files.items() if name not in gone}
        removed = {name: at for name, at in self.removed.items() if name not in dropped}
        return Archive(
            commit["version"],
            files | commit["add"],
            self.offsets | from_json(commit["offsets"]),
            self.rows + commit["rows"],
            removed | gone,
        )


def commit_of(
    archive: Archive,
    at_ms: int,
    *,
    add: dict[str, int] | None = None,
    remove: list[str] | None = None,
    drop: list[str] | None = None,
    offsets: Offsets | None = None,
    rows: int = 0,
) -> dict[str, Any]:
    """The next commit."""
    return {
        "version": archive.version + 1,
        "atMs": at_ms,
        "rows": rows,
        "add": add or {},
        "remove": remove or [],
        "drop": drop or [],
        "offsets": to_json(offsets or {}),
    }


def partition_of(name: str) -> tuple[str, date]:
    """Topic and day of a file, as its folders tell."""
    topic, day, _ = name.split("/")
    return unquote(topic.removeprefix("topic=")), date.fromisoformat(day.removeprefix("date="))


class ArchiveLog:
    """Reads and writes the log."""

    def __init__(self, files: ArchiveFiles) -> None:
        self._files = files

    def read(self) -> Archive:
        """The archive as of its newest commit; an empty one where there is none."""
        for _ in range(_TRIES):
            names = self._files.names(LOG)
            try:
                return self._read(names)
            except Exception:  # the JVM's: a file that was just replaced by a snapshot
                if names == self._files.names(LOG):
                    raise
        raise JobError(f"the log of {self._files.root} changes faster than it can be read")

    def _read(self, names: list[str]) -> Archive:
        snapshots = [name for name in names if name.endswith(".snapshot.json")]
        archive = self._snapshot(snapshots[-1]) if snapshots else Archive()
        for name in names:
            if name.count(".") == 1 and name.endswith(".json") and _version(name) > archive.version:
                archive = archive.after(self._json(name))
                if archive.version != _version(name):
                    raise JobError(f"{self._files.path(LOG)}/{name} is not what its name says")
        return archive

    def _json(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._files.read(f"{LOG}/{name}"))
        return found

    def _snapshot(self, name: str) -> Archive:
        value = self._json(name)
        return Archive(**{**value, "offsets": from_json(value["offsets"])})

    def append(self, archive: Archive, commit: dict[str, Any]) -> Archive:
        """Write the commit that follows `archive`. Raises JobError where another run was first."""
        version = commit["version"]
        text = json.dumps(commit, separators=(",", ":")).encode()
        if not self._files.create(f"{LOG}/{version:020d}.json", text):
            raise JobError(
                f"another run has committed to {self._files.root}: only one may archive into it"
            )
        after = archive.after(commit)
        if version % SNAPSHOT_EVERY == 0:
            self._write_snapshot(after)
        return after

    def _write_snapshot(self, archive: Archive) -> None:
        value = {
            "version": archive.version,
            "files": archive.files,
            "offsets": to_json(archive.offsets),
            "rows": archive.rows,
            "removed": archive.removed,
        }
        name = f"{LOG}/{archive.version:020d}.snapshot.json"
        self._files.create(name, json.dumps(value, separators=(",", ":")).encode())
        # Readers that started at the snapshot before this one still find what follows it.
        for old in self._files.names(LOG):
            if _version(old) < archive.version - SNAPSHOT_EVERY:
                self._files.delete(f"{LOG}/{old}")


def _version(name: str) -> int:
    return int(name.split(".", 1)[0])
