"""Sizes and times of a store; the defaults are RocketMQ's."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from sparrowmq.clock import Zone
from sparrowmq.config_fields import (
    Allowed,
    ConfigError,
    at_least,
    between,
    check_fields,
    setting,
)
from sparrowmq.protocol.delay import RETRY_DELAYS_MS

CONSUME_QUEUE_UNIT = 20
DISK_RATIOS = ("clean_ratio", "force_clean_ratio", "refuse_ratio")
"""Fields that are a share of the disk, in the order in which a filling disk reaches them."""
_HOUR_MS = 3_600_000
_MIB = 1024 * 1024
_TIME_ZONES = Allowed(
    "must be {} to {}",
    (-12 * _HOUR_MS, 14 * _HOUR_MS),
    "no time zone is further from UTC",
    lambda offset: offset is None or -12 * _HOUR_MS <= offset <= 14 * _HOUR_MS,
)
_SHARES = Allowed(
    "must be more than {} and at most {}", (0, 1), accepts=lambda share: 0 < share <= 1
)
_HOSTS = Allowed("must be 4 + 4 or 16 + 4 bytes", accepts=lambda host: len(host) in (8, 20))
_DELAYS = Allowed(
    "must be one time or more, each more than 0",
    accepts=lambda delays: min(delays, default=0) > 0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """What a store on disk looks like and how long it keeps messages. Validated when built."""

    log_file_size: int = setting(
        1024 * _MIB,
        "Size of a commit-log file (mappedFileSizeCommitLog). Apache's broker needs the same value"
        " to open this store.",
        at_least(1024),
    )
    queue_file_units: int = setting(
        300_000,
        "Units of 20 bytes in a consume-queue file (mappedFileSizeConsumeQueue / 20).",
        at_least(1),
    )
    index_slots: int = setting(
        5_000_000, "Hash slots of an index file (maxHashSlotNum).", at_least(1)
    )
    index_entries: int = setting(20_000_000, "Entries of an index file (maxIndexNum).", at_least(1))
    timer_log_size: int = setting(
        100 * _MIB,
        "Size of the timer log that a graceful shutdown writes for Apache's broker"
        " (mappedFileSizeTimerLog).",
        at_least(1),
    )
    reserve_bytes: int = setting(
        64 * _MIB,
        "How far ahead of the writer log space is allocated. Less means more work per mebibyte.",
        at_least(1),
    )

    record_crc: bool = setting(
        True,
        "Write Apache's CRC of the whole record as the last property and check it"
        " (enabledAppendPropCRC). It costs 20 bytes and 0.5 µs per message and shows consumers the"
        " system property __CRC32#; without it a flipped bit outside the body goes unnoticed.",
    )
    store_host: bytes = setting(
        b"\x7f\x00\x00\x01\x00\x00\x2a\x9f",
        "Address and port written into each record; offset message ids contain it.",
        _HOSTS,
    )
    delay_levels_ms: tuple[int, ...] = setting(
        RETRY_DELAYS_MS,
        "Delay of each level. A rebuilt queue of SCHEDULE_TOPIC_XXXX holds delivery times computed"
        " from it.",
        _DELAYS,
    )

    checkpoint_interval_ms: int = setting(
        5_000,
        "How often queues and index are made durable. Longer means a longer scan after a crash.",
        at_least(1),
    )
    checkpoint_bytes: int = setting(
        32 * _MIB,
        "Bytes of log after which queues and index are made durable before the interval is over.",
        at_least(1),
    )
    open_queue_files: int = setting(
        512,
        "Consume-queue files kept open at once; the others are opened when they are needed.",
        at_least(1),
    )

    retention_ms: int = setting(
        72 * _HOUR_MS,
        "Log files whose last message is older are deleted in the deletion hour"
        " (fileReservedTime).",
        at_least(1),
    )
    deletion_hour: int = setting(
        4,
        "Hour of the day, in the host's time zone, in which expired files are deleted"
        " (deleteWhen).",
        between(0, 23),
    )
    clean_ratio: float = setting(
        0.75,
        "Disk use from which expired files are deleted at any hour (diskMaxUsedSpaceRatio).",
        _SHARES,
    )
    force_clean_ratio: float = setting(
        0.85,
        "Disk use from which the oldest file is deleted although it has not expired; below it,"
        " refused writes resume (diskSpaceCleanForciblyRatio).",
        _SHARES,
    )
    refuse_ratio: float = setting(
        0.90, "Disk use from which messages are refused (diskSpaceWarningLevelRatio).", _SHARES
    )
    utc_offset_ms: int | None = setting(
        None,
        "A fixed offset from UTC instead of the host's time zone, for the deletion hour, the"
        " day of statistics and the names of index files.",
        _TIME_ZONES,
    )

    unsynced_window: int = setting(
        8_192,
        "Messages of a queue that consumers may read before they are synced. 0 delivers nothing"
        " before it is durable; the broker sets that when flush is synchronous.",
        at_least(0),
    )

    is_shown_by_owner: bool = setting(
        False,
        "Whether consumers see messages only when the broker says so, and not when they are synced;"
        " the broker sets that when replication is synchronous.",
    )

    scan_units: int = setting(
        4_096, "Queue units that one read may examine while a filter rejects them.", at_least(1)
    )
    merge_gap_bytes: int = setting(
        4_096,
        "Two records closer than this are read together with the bytes between them.",
        between(0, _MIB, "more would be read for nothing"),
    )

    def __post_init__(self) -> None:
        check_fields(self, self._faults())

    def _faults(self) -> Iterator[ConfigError]:
        ratios = (self.clean_ratio, self.force_clean_ratio, self.refuse_ratio)
        if list(ratios) != sorted(ratios):
            yield ConfigError(DISK_RATIOS, ratios, "must not fall")

    def with_clean_ratio(self, clean_ratio: float) -> "StoreConfig":
        """A copy with another `clean_ratio`; the other two follow it if they follow the present
        one. Raises ConfigError if they were chosen and do not fit."""
        chosen = {name: getattr(self, name) for name in DISK_RATIOS}
        is_scaled = chosen == scaled_ratios({"clean_ratio": self.clean_ratio})
        others = {} if is_scaled else chosen
        ratios: dict[str, Any] = {**scaled_ratios({**others, "clean_ratio": clean_ratio})}
        return replace(self, **ratios)

    def zone(self, of_the_host: Zone) -> Zone:
        """The time zone in force."""
        fixed_ms = self.utc_offset_ms
        return of_the_host if fixed_ms is None else lambda moment_ms: fixed_ms

    @property
    def queue_file_size(self) -> int:
        """Bytes of a consume-queue file."""
        return self.queue_file_units * CONSUME_QUEUE_UNIT


def scaled_ratios(given: Mapping[str, float]) -> dict[str, float]:
    """All `DISK_RATIOS`: the given ones, and the others placed where these leave room.

    A ratio that was not given keeps its default if that is still in order. Otherwise it divides the
    room between its neighbours as the default does: 0.75, 0.85 and 0.90 become 0.88, 0.928 and
    0.952 when only the first is given. Invalid ratios leave the others unchanged, so that
    StoreConfig's error names the invalid ones.
    """
    declared: dict[str, Any] = {each.name: each.default for each in fields(StoreConfig)}
    defaults: dict[str, float] = {name: declared[name] for name in DISK_RATIOS}
    ratios = {name: given.get(name, default) for name, default in defaults.items()}
    chosen = [given[name] for name in DISK_RATIOS if name in given]
    if chosen != sorted(chosen) or not all(map(_SHARES.accepts, chosen)):
        return ratios
    moves = [(defaults[name], given[name]) for name in DISK_RATIOS if name in given]
    for name, default in defaults.items():
        if name not in given:
            ratios[name] = _moved(default, [(0.0, 0.0), *moves, (1.0, 1.0)])
    return ratios


def _moved(ratio: float, moves: list[tuple[float, float]]) -> float:
    """Where a ratio goes when its neighbours go from the first to the second of their values."""
    low, new_low = max(move for move in moves if move[0] < ratio)
    high, new_high = min(move for move in moves if move[0] > ratio)
    if new_low <= low and new_high >= high:
        return ratio
    return round(new_low + (ratio - low) / (high - low) * (new_high - new_low), 4)
