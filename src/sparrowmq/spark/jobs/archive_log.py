"""The log of an archive: which files are in it, and up to where topics are archived.

    _log/archive.json                          which archive this is, and its newest commit
    _log/00000000000000000007.json             what commit 7 added and removed, and its offsets
    _log/00000000000000000050.snapshot.json    all that holds after commit 50

A commit is one file that appears whole or not at all; files and offsets are in the same one, so
that they cannot disagree. Readers take the files that the log names and see no half-done work.

Commits are numbered without gaps, and `archive.json` says how far they go. It is written after the
commit it speaks of: a commit beyond it is that of a run that was killed in between, and a commit it
speaks of that is not there is lost. Then nobody reads, writes or deletes anything.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sparrowmq.spark.jobs.archive_commits import (
    Archive,
    archive_from,
    decode_record,
    encode_record,
    snapshot_of,
)
from sparrowmq.spark.jobs.archive_files import ArchiveFiles
from sparrowmq.spark.jobs.errors import JobError

T = TypeVar("T")

LOG = "_log"
IDENTITY = "archive.json"
SNAPSHOT_EVERY = 50
"""Commits: reading the log costs at most so many small files."""
_TRIES = 5
_REMEDY = (
    "Nothing is read, written or deleted; bring the file back, from a backup of the folder _log"
)
_COMMIT = re.compile(r"(\d{20})\.json")
_SNAPSHOT = re.compile(r"(\d{20})\.snapshot\.json")


@dataclass(frozen=True, slots=True)
class Identity:
    """Which archive this is."""

    id: str
    version: int
    """The newest commit, or the one before it."""


class ArchiveLog:
    """Reads and writes the log. Raises JobError, with the file's name, where it is not whole."""

    def __init__(self, files: ArchiveFiles) -> None:
        self._files = files

    def exists(self) -> bool:
        """Whether there is a log, of whatever version."""
        names = self._files.names(LOG)
        return IDENTITY in names or bool(_numbered(_COMMIT, names) or _numbered(_SNAPSHOT, names))

    def identity(self) -> Identity | None:
        """Which archive this is; None for none, and for one from before archives had ids."""
        try:
            return self._record(IDENTITY, lambda value: Identity(value["id"], value["version"]))
        except FileNotFoundError:
            return None

    def identify(self, archive_id: str, archive: Archive) -> None:
        """Say which archive this is, and that its commits go so far."""
        self._files.replace(
            f"{LOG}/{IDENTITY}", encode_record({"id": archive_id, "version": archive.version})
        )

    def read(self) -> Archive:
        """The archive as of its newest commit; an empty one where there is none."""
        for _ in range(_TRIES):
            # Before the names: a commit that is made meanwhile must not look like a lost one.
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
                raise JobError(f"{self._at(commits[version])} is not what its name says")
        return archive

    def _check_first_format(self, commit: str) -> None:
        """Only archives of the first format have no identity."""
        if self._record(commit, lambda value: int(value["format"])) > 1:
            raise JobError(
                f"{self._at(IDENTITY)} is missing, and without it nobody knows whether the newest"
                f" commit is there. {_REMEDY}"
            )

    def _gap(self, version: int, newest: int) -> str:
        return (
            f"{self._at(_commit_name(version))} is missing, and the archive has commits up to"
            f" {newest}: what it added cannot be told from what was never finished. {_REMEDY}"
        )

    def _record(self, name: str, read: Callable[[dict[str, Any]], T]) -> T:
        data = self._files.read(f"{LOG}/{name}")
        try:
            return read(decode_record(data))
        except (KeyError, TypeError, AttributeError) as error:
            reason = f"is damaged: it is no record of an archive ({error!r})"
        except ValueError as error:
            reason = str(error)
        raise JobError(f"{self._at(name)} {reason}. {_REMEDY}")

    def _at(self, name: str) -> str:
        folder = self._files.local_folder
        return f"{folder or self._files.root}/{LOG}/{name}"

    def append(self, archive: Archive, commit: dict[str, Any]) -> Archive:
        """Write the commit that follows `archive`. Raises JobError where another run was first."""
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
        # Readers that started at the snapshot before this one still find what follows it.
        names = self._files.names(LOG)
        for kind in (_COMMIT, _SNAPSHOT):
            for version, old in _numbered(kind, names).items():
                if version < archive.version - SNAPSHOT_EVERY:
                    self._files.delete(f"{LOG}/{old}")


def _numbered(kind: re.Pattern[str], names: list[str]) -> dict[int, str]:
    return {int(found[1]): name for name in names if (found := kind.fullmatch(name))}


def _commit_name(version: int) -> str:
    return f"{version:020d}.json"
