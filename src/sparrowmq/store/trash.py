"""Trash: deleted files are moved away at once, and a worker frees their space later.

Freeing a log file of 1 GiB or the thousand files of a wide topic takes a file system tens of
milliseconds to seconds, during which a broker's loop would be blocked. A rename takes microseconds.
So the writer only moves deleted files into the trash directory, and `empty`, which any thread may
call, removes what is there.

A power cut may undo the rename, as it may undo the removal of a name whose directory was not
synced; recovery expects both. The next `empty` removes what a crash leaves here.

Everything that a store deletes has a number for a name: log, queue and index files, directories of
queues, and what lies in the trash. Files of others that were put beside them are not deleted; those
in the directory of a topic stay in the trash, in `<number>/`.
"""

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.layout import TRASH_DIR


class Trash:
    """Where an open store puts files that it deletes while it serves."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        left = [int(name) for name in disk.listdir(TRASH_DIR) if _is_number(name)]
        self._next = max(left, default=-1) + 1
        self.is_filled = bool(left)
        """Whether there is something for `empty` to do, from this run or the last one."""

    def put(self, path: str) -> None:
        """Delete a file, or a directory with everything in it; a missing one is fine."""
        if not self._disk.exists(path):
            return
        try:
            self._disk.mkdir(TRASH_DIR)
            self._disk.replace(path, f"{TRASH_DIR}/{self._next}")
            self._next += 1
            self.is_filled = True
        except DiskFull:  # the name in the other directory may need a new block
            _remove_numbered(self._disk, path)

    def empty(self) -> None:
        """Free the space; it may take seconds. Two threads may do it at once. Raises OSError."""
        self.is_filled = False  # first: the loop below may miss what is put here from now on
        for name in self._disk.listdir(TRASH_DIR):
            if _is_number(name):
                _remove_numbered(self._disk, f"{TRASH_DIR}/{name}")


def _remove_numbered(disk: Disk, path: str) -> None:
    """Remove a file, or a directory and all in it that has a number for a name."""
    for name in disk.listdir(path):
        if _is_number(name):
            _remove_numbered(disk, f"{path}/{name}")
    disk.rmdir(path)
    if disk.exists(path) and not disk.listdir(path):
        disk.unlink(path)


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdigit()


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a file, or a directory with everything in it."""
    for name in disk.listdir(path):
        remove_tree(disk, f"{path}/{name}")
    disk.rmdir(path)
    if disk.exists(path):
        disk.unlink(path)
