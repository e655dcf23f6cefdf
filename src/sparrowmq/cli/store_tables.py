"""Rebuilds lost or broken tables of config/ from whatever still has their contents.

```
table broken, .bak whole     the .bak takes its place
.bak broken, table whole     the table is copied
both broken                  made from queues (topics), journal and commits (progress), else empty
```

Broken files are moved to sparrowmq/quarantine, never deleted.
"""

from enum import StrEnum

import msgspec

from sparrowmq.broker.tables import progress_without_table
from sparrowmq.client.errors import counted
from sparrowmq.disk.atomic_file import AtomicFile, read_file
from sparrowmq.disk.disk import Disk
from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.json_reader import parse_json
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable
from sparrowmq.protocol.topic_config import TopicConfig, TopicConfigTable
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.layout import CONFIG_DIR, LOCK, OWN_DIR, QUARANTINE_DIR
from sparrowmq.store.recovery.quarantine import free_path
from sparrowmq.store.recovery.repair import RepairStep
from sparrowmq.store.table_file import TableFile

_EMPTY = {"subscriptionGroup.json", "delayOffset.json", "consumerFilter.json", "drain.json"}
_MADE = {*_EMPTY, "topics.json", "consumerOffset.json"}
_BACKUP = ".bak"


# ---- repairing broken tables


class TableSource(StrEnum):
    """What a broken table is restored from."""

    BACKUP = "its .bak takes its place"
    TABLE = "copied from the table"
    REST = "made again from queues and journal, as far as they know it"
    NOTHING = "moved away; nothing else knows what it said"


class BrokenTable(msgspec.Struct, frozen=True):
    """A file of config/ that is not valid JSON."""

    path: str
    size: int
    reason: str
    source: TableSource

    def step(self, kept: tuple[str, ...] = ()) -> RepairStep:
        """The repair step for this table, for the list of steps."""
        return RepairStep(self.path, 0, self.size, self.reason, self.source.value, kept)


def broken_tables(disk: Disk) -> list[BrokenTable]:
    """Tables and backups that cannot be read."""
    names = [
        name for name in disk.listdir(CONFIG_DIR) if name.endswith((".json", f".json{_BACKUP}"))
    ]
    faults = {name: fault for name in names if (fault := _fault(disk, name))}
    found = []
    for name, fault in faults.items():
        table = name.removesuffix(_BACKUP)
        if name != table:
            has_other = table in names and table not in faults
            source = TableSource.TABLE if has_other else TableSource.NOTHING
        elif table + _BACKUP in names and table + _BACKUP not in faults:
            source = TableSource.BACKUP
        else:
            source = TableSource.REST if table in _MADE else TableSource.NOTHING
        path = f"{CONFIG_DIR}/{name}"
        found.append(BrokenTable(path, disk.size(path), fault, source))
    return found


def _fault(disk: Disk, name: str) -> str:
    try:
        parse_json(read_file(disk, f"{CONFIG_DIR}/{name}") or b"")
    except BodyError as error:
        return f"is not JSON: {error}"
    return ""


def repair_tables(disk: Disk, broken: list[BrokenTable]) -> list[RepairStep]:
    """Repair each table, for a caller that holds the store's lock. Returns what was done.

    Queues have to be intact: topics are read from them.
    """
    steps = []
    for each in broken:
        disk.mkdir(QUARANTINE_DIR)
        kept = free_path(disk, f"{QUARANTINE_DIR}/{each.path.rpartition('/')[2]}")
        disk.replace(each.path, kept)
        for directory in (QUARANTINE_DIR, OWN_DIR, CONFIG_DIR):
            disk.sync_dir(directory)
        _put_back(disk, each)
        steps.append(each.step((kept,)))
    return steps


def _put_back(disk: Disk, broken: BrokenTable) -> None:
    match broken.source:
        case TableSource.BACKUP:
            other = f"{broken.path}{_BACKUP}"
        case TableSource.TABLE:
            other = broken.path.removesuffix(_BACKUP)
        case TableSource.REST:
            _make(disk, broken.path.rpartition("/")[2])
            return
        case TableSource.NOTHING:
            return
    AtomicFile(disk, broken.path).replace(read_file(disk, other) or b"{}")


# ---- rebuilding lost tables


def rebuild_table(disk: Disk, name: str) -> str:
    """Rebuild a table and return what was done. Raises StoreLocked, and ValueError for a table that
    exists or is unknown."""
    lock = disk.lock(LOCK)
    try:
        path = f"{CONFIG_DIR}/{name}"
        if disk.exists(path) or disk.exists(f"{path}{_BACKUP}"):
            raise ValueError(f"{path} or its .bak is still there; move it away first")
        if name not in _MADE:
            raise ValueError(f"{name} is not one of the tables {', '.join(sorted(_MADE))}")
        return _make(disk, name)
    finally:
        lock.release()


def _make(disk: Disk, name: str) -> str:
    table: TableFile[object] = TableFile(disk, name, msgspec.json.decode)
    if name == "topics.json":
        topics = _topics(disk)
        table.save(topics.to_json())
        return f"{name}: {counted(len(topics.topic_config_table), 'topic')}, from their queues"
    if name == "consumerOffset.json":
        offsets = _offsets(disk)
        table.save(offsets.to_json())
        return f"{name}: {len(offsets.offset_table)} groups and topics, from the journal"
    table.save(b"{}")
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
    return progress_without_table(disk).table()
