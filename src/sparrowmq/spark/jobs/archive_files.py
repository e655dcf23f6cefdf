"""The files of an archive: what is asked of them, and how this machine's disk does it.

`archive_hadoop` does the same for every other file system that Hadoop reaches.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from sparrowmq.spark.jobs.durable_files import (
    make_folder,
    replace_file,
    sync_file,
    sync_folder,
)


class ArchiveFiles(Protocol):
    """Names are relative to the archive's root, with slashes. Hidden files are not listed."""

    @property
    def root(self) -> str:
        """What Spark reads and writes the archive by."""

    @property
    def local_folder(self) -> Path | None:
        """The root on this machine's disk, None for others."""

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; none where it does not exist."""

    def data_files(self, folder: str = "") -> dict[str, int]:
        """Sizes of all Parquet files below a folder, by their names in it."""

    def read(self, name: str) -> bytes:
        """All of a file. Raises FileNotFoundError."""

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, whole or not at all; False where there is one of that name already."""

    def replace(self, name: str, data: bytes) -> None:
        """Give a file this content; readers see the old or the new one."""

    def move(self, names: Mapping[str, str]) -> None:
        """Give data files new names; they and their content stay after a power cut."""

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing where there is none."""


class LocalFiles:
    """Files on this machine's disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def root(self) -> str:
        """What Spark reads and writes the archive by."""
        return f"file:{self._folder}"

    @property
    def local_folder(self) -> Path | None:
        """The root."""
        return self._folder

    def names(self, folder: str = "") -> list[str]:
        """The names in a folder, sorted; none where it does not exist."""
        try:
            found = [path.name for path in (self._folder / folder).iterdir()]
        except FileNotFoundError:
            return []
        return sorted(name for name in found if not name.startswith("."))

    def data_files(self, folder: str = "") -> dict[str, int]:
        """Sizes of all Parquet files below a folder, by their names in it."""
        base = self._folder / folder
        return {
            path.relative_to(base).as_posix(): path.stat().st_size
            for path in sorted(base.rglob("*.parquet"))
            if path.is_file() and not path.name.startswith(".")
        }

    def read(self, name: str) -> bytes:
        """All of a file. Raises FileNotFoundError."""
        return (self._folder / name).read_bytes()

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, whole or not at all; False where there is one of that name already.

        Only one run at a time writes here (`FolderLock`), so looking first is enough.
        """
        path = self._folder / name
        if path.exists():
            return False
        self.replace(name, data)
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Give a file this content; readers see the old or the new one."""
        path = self._folder / name
        make_folder(path.parent)
        replace_file(path, data)

    def move(self, names: Mapping[str, str]) -> None:
        """Give data files new names; they and their content stay after a power cut."""
        folders: set[Path] = set()
        for source, target in names.items():
            old, new = self._folder / source, self._folder / target
            sync_file(old)  # Spark has written it, and syncs nothing
            make_folder(new.parent)
            old.rename(new)
            folders.add(new.parent)
        for folder in sorted(folders):
            sync_folder(folder)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with all that is in it; nothing where there is none."""
        path = self._folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            return
        path.unlink(missing_ok=True)
        # Hadoop's check sum of it, from versions that moved files by Hadoop.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
