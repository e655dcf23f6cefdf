"""A file that replaces another one: written beside it and synced, so that a rename is enough."""

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskError


def write_draft(disk: Disk, path: str, data: bytes) -> str:
    """Write what is to become `path`; the path it has until then. Its directory is there.

    Raises DiskFull or OSError, leaving nothing behind.
    """
    draft = f"{path}.tmp"
    disk.unlink(draft)
    file = disk.open(draft, create=True)
    try:
        file.write(0, data)
        file.sync()
    except (OSError, DiskError):
        file.close()
        disk.unlink(draft)
        raise
    file.close()
    return draft
