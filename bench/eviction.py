"""Evicts files from the page cache, so that the next read waits for the device."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LOG = "commitlog/*"
EVERYTHING = "*"


@contextmanager
def evicted(folder: Path) -> Iterator[None]:
    """Inside it, the log files below a folder are kept out of the page cache."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.2):
            evict(folder)

    evict(folder)
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def evict(folder: Path, which: str = LOG) -> None:
    """Drop pages of files; what is still dirty stays, and so does what a process has touched in a
    map of its own."""
    for path in folder.rglob(which):
        if not path.is_file():
            continue
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
