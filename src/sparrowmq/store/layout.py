"""The layout of a store directory: RocketMQ's names, and one directory of our own.

```
commitlog/00000000000000000000     log files, named by their first log offset
consumequeue/<topic>/<queue id>/00000000000000000000
index/20260131235959000            key index
checkpoint  abort  lock            RocketMQ's, at the top
sparrowmq/                         durable marks, quarantined bytes and trash; Apache ignores it
```
"""

from typing import TYPE_CHECKING

from sparrowmq.protocol.names import check_topic, topic_fault

if TYPE_CHECKING:  # Spark's executors have this module, and no disk
    from sparrowmq.disk.disk import Disk

LOG_DIR = "commitlog"
QUEUE_DIR = "consumequeue"
INDEX_DIR = "index"
CONFIG_DIR = "config"
CHECKPOINT = "checkpoint"
ABORT = "abort"
LOCK = "lock"
OWN_DIR = "sparrowmq"
QUARANTINE_DIR = "sparrowmq/quarantine"
TRASH_DIR = "sparrowmq/trash"

_NAME_LENGTH = 20


def file_name(offset: int) -> str:
    """The name of the file that starts at `offset`."""
    return f"{offset:020d}"


def file_offset(name: str) -> int | None:
    """The offset a file starts at; None if it is not named like RocketMQ's files."""
    return int(name) if len(name) == _NAME_LENGTH and name.isascii() and name.isdigit() else None


def log_path(start: int) -> str:
    """The log file that starts at this log offset."""
    return f"{LOG_DIR}/{file_name(start)}"


def queue_dir(topic: str, queue_id: int) -> str:
    """The directory of a consume queue.

    The name is checked here again, where it becomes a path: `../` in a topic was CVE-2019-17572.
    Raises ValueError.
    """
    if queue_id < 0:
        raise ValueError(f"queue id {queue_id}, must be 0 or more")
    return f"{QUEUE_DIR}/{check_topic(topic)}/{queue_id}"


def queues_on(disk: "Disk") -> list[tuple[str, int]]:
    """Topic and id of every consume queue that has a directory."""
    return [
        (topic, int(name))
        for topic in disk.listdir(QUEUE_DIR)
        if topic_fault(topic) is None
        for name in disk.listdir(f"{QUEUE_DIR}/{topic}")
        if name.isascii() and name.isdigit()
    ]
