"""Files on this machine's disk that survive a power cut once a function here has returned.

A file is synced before it gets its name, and the folder afterwards: a name that is there after a
power cut always has the whole content.
"""

import os
from pathlib import Path


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
    """Make a folder and those above it; nothing where it exists."""
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    sync_folder(path.parent)


def replace_file(path: Path, data: bytes) -> None:
    """Give a file this content, whole or not at all."""
    write_draft(draft_of(path), data)
    draft_of(path).replace(path)
    sync_folder(path.parent)


def draft_of(path: Path) -> Path:
    """Where a file is written before it gets its name."""
    return path.with_name(f"{path.name}.unfinished")


def write_draft(draft: Path, data: bytes) -> None:
    """Write and sync a file that has no name of its own yet."""
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
