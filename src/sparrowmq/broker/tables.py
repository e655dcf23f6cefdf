"""The broker's tables on disk: topics, groups and consumer offsets under config/."""

import logging
from collections.abc import Sequence

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.group_config import SubscriptionGroupTable
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.topic_config import TopicConfigTable
from sparrowmq.store.disk import Disk
from sparrowmq.store.journal import Journal
from sparrowmq.store.table_file import TableFile

_JOURNAL = "config/consumerOffset.journal"


class OffsetsTable:
    """consumerOffset.json and the journal of what changed since it was written."""

    def __init__(self, disk: Disk, log: logging.Logger) -> None:
        self._file = TableFile(disk, "config/consumerOffset.json", log)
        self._journal = Journal(disk, _JOURNAL)

    def load(self, *, is_new: bool) -> ConsumerOffsets:
        """Progress of all groups: the table, then what the journal adds.

        Raises TableMissing when a store with messages has lost both copies.
        """
        data = self._file.load(is_new=is_new)
        table = ConsumerOffsetTable.from_json(data) if data is not None else ConsumerOffsetTable()
        offsets = ConsumerOffsets(table.offset_table)
        for entry in self._journal.replay():
            key, queue_id, offset = entry.decode().rsplit(" ", 2)
            offsets.replay(key, int(queue_id), int(offset))
        return offsets

    async def journal(self, changes: Sequence[tuple[str, int, int]], workers: Workers) -> None:
        """Make changes durable."""
        if changes:
            entries = [f"{key} {queue_id} {offset}".encode() for key, queue_id, offset in changes]
            await workers.run(self._journal.append, entries)

    async def save(self, offsets: ConsumerOffsets, workers: Workers) -> None:
        """Rewrite the table; the journal starts anew behind it."""
        table = ConsumerOffsetTable(offset_table=dict(offsets.rows())).to_json()
        await workers.run(self._save, table)

    def _save(self, table: bytes) -> None:
        self._file.save(table)
        self._journal.restart()


class BrokerTables:
    """All of them."""

    def __init__(self, disk: Disk, log: logging.Logger) -> None:
        self._topics = TableFile(disk, "config/topics.json", log)
        self._groups = TableFile(disk, "config/subscriptionGroup.json", log)
        self.offsets = OffsetsTable(disk, log)

    def load_topics(self, *, is_new: bool) -> TopicConfigTable:
        """topics.json. Raises TableMissing."""
        data = self._topics.load(is_new=is_new)
        return TopicConfigTable.from_json(data) if data is not None else TopicConfigTable()

    def save_topics(self, table: bytes) -> None:
        """Durable when this returns."""
        self._topics.save(table)

    def load_groups(self, *, is_new: bool) -> SubscriptionGroupTable:
        """subscriptionGroup.json. Raises TableMissing."""
        data = self._groups.load(is_new=is_new)
        if data is None:
            return SubscriptionGroupTable()
        return SubscriptionGroupTable.from_json(data)

    def save_groups(self, table: bytes) -> None:
        """Durable when this returns."""
        self._groups.save(table)
