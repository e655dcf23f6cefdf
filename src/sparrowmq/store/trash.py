"""Trash: deleted files are moved away at once, and a worker frees their space later.

Freeing a log file of 1 GiB or the thousand files of a wide topic takes a file system tens of
milliseconds to seconds, during which a broker's loop would be blocked. A rename takes microseconds.
So the writer only moves deleted files into the trash directory, and `empty`, which any thread may
call, removes what is there.

A power cut may undo the rename, as it may undo the removal of a name whose directory was not
synced; recovery expects both. The next `empty` removes what a crash leaves here.
"""

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.layout import TRASH_DIR


class Trash:
    """Where an open store puts files that it deletes while it serves."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        left = disk.listdir(TRASH_DIR)
        self._next = max((int(name) for name in left if name.isdecimal()), default=-1) + 1
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
            remove_tree(self._disk, path)

    def empty(self) -> None:
        """Free the space; it may take seconds. Two threads may do it at once. Raises OSError."""
        self.is_filled = False  # first: the loop below may miss what is put here from now on
        for name in self._disk.listdir(TRASH_DIR):
            remove_tree(self._disk, f"{TRASH_DIR}/{name}")


def remove_tree(disk: Disk, path: str) -> None:
    """Remove a file, or a directory with everything in it."""
    for name in disk.listdir(path):
        remove_tree(disk, f"{path}/{name}")
    disk.rmdir(path)
    if disk.exists(path):
        disk.unlink(path)
