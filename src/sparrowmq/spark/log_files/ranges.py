"""The log files of a store directory, and how they are cut into ranges that are read in parallel.

    file 0                                  file 1
    |rec|rec|rec  |rec|rec|  rec|rec|blank|  |rec|rec|rec|000000000|
    └─── range ───┘└─── range ────┘          └── range ──┘

A range begins where a record begins: at the first whole record at or after the desired cut, which
has to carry its own position and the right CRC. It ends where the next range begins, so that no
record is read twice or missed. Records appended after the cutting are not read: a task that Spark
repeats returns the same rows.

Standard library and numpy only: all of this may run on executors.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.log_files.record_check import next_record
from sparrowmq.store.layout import LOG_DIR, file_offset

_WINDOW = 4 * 1024 * 1024


class LogFileError(RocketMQError):
    """A store directory, or a file in it, cannot be read."""


@dataclass(frozen=True, slots=True)
class StoredLogFile:
    """One file of the log."""

    path: Path
    start: int
    """The log offset of its first byte."""
    size: int

    def read(self, log_offset: int, length: int) -> bytes:
        """Bytes of the file, fewer at its end. Raises LogFileError."""
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(log_offset - self.start)
                return file.read(length)
        except FileNotFoundError as error:
            raise LogFileError(
                f"{self.path} is gone: the broker deletes old files; read a copy of the store, or"
                " keep files longer (fileReservedTime)"
            ) from error
        except OSError as error:
            raise LogFileError(f"{self.path} cannot be read: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class LogRange:
    """The records that begin between two log offsets of one file."""

    file: StoredLogFile
    begin: int
    end: int
    is_last: bool
    """Whether the log ends here: unreadable bytes at its end are still being written."""
    sure: int = 0
    """Everything before this log offset is completely written, whatever follows."""


def log_files(directory: Path) -> list[StoredLogFile]:
    """The log files of a store, or of its directory commitlog. Raises LogFileError."""
    log = directory / LOG_DIR if (directory / LOG_DIR).is_dir() else directory
    try:
        names = sorted(entry.name for entry in log.iterdir() if entry.is_file())
    except OSError as error:
        raise LogFileError(f"{directory} cannot be read: {error.strerror}") from error
    starts = {name: start for name in names if (start := file_offset(name)) is not None}
    files = []
    for name, start in starts.items():
        with suppress(FileNotFoundError):  # deleted by retention since it was listed
            files.append(StoredLogFile(log / name, start, (log / name).stat().st_size))
    if not files and log is directory:
        raise LogFileError(
            f"{directory} is not a store: there is neither a directory {LOG_DIR} in it nor a log"
            " file such as 00000000000000000000"
        )
    return files


def log_ranges(files: list[StoredLogFile], max_bytes: int, sure: int = 0) -> list[LogRange]:
    """The log cut into ranges of about `max_bytes`."""
    ends = [file.start + file.size for file in files]
    # Brokers create files ahead of time: the log ends in the last one that has been written to.
    while ends and (end := _end_of_data(files[len(ends) - 1])) == files[len(ends) - 1].start:
        ends.pop()
    if ends:
        ends[-1] = end
    return [
        LogRange(file, begin, stop, is_last=stop == ends[-1], sure=sure)
        for file, file_end in zip(files, ends, strict=False)
        for begin, stop in pairwise([*_cuts(file, file_end, max_bytes), file_end])
    ]


def _cuts(file: StoredLogFile, end: int, max_bytes: int) -> Iterator[int]:
    """Where ranges begin, the first at the file's beginning."""
    yield file.start
    wanted = file.start + max_bytes
    while wanted < end:
        found = next_record(file.read, wanted, end)
        if found is None:
            return
        yield found
        wanted = found + max_bytes


def _end_of_data(file: StoredLogFile) -> int:
    """The log offset just past the last non-zero byte: files are allocated ahead of the log."""
    at = file.size
    while at > 0:
        begin = max(0, at - _WINDOW)
        used = np.flatnonzero(np.frombuffer(file.read(file.start + begin, at - begin), np.uint8))
        if len(used):
            return file.start + begin + int(used[-1]) + 1
        at = begin
    return file.start
