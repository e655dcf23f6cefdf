"""The key index: which log offsets hold the messages of a topic with a certain key or unique id.

Every message of a Java client carries a unique id, so every message passes through here. The
appending side therefore only queues a request; ticks, and queries, build the entries in batches.
Index files are derived: the same messages in the same order give the same bytes.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from sparrowmq.clock import Zone, utc
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.protocol.java import positive_index_hash, unsigned_java_hash
from sparrowmq.store.index.entries import (
    NO_ENTRIES,
    IndexLayout,
    IndexRequest,
    KeyEntries,
    entries_of,
)
from sparrowmq.store.index.index_file import IndexFile
from sparrowmq.store.index.index_files import IndexFiles
from sparrowmq.store.layout import INDEX_DIR, OWN_DIR
from sparrowmq.store.trash import Trash

INDEX_MARK = f"{OWN_DIR}/index"

_BATCH = 4096
_CLOCK_SLACK_MS = 3_600_000
"""How far a clock may have been set back before a query by time misses messages."""
_STEPS_LIMIT = 100_000


class FoundEntries(NamedTuple):
    """Log offsets, newest first; `is_cut` when there may be more than were returned."""

    log_offsets: list[int]
    is_cut: bool


class KeyIndex:
    """Finds messages by key. One writer; call `recover` first."""

    def __init__(self, disk: Disk, layout: IndexLayout | None = None, *, zone: Zone = utc) -> None:
        self._files = IndexFiles(disk, INDEX_DIR, INDEX_MARK, layout or IndexLayout(), zone)
        self._pending: list[IndexRequest] = []
        self._hashed = NO_ENTRIES
        self.add: Callable[[IndexRequest], None] = self._pending.append
        """Queue a message. Log offsets must rise; messages that have entries are skipped."""
        self._next_log_offset = 0
        self._built_to = 0

    @property
    def damage(self) -> list[str]:
        """Damage that `recover` found and dropped."""
        return self._files.damage

    @property
    def pending(self) -> int:
        """How many messages wait for their entries."""
        return len(self._pending)

    def recover(self, log_end: int, *, trust_unmarked: bool = False) -> int:
        """Open the files and drop entries that the log lacks or a crash may have torn.

        Returns the start of the first record that must be added again, with all after it: `log_end`
        if nothing is missing. Without a mark of ours the files are Apache's: they are only used if
        `trust_unmarked` says that Apache was stopped properly.
        """
        self._built_to = self._files.recover(log_end, trust_unmarked=trust_unmarked)
        self._next_log_offset = self._files.end_log_offset + 1
        return self._built_to

    def add_all(self, requests: Iterable[IndexRequest]) -> None:
        """`add` for each, in order; some may have neither id nor keys."""
        self._pending += requests

    def build(self, limit: int | None = None) -> int:
        """Write entries for the oldest `limit` messages (default: all); returns how many it took.

        Raises DiskFull or OSError; the next call retries what was not written.
        """
        self._write_hashed()
        pending = self._pending
        stop = len(pending) if limit is None else min(limit, len(pending))
        for start in range(0, stop, _BATCH):
            batch = pending[: min(_BATCH, stop - start)]
            self._hashed = self._hash(batch)
            self._built_to = batch[-1][3]
            del pending[: len(batch)]
            self._write_hashed()
        for file in self._files.files[-2:]:
            # Twice as many as were built, so that slots keep up however calls are spread.
            file.place_slots(2 * stop + 64)
        return stop

    def _hash(self, requests: list[IndexRequest]) -> KeyEntries:
        wanted_from = self._next_log_offset
        if requests[0][3] < wanted_from:
            requests = [request for request in requests if request[3] >= wanted_from]
        return entries_of(requests) if requests else NO_ENTRIES

    def _write_hashed(self) -> None:
        while self._hashed.count:
            file = self._files.writable(int(self._hashed.timestamps[0]))
            batch = self._hashed.part(0, file.room)
            file.append(batch)
            self._hashed = self._hashed.part(batch.count)

    def find(self, topic: str, key: str, begin_ms: int, end_ms: int, limit: int) -> FoundEntries:
        """Log offsets of messages that may have this key, stored from `begin_ms` to `end_ms`.

        Hashes collide and times are whole seconds: the caller compares key and time of each.
        """
        self.build()
        key_hash = positive_index_hash(unsigned_java_hash(f"{topic}#{key}"))
        found: list[int] = []
        steps = 0
        for file in reversed(self._files.files):
            if file.header.begin_time - _CLOCK_SLACK_MS > end_ms:
                continue
            if file.header.end_time + _CLOCK_SLACK_MS < begin_ms:
                continue
            for log_offset, second in file.chain(key_hash):
                steps += 1
                if steps > _STEPS_LIMIT:
                    return FoundEntries(found, True)
                if second < begin_ms - _CLOCK_SLACK_MS:
                    break
                if log_offset < 0 or not begin_ms - 1000 < second <= end_ms:
                    continue
                if found and found[-1] == log_offset:
                    continue  # the key is listed twice, or is the unique id as well
                if len(found) >= limit:
                    return FoundEntries(found, True)
                found.append(log_offset)
        return FoundEntries(found, False)

    @property
    def unplaced_files(self) -> list[IndexFile]:
        """Files whose slots will be written soon."""
        return [file for file in self._files.files[-2:] if file.has_unplaced]

    def begin_sync(self) -> SyncPlan | None:
        """What has to be synced for the entries built so far to become durable.

        Entries are safe after two rounds, then header and mark follow; without new entries there
        is soon nothing left.
        """
        return self._files.begin_sync()

    def end_sync(self) -> None:
        """Note that the plan of `begin_sync` has been synced."""
        self._files.end_sync(self._safe_if_all_settled())

    def _safe_if_all_settled(self) -> int:
        return int(self._hashed.log_offsets[0]) if self._hashed.count else self._built_to

    @property
    def durable_timestamp(self) -> int:
        """Store time of the last message whose entries are durable, for Apache's checkpoint."""
        return self._files.durable_timestamp

    def clean(self, min_log_offset: int, trash: Trash) -> None:
        """Delete files that only lead to records before `min_log_offset`, never the newest."""
        self._files.clean(min_log_offset, trash)

    def close(self) -> None:
        """Build what was added and make it durable, then close the files."""
        self.build()
        self._files.settle(self._built_to)
        self._files.close()

    def abandon(self) -> None:
        """Close the files as they are, as after an error."""
        self._files.close()
