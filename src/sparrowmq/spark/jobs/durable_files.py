"""Files on this machine's disk that survive a power cut once a function here has returned.

A file is synced before it gets its name, and the folder afterwards: after a power cut, every name
that exists has its whole content.
"""

import os
from pathlib import Path

from sparrowmq.disk.atomic_file import disk_and_path, make_dir, replace_path


def sync_file(path: Path) -> None:
    """Wait until the content is on the disk, whichever process wrote it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    sync_file(path)


def make_folder(path: Path) -> None:
    """Create a folder and its parents; does nothing if it exists."""
    make_dir(*disk_and_path(path))


def replace_file(path: Path, data: bytes) -> None:
    """Give a file this content, whole or not at all. Archives recognise the drafts by name."""
    replace_path(path, data, draft_suffix=".unfinished")
