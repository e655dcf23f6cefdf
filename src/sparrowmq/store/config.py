"""Sizes and times of a store, RocketMQ's own by default."""

from dataclasses import dataclass

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
_HOUR_MS = 3_600_000
_MIB = 1024 * 1024
_TIME_ZONES = between(-12 * _HOUR_MS, 14 * _HOUR_MS, "no time zone is further from UTC")
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
        "Local hour of the day in which expired files are deleted (deleteWhen).",
        between(0, 23),
    )
    clean_ratio: float = setting(
        0.75,
        "Disk use from which expired files are deleted at any hour (diskMaxUsedSpaceRatio).",
    )
    force_clean_ratio: float = setting(
        0.85,
        "Disk use from which the oldest file is deleted although it has not expired; below it,"
        " refused writes resume.",
    )
    refuse_ratio: float = setting(0.90, "Disk use from which messages are refused.")
    utc_offset_ms: int = setting(
        0,
        "Offset of the local time zone from UTC, for the deletion hour and the names of index"
        " files.",
        _TIME_ZONES,
    )

    unsynced_window: int = setting(
        8_192,
        "Messages of a queue that consumers may read before they are synced. 0 delivers nothing"
        " before it is durable; the broker sets that when flush is synchronous.",
        at_least(0),
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
        check_fields(self)
        ratios = (self.clean_ratio, self.force_clean_ratio, self.refuse_ratio)
        if not 0 < self.clean_ratio <= self.force_clean_ratio <= self.refuse_ratio <= 1:
            names = ("clean_ratio", "force_clean_ratio", "refuse_ratio")
            raise ConfigError(names, ratios, "must rise within 0 to 1")

    @property
    def queue_file_size(self) -> int:
        """Bytes of a consume-queue file."""
        return self.queue_file_units * CONSUME_QUEUE_UNIT
