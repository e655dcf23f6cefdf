"""Sizes and times of a store, RocketMQ's own by default."""

from dataclasses import dataclass

from sparrowmq.protocol.delay import RETRY_DELAYS_MS

CONSUME_QUEUE_UNIT = 20
_HOUR_MS = 3_600_000
_WIDEST_GAP = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """What a store on disk looks like and how long it keeps messages. Validated when built."""

    log_file_size: int = 1024 * 1024 * 1024
    """Bytes of a commit-log file (mappedFileSizeCommitLog). Apache's broker needs the same."""
    queue_file_units: int = 300_000
    """Units of 20 bytes in a consume-queue file (mappedFileSizeConsumeQueue / 20)."""
    index_slots: int = 5_000_000
    """Hash slots of an index file (maxHashSlotNum)."""
    index_entries: int = 20_000_000
    """Entries of an index file (maxIndexNum)."""
    timer_log_size: int = 100 * 1024 * 1024
    """Bytes of the timer log that a stop leaves to Apache's broker (mappedFileSizeTimerLog)."""
    reserve_bytes: int = 64 * 1024 * 1024
    """How far ahead of the writer log space is allocated. Less means more work per mebibyte."""

    record_crc: bool = True
    """Write Apache's whole-record CRC as the last property and check it (enabledAppendPropCRC).
    Costs 20 bytes and 0.5 µs a message and shows consumers the system property __CRC32#; without it
    a flipped bit outside the body is served as it is."""
    store_host: bytes = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"
    """Address and port written into each record, 4 + 4 bytes or 16 + 4; offset ids hold it."""
    delay_levels_ms: tuple[int, ...] = RETRY_DELAYS_MS
    """Delay per level; a rebuilt SCHEDULE_TOPIC_XXXX queue holds delivery times made from it."""

    checkpoint_interval_ms: int = 5_000
    """How often queues and index are made durable. Longer means a longer scan after a crash."""
    checkpoint_bytes: int = 32 * 1024 * 1024
    """… at the latest after so many bytes of log."""
    open_queue_files: int = 512
    """Consume-queue files kept open at once; the rest are opened when needed."""

    retention_ms: int = 72 * 3600 * 1000
    """Log files whose last message is older are deleted in the deletion hour (fileReservedTime)."""
    deletion_hour: int = 4
    """Local hour of the day in which expired files are deleted (deleteWhen)."""
    clean_ratio: float = 0.75
    """Disk use from which expired files are deleted at any hour (diskMaxUsedSpaceRatio)."""
    force_clean_ratio: float = 0.85
    """Disk use from which the oldest file is deleted though not expired; writing resumes below."""
    refuse_ratio: float = 0.90
    """Disk use from which messages are refused."""
    utc_offset_ms: int = 0
    """The local time zone, for the deletion hour and for the names of index files."""

    unsynced_window: int = 8_192
    """Messages of a queue that consumers may see before they are synced. 0: nothing is delivered
    before it is durable, as the broker wants it when flush is synchronous."""

    scan_units: int = 4_096
    """Queue units one read may look at when a filter rejects them."""
    merge_gap_bytes: int = 4_096
    """Two records closer than this are read together with what lies between them."""

    def __post_init__(self) -> None:
        for name in (
            "log_file_size",
            "queue_file_units",
            "index_slots",
            "index_entries",
            "timer_log_size",
            "reserve_bytes",
            "checkpoint_interval_ms",
            "checkpoint_bytes",
            "retention_ms",
            "open_queue_files",
            "scan_units",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be 1 or more")
        if self.unsynced_window < 0:
            raise ValueError(f"unsynced_window is {self.unsynced_window}, must be 0 or more")
        if self.log_file_size < 1024:
            raise ValueError(f"log_file_size is {self.log_file_size}, must be 1024 or more")
        if not 0 <= self.merge_gap_bytes <= _WIDEST_GAP:
            raise ValueError(
                f"merge_gap_bytes is {self.merge_gap_bytes}, must be 0 to {_WIDEST_GAP}:"
                " more would be read for nothing"
            )
        if not -12 * _HOUR_MS <= self.utc_offset_ms <= 14 * _HOUR_MS:
            raise ValueError(
                f"utc_offset_ms is {self.utc_offset_ms}, must be"
                f" {-12 * _HOUR_MS} to {14 * _HOUR_MS}: what the time zones of the world have"
            )
        if not 0 <= self.deletion_hour <= 23:
            raise ValueError(f"deletion_hour is {self.deletion_hour}, must be 0 to 23")
        if not 0 < self.clean_ratio <= self.force_clean_ratio <= self.refuse_ratio <= 1:
            raise ValueError(
                "clean_ratio, force_clean_ratio and refuse_ratio must rise within 0 to 1,"
                f" are {self.clean_ratio}, {self.force_clean_ratio}, {self.refuse_ratio}"
            )
        if len(self.store_host) not in (8, 20):
            raise ValueError(f"store_host has {len(self.store_host)} bytes, must be 8 or 20")

    @property
    def queue_file_size(self) -> int:
        """Bytes of a consume-queue file."""
        return self.queue_file_units * CONSUME_QUEUE_UNIT
