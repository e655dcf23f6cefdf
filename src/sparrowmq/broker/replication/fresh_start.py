"""Starting over with an empty log: a slave was away for so long that its master no longer has what
comes next. The slave's old store is kept aside, never deleted.

The request is a file, because files can only be moved while no store is open: the broker stops, and
its next start moves everything before it opens anything.
"""

from itertools import count

from sparrowmq.disk.atomic_file import AtomicFile, read_file
from sparrowmq.disk.disk import Disk
from sparrowmq.store.layout import (
    ABORT,
    CHECKPOINT,
    CONFIG_DIR,
    INDEX_DIR,
    LOG_DIR,
    OWN_DIR,
    QUEUE_DIR,
)

WISH = "start-anew"
_MOVED = (LOG_DIR, QUEUE_DIR, INDEX_DIR, CONFIG_DIR, OWN_DIR, CHECKPOINT, ABORT)


def ask_for_new_start(disk: Disk) -> str:
    """Make the next start begin with an empty store; returns the directory for the old one.

    Durable when this returns. Raises DiskFull, or OSError.
    """
    aside = next(path for number in count(1) if not disk.exists(path := f"aside-{number}"))
    AtomicFile(disk, WISH).replace(aside.encode())
    return aside


def set_store_aside(disk: Disk) -> str | None:
    """Move the whole store away if that was requested; returns the directory it is in now.

    The next call completes a move that a crash interrupted. Raises OSError.
    """
    wish = read_file(disk, WISH)
    if wish is None:
        return None
    aside = wish.decode()
    disk.mkdir(aside)
    disk.sync_dir("")
    for name in _MOVED:
        if disk.exists(name):
            disk.replace(name, f"{aside}/{name}")
    disk.sync_dir(aside)
    disk.unlink(WISH)
    disk.sync_dir("")
    return aside
