"""What a job has to remember over a kill -9: one JSON file, replaced as a whole.

    with Journal(directory / "drain-orders-billing") as journal:
        plan = journal.read()              # None the first time
        journal.write({...})

One run at a time: the lock ends with the process that holds it, however that ends.
"""

import fcntl
import json
import os
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sparrowmq.spark.jobs.errors import JobError


class FolderLock:
    """Keeps other runs on this machine out of a folder, which it makes."""

    def __init__(self, folder: Path, what: str) -> None:
        self._folder = folder
        self._what = what
        self._file: TextIOWrapper | None = None

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._file = (self._folder / "_lock").open("w")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            text = f"another run works on {self._what} ({self._folder}); wait for its end"
            raise JobError(text) from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not None:
            self._file.close()


class Journal(FolderLock):
    """A folder with the memory of one job."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "this job")
        self.path = folder / "journal.json"

    def read(self) -> dict[str, Any] | None:
        """What was written last, None where nothing was."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            found: dict[str, Any] = json.loads(text)
        except ValueError as error:
            text = f"{self.path} is no journal of a job ({error}); look at it, then remove it"
            raise JobError(text) from error
        return found

    def write(self, value: dict[str, Any]) -> None:
        """Replace it; on the disk when this returns."""
        new = self.path.with_suffix(".new")
        with new.open("w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def put_aside(self) -> Path | None:
        """Keep it under another name, so that the next run begins anew."""
        if not self.path.exists():
            return None
        number = 1 + sum(1 for _ in self.path.parent.glob("journal-*.json"))
        return self.path.rename(self.path.with_name(f"journal-{number}.json"))
