"""One small file that is replaced as a whole, durably, or not at all."""

import os
from pathlib import Path
from typing import Protocol


class DurableFile(Protocol):
    """What the key-value configuration needs of a file; tests have one in memory."""

    def read(self) -> bytes | None:
        """Its content, None if there is no file. Raises OSError."""
        ...

    def replace(self, data: bytes) -> None:
        """Return when the new content is durable. Raises OSError; the old one is kept then,
        unless it was the very last step that failed."""
        ...


class RealFile:
    """A file in the file system. Its directory is made when it is first written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes | None:
        """Its content, None if there is no file."""
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def replace(self, data: bytes) -> None:
        """Write a draft, sync it, put it in place of the file, sync the directory."""
        directory = self._path.parent
        directory.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_name(f"{self._path.name}.tmp")
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    # A name is durable when its directory is; only a descriptor can be synced.
    descriptor = os.open(directory, os.O_RDONLY)  # noqa: TID251 - directories have no other way
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
