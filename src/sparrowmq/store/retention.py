"""Which log files have to go: expired ones in the deletion hour, more when the disk fills up."""

from collections.abc import Sequence

import msgspec

from sparrowmq.store.config import StoreConfig

_HOUR_MS = 3_600_000
FILES_AT_ONCE = 10
"""Deleting a file of 1 GiB takes the file system a while (deleteFileBatchMax)."""


class LogFile(msgspec.Struct, frozen=True):
    """A log file and an upper bound of its messages' store times, None if it is not known."""

    start: int
    last_time: int | None


def is_deletion_hour(config: StoreConfig, now_ms: int) -> bool:
    """Whether it is the local hour in which expired files are deleted."""
    return (now_ms + config.utc_offset_ms) // _HOUR_MS % 24 == config.deletion_hour


def files_to_delete(
    config: StoreConfig,
    files: Sequence[LogFile],
    now_ms: int,
    used_ratio: float,
    *,
    any_hour: bool = False,
) -> list[int]:
    """Starts of the files to delete now, oldest first; `files` are all but the one written."""
    expired = []
    if any_hour or is_deletion_hour(config, now_ms) or used_ratio >= config.clean_ratio:
        for file in files:
            if file.last_time is None or now_ms - file.last_time <= config.retention_ms:
                break
            expired.append(file.start)
    if not expired and files and used_ratio >= config.force_clean_ratio:
        # One at a time: the caller looks at the disk again before the next.
        return [files[0].start]
    return expired[:FILES_AT_ONCE]


def refuses(config: StoreConfig, *, was_refusing: bool, used_ratio: float) -> bool:
    """Whether messages are refused: from the upper mark on, until the disk is below the lower."""
    limit = config.force_clean_ratio if was_refusing else config.refuse_ratio
    return used_ratio >= limit
