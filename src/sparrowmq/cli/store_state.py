"""A store directory as the source of a migration: its tables, and times from its log.

Nothing is written and no lock is taken: the broker may be stopped or running, or the directory may
be a copy. Progress is an offset in consumerOffset.json and, if the store is ours, in the journal
beside it; the queue says where the last consumed message is, and its record says when it was
stored.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from sparrowmq.admin.lag import QueueLag
from sparrowmq.admin.migration import ClusterState, consumed_until, dead_letters, moving_topics
from sparrowmq.admin.values import time_of
from sparrowmq.broker.tables import read_progress
from sparrowmq.disk.atomic_file import read_file
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.group_config import SubscriptionGroupTable
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import is_retry_topic, is_system_group
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.record import RecordError, check_record
from sparrowmq.protocol.topic_config import TopicConfigTable
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.layout import CONFIG_DIR, LOG_DIR

B = TypeVar("B", bound=Body)

Unit = tuple[int, int, int]


def is_store(directory: Path) -> bool:
    """Whether a directory holds a store."""
    return (directory / LOG_DIR).is_dir()


def state_of_directory(directory: Path, *, topics: str, groups: str) -> ClusterState:
    """The topics and groups in a store whose names match. Raises ValueError for a table that is
    missing or unreadable, StoreCorrupted, OSError."""
    disk = RealDisk(directory)
    configs = _table(disk, "topics.json", TopicConfigTable).topic_config_table
    known = _table(disk, "subscriptionGroup.json", SubscriptionGroupTable)
    found = {name: {"": config} for name, config in configs.items()}
    chosen = {
        name: config
        for name, config in sorted(known.subscription_group_table.items())
        if not is_system_group(name) and fnmatchcase(name, groups)
    }
    offsets: dict[tuple[str, str], Mapping[int, int]] = {}
    for key, row in _offsets(disk).items():
        topic, _, group = key.partition("@")
        if group in chosen and not is_retry_topic(topic) and fnmatchcase(topic, topics):
            offsets[group, topic] = row
    return ClusterState(
        where=str(directory),
        topics=moving_topics(found, topics),
        groups=chosen,
        progress=_progress(disk, offsets),
        dead_letters=dead_letters(found, chosen),
    )


def _table(disk: Disk, name: str, kind: type[B]) -> B:
    """A table, or its backup if the table cannot be read."""
    reasons = []
    for path in (f"{CONFIG_DIR}/{name}", f"{CONFIG_DIR}/{name}.bak"):
        data = read_file(disk, path)
        try:
            if data is not None:
                return kind.from_json(data)
            reasons.append(f"{path} is missing")
        except BodyError as error:
            reasons.append(f"{path} cannot be read ({error})")
    raise ValueError(f"{' and '.join(reasons)}; is this the directory of a broker?")


def _offsets(disk: Disk) -> Mapping[str, Mapping[int, int]]:
    table = _table(disk, "consumerOffset.json", ConsumerOffsetTable)
    return read_progress(disk, table)


def _progress(
    disk: Disk, offsets: Mapping[tuple[str, str], Mapping[int, int]]
) -> dict[tuple[str, str], int | None]:
    files = StoreFiles(disk)
    wanted: dict[tuple[str, int], set[int]] = {}
    for (_, topic), row in offsets.items():
        for queue_id, offset in row.items():
            wanted.setdefault((topic, queue_id), set()).add(offset)
    queues = {key: _Queue(files, *key, reached) for key, reached in wanted.items()}
    return {
        (group, topic): consumed_until(
            [queues[topic, queue_id].lag(offset) for queue_id, offset in sorted(row.items())]
        )
        for (group, topic), row in sorted(offsets.items())
    }


class _Queue:
    """One queue: its ends, and when the messages just before some offsets were stored."""

    def __init__(self, files: StoreFiles, topic: str, queue_id: int, reached: set[int]) -> None:
        self._name = MessageQueue(topic, "", queue_id)
        self._min = self._max = -1
        self._stored: dict[int, int] = {}
        for offset, unit in files.units(topic, queue_id):
            self._min = offset if self._min < 0 else self._min
            self._max = offset + 1
            if offset + 1 in reached:
                self._stored[offset + 1] = _stored_ms(files, unit)

    def lag(self, offset: int) -> QueueLag:
        """The lag of a group at an offset."""
        return QueueLag(
            queue=self._name,
            min_offset=max(0, self._min),
            broker_offset=max(0, self._max),
            consumer_offset=offset,
            last_consumed=time_of(self._stored.get(offset)),
            owner=None,
        )


def _stored_ms(files: StoreFiles, unit: Unit) -> int:
    """When a record was stored; 0 if it is gone or damaged."""
    log_offset, size, _ = unit
    try:
        record = check_record(files.read_log(log_offset, size), 0, log_offset, check_crc=False)
    except RecordError:
        return 0
    return record.store_timestamp
