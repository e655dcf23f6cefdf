"""The index files of a store in log order: creating, syncing, deleting and recovering them."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest

from sparrowmq.clock import Zone
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.store.index.entries import IndexHeader, IndexLayout
from sparrowmq.store.index.index_file import IndexFile
from sparrowmq.store.index.index_recovery import (
    IndexDamaged,
    IndexMark,
    IndexMarkFile,
    cut_index_file,
    header_before,
    load_index_files,
    remove_index_file,
)
from sparrowmq.store.trash import Trash


class IndexFiles:
    """A list of files, of which only the last is written; call `recover` first."""

    def __init__(
        self, disk: Disk, directory: str, mark_path: str, layout: IndexLayout, zone: Zone
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._layout = layout
        self._zone = zone
        self.files: list[IndexFile] = []
        self._syncing: list[IndexFile] = []
        self._has_new_names = False
        """Files were created whose names no sync has covered yet."""
        self._mark_file = IndexMarkFile(disk, mark_path)
        self._marked: IndexMark | None = None
        self._mark_is_dirty = False
        self.damage: list[str] = []
        """Damage that `recover` found and dropped; everything is in the log."""

    @property
    def end_log_offset(self) -> int:
        """Log offset of the last record with an entry, -1 if there is none."""
        return self.files[-1].header.end_log_offset if self.files else -1

    def writable(self, timestamp: int) -> IndexFile:
        """The newest file, or a new one named by `timestamp` where it is full."""
        if self.files and self.files[-1].room:
            return self.files[-1]
        name = _file_name(timestamp + self._zone(timestamp))
        if self.files and name <= self.files[-1].name:
            # Two files in one millisecond, or a clock that went back.
            name = f"{int(self.files[-1].name) + 1:017d}"
        path = f"{self._directory}/{name}"
        self.files.append(IndexFile.create(self._disk, path, self._layout))
        self._has_new_names = True
        return self.files[-1]

    def begin_sync(self) -> SyncPlan | None:
        """What to sync now; call `end_sync` when that has succeeded, and only then."""
        self._syncing = [file for file in self.files if file.begin_round()]
        paths = [file.file.path for file in self._syncing]
        if self._mark_is_dirty:
            paths.append(self._mark_file.path)
        directories = self._directories() if self._has_new_names else []
        # A file created from now on waits for the next round, as do its entries.
        self._has_new_names = False
        return SyncPlan([], paths, directories) if paths or directories else None

    def _directories(self) -> list[str]:
        """The files' directory and its parent."""
        return [self._directory, self._directory.rpartition("/")[0]]

    def end_sync(self, built_to: int) -> None:
        """Note that the plan of `begin_sync` is durable; records before `built_to` have entries."""
        for file in self._syncing:
            file.end_round()
        self._syncing = []
        mark = self._mark(built_to)
        self._mark_is_dirty = mark is not None and mark != self._marked
        if mark is not None and self._mark_is_dirty:
            self._mark_file.write(mark)
            self._marked = mark

    def _mark(self, built_to: int, *, is_clean: bool = False) -> IndexMark | None:
        newest: IndexFile | None = None
        missing_from = built_to
        for file, following in zip_longest(self.files, self.files[1:]):
            if file.durable.count > 1:
                newest = file
            if file.durable.count < file.header.count:
                missing_from = file.read_entry(file.durable.count)[1]
                break
            if following is not None and not file.is_settled:
                missing_from = following.read_entry(1)[1]
                break
        else:
            return self._mark_at(newest, built_to, is_clean=is_clean)
        if newest is not None and missing_from == newest.durable.end_log_offset:
            return None  # the keys of one record, only some of which are safe
        return self._mark_at(newest, missing_from, is_clean=is_clean)

    def _mark_at(
        self, newest: IndexFile | None, safe_log_offset: int, *, is_clean: bool = False
    ) -> IndexMark:
        if newest is None:
            return IndexMark(safe_log_offset, is_clean, "", IndexHeader(), 1, "", 0)
        return IndexMark(
            safe_log_offset,
            is_clean,
            newest.name,
            newest.durable,
            newest.settled.count,
            self.files[0].name,
            self.files.index(newest) + 1,
        )

    @property
    def durable_timestamp(self) -> int:
        """Entries of messages stored until then are on the disk."""
        timestamp = 0
        for file in self.files:
            if file.settled.count > 1:
                timestamp = file.settled.end_time
            if file.settled.count < file.header.count:
                break
        return timestamp

    def clean(self, min_log_offset: int, trash: Trash) -> None:
        """Delete files that only lead to records before `min_log_offset`, never the newest."""
        mark, expired = self._marked, 0
        while expired < len(self.files) - 1:
            file = self.files[expired]
            is_needed = file.header.end_log_offset >= min_log_offset or not file.is_settled
            if is_needed or mark is None or mark.name in ("", file.name):
                break
            expired += 1
        if mark is None or not expired:
            return
        # The mark first: a file it counts must not be missing.
        oldest = self.files[expired].name
        self._marked = replace(mark, oldest=oldest, files=mark.files - expired)
        self._mark_file.write(self._marked)
        self._mark_file.sync()
        for file in self.files[:expired]:
            file.file.close()
            trash.put(file.file.path)
        del self.files[:expired]

    def settle(self, built_to: int) -> None:
        """Make everything durable, and write a mark that records it."""
        for file in self.files:
            file.settle()
        for directory in self._directories():
            if self._disk.exists(directory):
                self._disk.sync_dir(directory)
        mark = self._mark(built_to, is_clean=True)
        if mark is not None:
            self._mark_file.write(mark)
            self._mark_file.sync()

    def close(self) -> None:
        """Close the files as they are."""
        for file in self.files:
            file.file.close()
        self.files.clear()
        self._mark_file.close()

    def recover(self, log_end: int, *, trust_unmarked: bool) -> int:
        """Open the files and drop entries that the log lacks or a crash may have torn.

        Returns the start of the first record that must be added again, with all after it: `log_end`
        if nothing is missing. Without a mark of ours the files are Apache's: they are only used if
        `trust_unmarked` says that Apache was stopped properly.
        """
        self.files, self.damage = load_index_files(self._disk, self._directory, self._layout)
        mark = self._mark_file.read()
        if mark is not None:
            again_from = self._go_back_to(mark, log_end)
        else:
            if not trust_unmarked:
                self._drop_from(0)
            again_from = self._drop_last_record()
        again_from = min(again_from, self._truncate(log_end))
        if self.files and self.files[-1].room:
            self.files[-1].prepare()
        # From now on a clean mark would be false.
        self._marked = self._mark_at(self.files[-1] if self.files else None, again_from)
        self._mark_file.write(self._marked)
        self._mark_file.sync()
        return again_from

    def _go_back_to(self, mark: IndexMark, log_end: int) -> int:
        if not mark.name:
            self._drop_from(0)
            return mark.safe_log_offset
        names = [file.name for file in self.files]
        if mark.oldest in names:
            # Older ones were about to be deleted.
            self._drop_first(names.index(mark.oldest))
        number = mark.files - 1
        newest = self.files[number] if number < len(self.files) else None
        if self._has_all_but_newest(mark):
            # Killed before the first header of a new file was written.
            return self._drop_last_record()
        if newest is None or newest.name != mark.name or self.files[0].name != mark.oldest:
            self._drop_from(0)
            return 0
        if not _is_continued(mark.header, newest):
            # Not the file that the mark was written for.
            self._drop_from(number)
            return self._drop_last_record()
        if mark.is_clean and self.files[-1].header == mark.header:
            return log_end
        self._drop_from(number + 1)
        if self._cut(mark.header, mark.linked):
            return mark.safe_log_offset
        return self._drop_last_record()

    def _has_all_but_newest(self, mark: IndexMark) -> bool:
        files = self.files
        return (
            len(files) == mark.files - 1
            and bool(files)
            and files[0].name == mark.oldest
            and files[-1].name != mark.name
        )

    def _truncate(self, log_end: int) -> int:
        if self.end_log_offset < log_end:
            return log_end
        while self.files and self.files[-1].header.begin_log_offset >= log_end:
            self._drop_from(len(self.files) - 1)
        if self.end_log_offset >= log_end:
            self._cut(header_before(self.files[-1], log_end))
        return self._drop_last_record()

    def _drop_last_record(self) -> int:
        """Drop the last record: keys may be incomplete, the time inexact. Returns its start."""
        last = self.end_log_offset
        while self.files and self.files[-1].header.begin_log_offset >= last:
            self._drop_from(len(self.files) - 1)
        if self.files and self.end_log_offset >= last:
            is_whole = self._cut(header_before(self.files[-1], last))
            return last if is_whole else self._drop_last_record()
        return max(last, 0)

    def _cut(self, header: IndexHeader, linked: int | None = None) -> bool:
        """Remove entries from the newest file; False if it was too damaged and had to go."""
        try:
            cut_index_file(self.files[-1], header, header.count if linked is None else linked)
        except IndexDamaged as error:
            self.damage.append(str(error))
            self._drop_from(len(self.files) - 1)
            return False
        return True

    def _drop_first(self, count: int) -> None:
        for file in self.files[:count]:
            remove_index_file(self._disk, file)
        del self.files[:count]

    def _drop_from(self, number: int) -> None:
        for file in self.files[number:]:
            remove_index_file(self._disk, file)
        del self.files[number:]


def _is_continued(before: IndexHeader, file: IndexFile) -> bool:
    """Whether a file holds the entries that a mark counts; its own header may be older."""
    if file.header.begin_log_offset != before.begin_log_offset:
        return False
    return file.read_entry(before.count - 1)[1] == before.end_log_offset


def _file_name(local_ms: int) -> str:
    """yyyyMMddHHmmssSSS, as in UtilAll.timeMillisToHumanString."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=local_ms)
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
