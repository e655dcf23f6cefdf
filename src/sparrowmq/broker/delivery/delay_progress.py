"""How far the delay levels have been delivered: delayOffset.json and the journal of its changes.

Progress is saved only when everything delivered before it is durable. Saved sooner, a power cut
could take the delivered message and leave the word that it was delivered.
"""

from collections.abc import Callable, Mapping

import msgspec

from sparrowmq.clock import Clock
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.data_version import DataVersion
from sparrowmq.protocol.errors import BodyError
from sparrowmq.store.disk import Disk
from sparrowmq.store.journal import Journal
from sparrowmq.store.messages import Damage
from sparrowmq.store.table_file import TableFile

Report = Callable[[Damage], None]


class DelayOffsets(Body, frozen=True, kw_only=True):
    """The file delayOffset.json: per level the queue offset of the next message to deliver."""

    offset_table: dict[int, int] = msgspec.field(default_factory=dict)
    data_version: DataVersion | None = None


def _decode(data: bytes) -> DelayOffsets:
    try:
        return DelayOffsets.from_json(data)
    except BodyError as error:
        raise ValueError(str(error)) from error


class DelayProgress:
    """What has been saved, and what waits for the log to become durable."""

    def __init__(self, disk: Disk, report: Report, clock: Clock) -> None:
        self._file = TableFile(disk, "delayOffset.json", _decode)
        self._journal = Journal(disk, "delayOffset")
        self._report = report
        self._clock = clock
        self._version = DataVersion()
        self._waiting: tuple[int, dict[int, int]] | None = None
        self._journaled: dict[int, int] = {}
        self._saved: dict[int, int] = {}

    def load(self, *, store_is_used: bool, may_be_missing: bool) -> dict[int, int]:
        """Level → next offset as last saved. Raises TableMissing."""
        table = self._file.load(
            self._report, store_is_used=store_is_used, may_be_missing=may_be_missing
        )
        offsets = dict(table.offset_table) if table is not None else {}
        self._saved = dict(offsets)
        if table is not None and table.data_version is not None:
            self._version = table.data_version
        for entry in self._journal.replay(self._report):
            for level, offset in msgspec.json.decode(entry, type=dict[int, int]).items():
                # Apache may have run on this store since: what is further is newer.
                offsets[level] = max(offset, offsets.get(level, 0))
        self._journaled = dict(offsets)
        return offsets

    async def journal(
        self, offsets: Mapping[int, int], log_end: int, durable_log_offset: int, workers: Workers
    ) -> None:
        """Note progress made up to `log_end`; journal what has become durable by now.

        Raises DiskFull, having lost nothing.
        """
        if self._waiting is None and offsets != self._journaled:
            self._waiting = (log_end, dict(offsets))
        if self._waiting is not None and self._waiting[0] <= durable_log_offset:
            _, ready = self._waiting
            await workers.run(self._append, ready)
            self._journaled = ready
            self._waiting = None

    def _append(self, offsets: dict[int, int]) -> None:
        self._journal.append(msgspec.json.encode(offsets))
        self._journal.sync()

    async def save(self, workers: Workers) -> None:
        """Rewrite the table with what is journaled. Raises DiskFull."""
        await workers.run(self._save)

    def _save(self) -> None:
        if self._journaled == self._saved:
            return
        self._write(self._journaled)
        self._journal.rotate()

    def lower(self, offsets: Mapping[int, int]) -> None:
        """Queues got shorter, and this is all that counts now; durable when it returns.

        Raises DiskFull, or OSError.
        """
        self._write(dict(offsets))
        self._journal.discard()  # of what it says, the furthest would count
        self._journaled = self._saved

    def _write(self, offsets: dict[int, int]) -> None:
        version = self._version.next(self._clock())
        table = DelayOffsets(offset_table=offsets, data_version=version)
        self._file.save(table.to_json())
        self._version = version
        self._saved = offsets

    def close(self) -> None:
        """Give the journal's file back."""
        self._journal.close()
