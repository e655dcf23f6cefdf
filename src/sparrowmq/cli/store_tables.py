"""Making a lost table of config/ anew from what the log, the queues and the journal still know."""

import msgspec

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.tables import replay_journal
from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.topic_config import TopicConfig, TopicConfigTable
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.journal import Journal
from sparrowmq.store.layout import LOCK
from sparrowmq.store.table_file import TableFile

_EMPTY = {"subscriptionGroup.json", "delayOffset.json", "consumerFilter.json"}


def rebuild_table(disk: Disk, name: str) -> str:
    """Write the table; returns what was done. Raises StoreLocked, or ValueError for a whole one."""
    lock = disk.lock(LOCK)
    try:
        table: TableFile[object] = TableFile(disk, name, msgspec.json.decode)
        if disk.exists(table.path) or disk.exists(f"{table.path}.bak"):
            raise ValueError(f"{table.path} or its .bak is still there; move it away first")
        if name == "topics.json":
            topics = _topics(disk)
            table.save(topics.to_json())
            return f"{name}: {len(topics.topic_config_table)} topics, as their queues tell"
        if name == "consumerOffset.json":
            offsets = _offsets(disk)
            table.save(offsets.to_json())
            return f"{name}: {len(offsets.offset_table)} groups and topics, from the journal"
        if name not in _EMPTY:
            known = ", ".join(sorted({*_EMPTY, "topics.json", "consumerOffset.json"}))
            raise ValueError(f"{name} is none of the tables {known}")
        table.save(b"{}")
    finally:
        lock.release()
    return f"{name}: empty"


def _topics(disk: Disk) -> TopicConfigTable:
    queues: dict[str, int] = {}
    for topic, queue_id in StoreFiles(disk).queues():
        queues[topic] = max(queues.get(topic, 0), queue_id + 1)
    return TopicConfigTable(
        topic_config_table={
            topic: TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
            for topic, count in queues.items()
        }
    )


def _offsets(disk: Disk) -> ConsumerOffsetTable:
    offsets = ConsumerOffsets({})
    replay_journal(Journal(disk, "consumerOffset"), offsets, lambda _: None)
    return ConsumerOffsetTable(
        offset_table=dict(offsets.rows()), pending_resets=offsets.pending_resets() or None
    )
