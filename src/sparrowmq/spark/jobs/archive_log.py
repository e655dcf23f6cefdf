"""The log of an archive: which files it has, and how far its topics are archived.

    _log/archive.json                          which archive this is, and its newest commit
    _log/00000000000000000007.json             what commit 7 added and removed, and its offsets
    _log/00000000000000000050.snapshot.json    the full state after commit 50

A commit is one file that appears whole or not at all; it holds both files and offsets, so that they
cannot disagree. Readers use the files that the log names and see no half-done work.

Commits are numbered without gaps, and `archive.json` says how far they go. It is written after the
commit that it counts: one commit past it comes from a run that was killed in between, and a commit
that it counts but that is missing is lost. Then every read, write and deletion is refused: a file
that the lost commit named looks like one that was never finished.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeVar
from urllib.parse import unquote

from sparrowmq.spark.jobs.archive_files import ArchiveFiles
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.positions import Positions, from_json, to_json

T = TypeVar("T")

LOG = "_log"

IDENTITY = "archive.json"

SNAPSHOT_EVERY = 50
"""Commits between snapshots: reading the log opens at most this many small files."""

_TRIES = 5

_REMEDY = "Nothing is read, written or deleted; restore the file from a backup of the folder _log"

_COMMIT = re.compile(r"(\d{20})\.json")

_SNAPSHOT = re.compile(r"(\d{20})\.snapshot\.json")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which archive this is."""

    id: str
    version: int
    """The newest commit, or the one before it."""


class ArchiveLog:
    """Reads and writes the log. Raises JobError, with the file's name, if it is not intact."""

    def __init__(self, files: ArchiveFiles) -> None:
        self._files = files

    def exists(self) -> bool:
        """Whether there is a log, of any version."""
        names = self._files.names(LOG)
        return IDENTITY in names or bool(_numbered(_COMMIT, names) or _numbered(_SNAPSHOT, names))

    def identity(self) -> Identity | None:
        """Which archive this is; None if there is none, or it is older than archive ids."""
        try:
            return self._record(IDENTITY, lambda value: Identity(value["id"], value["version"]))
        except FileNotFoundError:
            return None

    def identify(self, archive_id: str, archive: Archive) -> None:
        """Record which archive this is, and how far its commits go."""
        self._files.replace(
            f"{LOG}/{IDENTITY}", encode_record({"id": archive_id, "version": archive.version})
        )

    def read(self) -> Archive:
        """The archive as of its newest commit; an empty one if there is none."""
        for _ in range(_TRIES):
            # Read before the names: a commit made meanwhile must not look like a lost one.
            identity = self.identity()
            names = self._files.names(LOG)
            try:
                return self._read(identity, names)
            except (JobError, FileNotFoundError):
                if names == self._files.names(LOG):
                    raise
                # A snapshot has just taken the place of commits.
        raise JobError(f"the log of {self._files.root} changes faster than it can be read")

    def _read(self, identity: Identity | None, names: list[str]) -> Archive:
        snapshots, commits = _numbered(_SNAPSHOT, names), _numbered(_COMMIT, names)
        if identity is None and commits:
            self._check_first_format(commits[max(commits)])
        archive = Archive()
        if snapshots:
            archive = self._record(snapshots[max(snapshots)], archive_from)
        newest = max([archive.version, *commits, identity.version if identity else 0])
        for version in range(archive.version + 1, newest + 1):
            if version not in commits:
                raise JobError(self._gap(version, newest))
            archive = self._record(commits[version], archive.after)
            if archive.version != version:
                raise JobError(
                    f"the content of {self._at(commits[version])} does not match its name"
                )
        return archive

    def _check_first_format(self, commit: str) -> None:
        """Only archives of the first format have no identity."""
        if self._record(commit, lambda value: int(value["format"])) > 1:
            raise JobError(
                f"{self._at(IDENTITY)} is missing, and without it there is no way to know whether"
                f" the newest commit is there. {_REMEDY}"
            )

    def _gap(self, version: int, newest: int) -> str:
        return (
            f"{self._at(_commit_name(version))} is missing, and the archive has commits up to"
            f" {newest}: files that it added cannot be told from unfinished ones. {_REMEDY}"
        )

    def _record(self, name: str, read: Callable[[dict[str, Any]], T]) -> T:
        data = self._files.read(f"{LOG}/{name}")
        try:
            return read(decode_record(data))
        except (KeyError, TypeError, AttributeError) as error:
            reason = f"is damaged: it is not a record of an archive ({error!r})"
        except ValueError as error:
            reason = str(error)
        raise JobError(f"{self._at(name)} {reason}. {_REMEDY}")

    def _at(self, name: str) -> str:
        folder = self._files.local_folder
        return f"{folder or self._files.root}/{LOG}/{name}"

    def append(self, archive: Archive, commit: dict[str, Any]) -> Archive:
        """Write the commit that follows `archive`. Raises JobError if another run was first."""
        version = commit["version"]
        if not self._files.create(f"{LOG}/{_commit_name(version)}", encode_record(commit)):
            raise JobError(
                f"another run has committed to {self._files.root}: only one may archive into it"
            )
        after = archive.after(commit)
        if version % SNAPSHOT_EVERY == 0:
            self._write_snapshot(after)
        return after

    def _write_snapshot(self, archive: Archive) -> None:
        name = f"{LOG}/{archive.version:020d}.snapshot.json"
        self._files.create(name, encode_record(snapshot_of(archive)))
        # Readers that started at the previous snapshot still find what follows it.
        names = self._files.names(LOG)
        for kind in (_COMMIT, _SNAPSHOT):
            for version, old in _numbered(kind, names).items():
                if version < archive.version - SNAPSHOT_EVERY:
                    self._files.delete(f"{LOG}/{old}")


def _numbered(kind: re.Pattern[str], names: list[str]) -> dict[int, str]:
    return {int(found[1]): name for name in names if (found := kind.fullmatch(name))}


def _commit_name(version: int) -> str:
    return f"{version:020d}.json"


# ---- what commits say, and how they are written down
#
#     {"format":2,"version":7,"atMs":…,"rows":…,"add":{…},"remove":[…],"drop":[…],"offsets":{…},
#      "check":"a1b2c3d4"}
#
# One line of JSON that ends with a checksum (CRC-32) of everything before it: a rename is atomic,
# but the bytes of a file may still be lost or damaged later, on a disk or by a copy. Readers ignore
# unknown keys, as releases without epochs ignore those in `offsets`; `format` grows only when an
# old reader would misunderstand something. Commits without `format` have the first format, which
# had no checksum.

FORMAT = 2


@dataclass(frozen=True, slots=True)
class Archive:
    """What an archive holds after some commit."""

    version: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """File sizes by name."""
    positions: Positions = field(default_factory=dict)
    """How far the topics are archived."""
    rows: int = 0
    removed: dict[str, int] = field(default_factory=dict)
    """Files that new readers no longer use, and since when (ms)."""

    def after(self, commit: dict[str, Any]) -> Archive:
        """The archive after one more commit."""
        gone = dict.fromkeys(commit["remove"], commit["atMs"])
        dropped = set(commit["drop"])
        files = {name: size for name, size in self.files.items() if name not in gone}
        removed = {name: at for name, at in self.removed.items() if name not in dropped}
        return Archive(
            commit["version"],
            files | commit["add"],
            self.positions | from_json(commit["offsets"]),
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
    positions: Positions | None = None,
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
        "offsets": to_json(positions or {}),
    }


def snapshot_of(archive: Archive) -> dict[str, Any]:
    """The full state after a commit, for a snapshot file."""
    return {
        "version": archive.version,
        "files": archive.files,
        "offsets": to_json(archive.positions),
        "rows": archive.rows,
        "removed": archive.removed,
    }


def archive_from(snapshot: dict[str, Any]) -> Archive:
    """Read what `snapshot_of` made. Raises KeyError for anything else."""
    return Archive(
        snapshot["version"],
        snapshot["files"],
        from_json(snapshot["offsets"]),
        snapshot["rows"],
        snapshot["removed"],
    )


def partition_of(name: str) -> tuple[str, date]:
    """Topic and day of a file, from the names of its folders."""
    topic, day, _ = name.split("/")
    return unquote(topic.removeprefix("topic=")), date.fromisoformat(day.removeprefix("date="))


def encode_record(value: dict[str, Any]) -> bytes:
    """A commit, a snapshot or an identity as stored in its file."""
    text = _text({"format": FORMAT, **value})
    return f'{text[:-1]},"check":"{zlib.crc32(text.encode()):08x}"}}'.encode()


def decode_record(data: bytes) -> dict[str, Any]:
    """Read what `encode_record` made. Raises ValueError if the file was cut short or is damaged."""
    if not data.rstrip().endswith(b"}"):
        raise ValueError(f"was cut short: its {len(data)} bytes have no end")
    try:
        value: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise ValueError(f"is damaged: it is not JSON ({error})") from error
    found = value.pop("check", None)
    if found is not None and found != (wanted := f"{zlib.crc32(_text(value).encode()):08x}"):
        raise ValueError(f"is damaged: its checksum is {found} and should be {wanted}")
    number = value.setdefault("format", 1)
    if number > FORMAT:
        raise ValueError(
            f"is of format {number}, and this version reads formats up to {FORMAT}: use the version"
            " of SparrowMQ that wrote it, or a newer one"
        )
    return value


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
