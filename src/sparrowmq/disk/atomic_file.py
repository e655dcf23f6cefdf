"""Files that are replaced as a whole, durably: after a failure, the old content or the new one.

```
write name.tmp, sync it → (name becomes name.bak) → name.tmp becomes name → sync the directory
```

Each step guards against one failure. Writing to another file keeps the old content through a full
disk and a crash halfway. Syncing before the rename matters because file systems may make a name
durable before the bytes it refers to: the file would be empty after a power cut. Without the last
sync the new name itself can be lost, after the caller has acted on it.

Every file of the project that is replaced as a whole goes through here.
"""

import contextlib
import errno
import os
from pathlib import Path

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskError, DiskFull
from sparrowmq.disk.real_disk import RealDisk


class AtomicFile:
    """One such file. With `keeps_backup` the previous content stays as `path.bak`."""

    def __init__(
        self, disk: Disk, path: str, *, keeps_backup: bool = False, draft_suffix: str = ".tmp"
    ) -> None:
        self.path = path
        self.backup_path = f"{path}.bak"
        self._disk = disk
        self._keeps_backup = keeps_backup
        self._draft_path = f"{path}{draft_suffix}"

    def read(self) -> bytes | None:
        """Its content, None if there is no such file. Raises OSError."""
        return read_file(self._disk, self.path)

    def replace(self, data: bytes) -> None:
        """Return when the new content is durable; creates the directory if it is missing.

        Raises DiskFull or OSError. The old content is then kept, unless the very last step failed:
        by then the new content is in place, and a power cut decides which one stays.
        """
        disk, directory = self._disk, parent_of(self.path)
        make_dir(disk, directory)
        try:
            self._write_draft(data)
            self._put_in_place()
        except (OSError, DiskError):
            # If even this fails, the next replacement removes the draft.
            with contextlib.suppress(OSError, DiskError):
                disk.unlink(self._draft_path)
            raise
        disk.sync_dir(directory)

    def _write_draft(self, data: bytes) -> None:
        self._disk.unlink(self._draft_path)  # what a crash left may be longer than `data`
        file = self._disk.open(self._draft_path, create=True)
        try:
            if data:
                file.write(0, data)
            file.sync()
        finally:
            file.close()

    def _put_in_place(self) -> None:
        disk = self._disk
        has_backup = self._keeps_backup and disk.exists(self.path)
        if has_backup:
            disk.replace(self.path, self.backup_path)
        try:
            disk.replace(self._draft_path, self.path)
        except (OSError, DiskError):
            if has_backup:
                with contextlib.suppress(OSError, DiskError):
                    disk.replace(self.backup_path, self.path)
            raise


def replace_path(
    path: Path, data: bytes, *, keeps_backup: bool = False, draft_suffix: str = ".tmp"
) -> None:
    """`AtomicFile.replace` for programs without a Disk. Raises OSError, also for a full disk."""
    disk, name = disk_and_path(path)
    try:
        AtomicFile(disk, name, keeps_backup=keeps_backup, draft_suffix=draft_suffix).replace(data)
    except DiskFull as error:
        raise OSError(errno.ENOSPC, str(error), str(path)) from error


def put_in_place(draft: Path, path: Path) -> None:
    """Give a finished draft its name, durably: sync it, rename it, sync the directory. For files
    that are written piece by piece. Raises OSError."""
    sync_path(draft)
    draft.replace(path)
    sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Wait until the content of a file, whichever process wrote it, or the names in a directory are
    on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_path(path: Path) -> None:
    """Make a directory and its parents, durably; does nothing if it exists. Raises OSError."""
    make_dir(*disk_and_path(path))


def disk_and_path(path: Path) -> tuple[RealDisk, str]:
    """A disk for the whole machine, and the file's path on it.

    Its root exists, so that every directory that has to be created lies below it, and its name can
    be made durable.
    """
    path = path.absolute()
    return RealDisk(Path(path.anchor)), path.relative_to(path.anchor).as_posix()


def read_file(disk: Disk, path: str) -> bytes | None:
    """The content of a file, None if there is none. Raises OSError."""
    try:
        file = disk.open(path, write=False)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def make_dir(disk: Disk, path: str) -> None:
    """Make a directory and its parents, durably; does nothing if it exists."""
    if not path or disk.exists(path):
        return
    parent = parent_of(path)
    make_dir(disk, parent)
    disk.mkdir(path)
    disk.sync_dir(parent)


def parent_of(path: str) -> str:
    """The directory that a path lies in; the root's is the empty path."""
    return path.rpartition("/")[0]
