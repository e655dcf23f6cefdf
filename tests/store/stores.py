"""What the store's tests share: small files, messages by number, and reading everything back."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import sync_plan
from sparrowmq.protocol.record import Record, decode_record
from sparrowmq.protocol.record_batch import BatchedPuts
from sparrowmq.protocol.tags import tag_code
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.messages import (
    Damage,
    PutBatch,
    PutMessage,
    QueueRead,
    ReadStatus,
    StartProgress,
)
from sparrowmq.store.store import ColdRead, Store
from sparrowmq.testing.recording_disk import RecordingDisk

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
SMALL = StoreConfig(
    log_file_size=16 * 1024,
    queue_file_units=50,
    index_slots=64,
    index_entries=512,
    reserve_bytes=4 * 1024,
    checkpoint_interval_ms=100,
)


def message(number: int, topic: str = "orders", queue_id: int = 0, size: int = 20) -> PutMessage:
    """The message with a number: everything in it follows from the number."""
    tag = f"tag{number % 3}"
    return PutMessage(
        topic=topic,
        queue_id=queue_id,
        flag=number % 7,
        sys_flag=0,
        born_timestamp=1_000 + number,
        born_host=HOST,
        reconsume_times=0,
        body=body_of(number, size),
        properties=f"UNIQ_KEY\x01ID{number:06d}\x02KEYS\x01k{number}\x02TAGS\x01{tag}\x02".encode(),
        tags_code=tag_code(tag),
        uniq_key=f"ID{number:06d}",
        keys=f"k{number}",
    )


def batch(puts: Sequence[PutMessage]) -> PutBatch:
    """Messages of one queue as one batch: its flags and times are those of the first."""
    first = puts[0]
    return PutBatch(
        first.topic,
        first.queue_id,
        first.sys_flag,
        first.born_timestamp,
        first.born_host,
        first.reconsume_times,
        BatchedPuts(
            [put.flag for put in puts],
            [put.body for put in puts],
            [put.properties for put in puts],
            [put.tags_code for put in puts],
            [put.uniq_key for put in puts],
            [put.keys for put in puts],
        ),
    )


def body_of(number: int, size: int = 20) -> bytes:
    """The body of a message."""
    return (b"message %d;" % number).ljust(size, b"abcdefgh"[number % 8 : number % 8 + 1])


def number_of(record: Record) -> int:
    """The number of a message that was read, which is whole."""
    number = int(record.body[len(b"message ") : record.body.index(b";")])
    assert record.body == body_of(number, len(record.body))
    assert f"UNIQ_KEY\x01ID{number:06d}\x02".encode() in record.properties
    return number


class Told:
    """Collects what a store reports."""

    def __init__(self) -> None:
        self.damage: list[Damage] = []
        self.progress: list[StartProgress] = []

    def __call__(self, what: Damage | StartProgress) -> None:
        if isinstance(what, Damage):
            self.damage.append(what)
        else:
            self.progress.append(what)


def open_store(
    disk: Disk,
    config: StoreConfig = SMALL,
    now_ms: int = 1,
    report: Callable[[Damage | StartProgress], None] | None = None,
) -> Store:
    """A store with small files."""
    return Store.open(config, disk, now_ms, report if report is not None else Told())


def with_sizes(**sizes: int) -> StoreConfig:
    """The small store with something changed."""
    return replace(SMALL, **sizes)  # type: ignore[arg-type]


def read(store: Store, topic: str, queue_id: int, offset: int, **how: object) -> QueueRead:
    """One read, finished here when it is cold."""
    found = store.read_queue(topic, queue_id, offset, **how)  # type: ignore[arg-type]
    return found.load() if isinstance(found, ColdRead) else found


def records_of(found: QueueRead) -> list[Record]:
    """The records in an answer."""
    data = b"".join(found.chunks)
    records = []
    at = 0
    while at < len(data):
        records.append(decode_record(data, at))
        at += records[-1].size
    assert len(records) == found.count
    assert len(data) == found.size
    return records


def read_all(store: Store, topic: str = "orders", queue_id: int = 0, **how: object) -> list[Record]:
    """Every message of a queue, from its minimum on."""
    offset, most = store.queue_range(topic, queue_id)
    records: list[Record] = []
    while offset < most:
        found = read(store, topic, queue_id, offset, **how)
        assert found.next_offset > offset, found.status
        if found.status is ReadStatus.FOUND:
            records += records_of(found)
        offset = found.next_offset
    return records


def numbers(store: Store, topic: str = "orders", queue_id: int = 0) -> list[int]:
    """The numbers of every message in a queue."""
    return [number_of(record) for record in read_all(store, topic, queue_id)]


def flush(store: Store, disk: Disk) -> None:
    """Make everything durable that can be."""
    plan = store.begin_flush()
    if plan is not None:
        sync_plan(disk, plan)
        store.finish_flush(plan)


def stopped_store(count: int, queues: int) -> RecordingDisk:
    """A store of messages of five sizes in queues by turns, with checkpoints, stopped normally."""
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(count):
        store.append(message(number, queue_id=number % queues, size=20 + number % 5 * 40), number)
        if number % 20 == 0:
            store.tick(number * 10)
    store.close()
    return disk


@contextmanager
def in_use(directory: Path) -> Iterator[None]:
    """Another process holds the lock of the store, as its broker would."""
    hold = (
        "import sys; from pathlib import Path; from sparrowmq.disk.real_disk import RealDisk;"
        "lock = RealDisk(Path(sys.argv[1])).lock('lock'); print('held', flush=True);"
        "sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", hold, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
    finally:
        holder.communicate()
