"""The folder of an archive, opened for writing, and which of its files belong to the archive.

    _staging/0000000007-1a2b3c4d-5e6f7a8b/                   files that no commit names yet
    topic=orders/date=2026-11-15/0000000007-1a2b3c4d-5e6f7a8b-0000.parquet

An archive begins in an empty folder and is identified by its id from then on. The names of what it
writes begin with a mark: the number of the commit it is for, the archive's id, and the run's. A
marked file or folder that the log does not name is left over from a run that died. It is deleted
only when that is certain: another run made the commit of its number, or no other run can be at
work. Everything else in the folder belongs to others and stays.
"""

import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from sparrowmq.spark.errors import few_of
from sparrowmq.spark.jobs.archive_files import ArchiveFiles
from sparrowmq.spark.jobs.archive_log import IDENTITY, LOG, ArchiveLog
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.jobs.journal import LOCK, FolderLock

STAGING = "_staging"
_MARK = re.compile(r"(\d{10})-([0-9a-f]{8})-([0-9a-f]{8})")


@dataclass(frozen=True, slots=True)
class ArchiveMark:
    """Marks what an archive wrote."""

    version: int
    """The number of the commit that will name it."""
    archive_id: str
    run: str

    def __str__(self) -> str:
        return f"{self.version:010d}-{self.archive_id}-{self.run}"


def mark_of(name: str) -> ArchiveMark | None:
    """The mark at the beginning of a name."""
    found = _MARK.match(name.rpartition("/")[2])
    return ArchiveMark(int(found[1]), found[2], found[3]) if found else None


class ArchiveFolder:
    """An archive that one run writes to; `opened_folder` creates it."""

    def __init__(self, files: ArchiveFiles, *, is_alone: bool) -> None:
        self.files = files
        self.log = ArchiveLog(files)
        self._is_alone = is_alone
        self._run = _new_id()
        self.archive = self.log.read()
        found = self.log.identity()
        self._is_identified = found is not None and found.version == self.archive.version
        self._id = _new_id() if found is None else found.id
        self._clean()

    def _identify(self) -> None:
        """Give the archive its id. Called before the first file or commit: a refused run leaves
        nothing behind."""
        if not self._is_identified:
            self.log.identify(self._id, self.archive)
            self._is_identified = True

    def _clean(self) -> None:
        """Delete what dead runs have left."""
        named = self.archive.files.keys() | self.archive.removed.keys()
        for name in self.files.data_files().keys() - named:
            if not name.startswith("_") and self._is_left(name):
                self.files.delete(name)
        for name in self.files.names(STAGING):
            if self._is_left(name):
                self.files.delete(f"{STAGING}/{name}")

    def _is_left(self, name: str) -> bool:
        mark = mark_of(name)
        if mark is None or mark.archive_id != self._id:
            return False
        return self._is_alone or mark.version <= self.archive.version

    def _mark(self) -> ArchiveMark:
        return ArchiveMark(self.archive.version + 1, self._id, self._run)

    def stage(self) -> str:
        """Where to write the files of the next commit. Makes the folder an archive."""
        self._identify()
        return self._staging

    @property
    def _staging(self) -> str:
        return f"{STAGING}/{self._mark()}"

    def settle(self, folder: str = "") -> dict[str, int]:
        """Move staged files to their final names. Returns their sizes by name.

        They keep the folders they are staged in, or all go to `folder`.
        """
        staging = self._staging
        moves: dict[str, str] = {}
        added: dict[str, int] = {}
        for number, (name, size) in enumerate(self.files.data_files(staging).items()):
            into = folder or name.rpartition("/")[0]
            target = f"{into}/{self._mark()}-{number:04d}.parquet"
            moves[f"{staging}/{name}"] = target
            added[target] = size
        self.files.move(moves)
        self.files.delete(staging)
        return added

    def commit(self, commit: dict[str, Any]) -> None:
        """Make the next commit. Raises JobError if another run was first."""
        self._identify()
        self.archive = self.log.append(self.archive, commit)
        self.log.identify(self._id, self.archive)


@contextmanager
def opened_folder(files: ArchiveFiles) -> Iterator[ArchiveFolder]:
    """An archive that this run writes to, alone on this machine.

    Raises JobError if the folder belongs to something else, or the log is not intact.
    """
    # Before locking, which would leave a file in a folder that is not ours.
    check_folder(files)
    with ExitStack() as stack:
        folder = files.local_folder
        if folder is not None:
            stack.enter_context(FolderLock(folder, "this archive"))
            check_folder(files)
        yield ArchiveFolder(files, is_alone=folder is not None)


def check_data(files: ArchiveFiles, sizes: Mapping[str, int]) -> None:
    """Raises JobError for a data file that is missing, or not as long as its commit says.

    Spark would fail as well, but with a stack trace, and in the middle of the work.
    """
    for folder in sorted({name.rpartition("/")[0] for name in sizes}):
        there = {f"{folder}/{name}": size for name, size in files.data_files(folder).items()}
        for name, size in sizes.items():
            if name.startswith(f"{folder}/") and there.get(name) != size:
                state = f"has {there[name]:,} bytes" if name in there else "is missing"
                raise JobError(
                    f"{files.local_folder or files.root}/{name} {state}, and the archive's log says"
                    f" {size:,} bytes: restore it from a backup"
                )


def check_folder(files: ArchiveFiles) -> None:
    """Raises JobError for a folder that is neither empty nor an archive."""
    there = [name for name in files.names() if name != LOCK]
    if there == [LOG] and _was_just_begun(files):
        there = []
    if ArchiveLog(files).exists() or not (there or _is_foreign_lock(files)):
        return
    raise JobError(
        f"{files.local_folder or files.root} is not empty and not an archive (it has no"
        f" {LOG}/{IDENTITY}): there is {few_of(there or [LOCK])}. Nothing was changed."
        " An archive begins in an empty folder or a new one: name another with --to"
    )


def _was_just_begun(files: ArchiveFiles) -> bool:
    """Whether a run was killed while it began an archive: it leaves an empty log, or one draft."""
    return all(
        name.startswith(IDENTITY) and name.endswith(".unfinished") for name in files.names(LOG)
    )


def _is_foreign_lock(files: ArchiveFiles) -> bool:
    """Whether a lock file is not ours, which is empty."""
    return LOCK in files.names() and files.read(LOCK) != b""


def _new_id() -> str:
    return uuid.uuid4().hex[:8]
