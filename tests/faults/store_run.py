"""A store under a random load in virtual time, with a ledger of what it promised.

The files are tiny, so that a few hundred messages roll every kind of file several times.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.disk.syncer import sync_plan
from sparrowmq.protocol.record import Record, decode_record
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.index.entries import IndexLayout
from sparrowmq.store.messages import Damage, PutMessage, QueueRead, StartProgress
from sparrowmq.store.queue_read import ColdRead
from sparrowmq.store.store import Store
from sparrowmq.store.table_file import TableFile
from tests.faults.checker import Ledger, MessageId, ReadBack, State, body_of, properties_of

LAYOUT = IndexLayout(slots=64, entries=120)
CONFIG = StoreConfig(
    log_file_size=16 * 1024,
    queue_file_units=16,
    index_slots=LAYOUT.slots,
    index_entries=LAYOUT.entries,
    reserve_bytes=4096,
    checkpoint_interval_ms=300,
    checkpoint_bytes=12 * 1024,
)
QUEUES = [("orders", 0), ("orders", 1), ("payments", 0)]
FLUSH_EVERY_MS = 500
_HOST = b"\x7f\x00\x00\x01\x00\x00\xc3\x50"


def open_store(disk: Disk, now_ms: int, damage: list[Damage] | None = None) -> Store:
    """Open a store with its index; damage is collected where a list is given."""

    def report(event: Damage | StartProgress) -> None:
        if isinstance(event, Damage) and damage is not None:
            damage.append(event)

    return Store.open(CONFIG, disk, now_ms, report)


def records_of(store: Store, topic: str, queue_id: int) -> Iterator[Record]:
    """Every record of a queue, through the front door."""
    offset = store.min_offset(topic, queue_id)
    while True:
        read = store.read_queue(topic, queue_id, offset)
        if isinstance(read, ColdRead):
            read = read.load()
        assert isinstance(read, QueueRead)
        data = b"".join(bytes(chunk) for chunk in read.chunks)
        at = 0
        while at < len(data):
            record = decode_record(data, at)
            at += record.size
            yield record
        if read.next_offset <= offset:
            return
        offset = read.next_offset


def read_all(store: Store) -> Iterator[ReadBack]:
    """Every message that consumers would get."""
    for topic, queue_id in QUEUES:
        for record in records_of(store, topic, queue_id):
            yield ReadBack(topic, queue_id, record.queue_offset, record.body, record.properties)


@dataclass
class Promise:
    """An append that was not answered yet, or was, and when."""

    message: MessageId
    log_offset: int
    end: int
    at_ms: int


@dataclass
class StoreRun:
    """One store, one ledger; `sync_flush` answers only what is durable."""

    disk: Disk
    rng: Random
    sync_flush: bool
    acknowledge_early: bool = False
    """The planted bug: answer before the flush although synchronous flush was promised."""
    ledger: Ledger = field(default_factory=Ledger)
    now_ms: int = 1_700_000_000_000
    number: int = 0
    appended: list[Promise] = field(default_factory=list)
    flushed_ms: int = 0
    """When the last flush that succeeded began."""
    table_saved: int = 0
    is_stopped: bool = False

    def __post_init__(self) -> None:
        self.store = open_store(self.disk, self.now_ms)
        self.waiting: list[Promise] = []
        self._table: TableFile[Any] = TableFile(self.disk, "topics.json", msgspec.json.decode)
        self.load_table()

    def step(self) -> None:
        """A little of everything a broker does."""
        rng = self.rng
        for _ in range(rng.randint(1, 6)):
            self.append()
        self.now_ms += rng.choice((1, 7, 40, 90))
        if rng.random() < 0.8:
            self.store.tick(self.now_ms)
        if self.sync_flush or self.now_ms - self.flushed_ms >= FLUSH_EVERY_MS:
            self.flush()
        if rng.random() < 0.08:
            self.save_table()

    def append(self) -> None:
        """Send one message."""
        message = MessageId("p", self.number)
        self.number += 1
        topic, queue_id = self.rng.choice(QUEUES)
        self.ledger.attempt(message)
        put = PutMessage(
            topic=topic,
            queue_id=queue_id,
            flag=0,
            sys_flag=0,
            born_timestamp=self.now_ms,
            born_host=_HOST,
            reconsume_times=0,
            body=body_of(message),
            properties=properties_of(message),
            uniq_key=str(message),
            keys=f"k-{message.number % 7} all",
        )
        try:
            stored = self.store.append(put, self.now_ms)
        except (DiskFull, StoreStopped) as error:
            self.ledger.fail(message)
            self.is_stopped |= isinstance(error, StoreStopped)
            return
        promise = Promise(message, stored.log_offset, stored.log_offset + stored.size, self.now_ms)
        self.appended.append(promise)
        if self.sync_flush and not self.acknowledge_early:
            self.waiting.append(promise)
        else:
            self.ledger.ok(message)

    def flush(self) -> None:
        """One flush, with appends while it is under way."""
        began_ms = self.now_ms
        plan = self.store.begin_flush(urgent=self.sync_flush and self.rng.random() < 0.5)
        if plan is None:
            return
        try:
            sync_plan(self.disk, plan)
            if self.rng.random() < 0.5:
                self.append()
            self.store.finish_flush(plan)
        except OSError as error:
            self.store.fail(f"flush failed: {error}")
            self.is_stopped = True
            return
        self.flushed_ms = began_ms
        durable = self.store.durable_log_offset
        for promise in [each for each in self.waiting if each.end <= durable]:
            self.waiting.remove(promise)
            self.ledger.ok(promise.message)

    def save_table(self) -> None:
        """Save a config table with a number that only grows."""
        try:
            self._table.save(msgspec.json.encode({"saved": self.table_saved + 1}))
        except (OSError, DiskFull):
            return
        self.table_saved += 1

    def load_table(self) -> int:
        """The number in the table; raises where a start would be refused."""
        table = self._table.load(lambda _: None, store_is_used=self.table_saved > 0)
        return 0 if table is None else int(table.get("saved", 0))

    def reopened(self, disk: Disk) -> "StoreRun":
        """The next process on what is left of the disk."""
        for message in [promise.message for promise in self.waiting]:
            self.ledger.attempt(message)
        return StoreRun(
            disk,
            self.rng,
            self.sync_flush,
            self.acknowledge_early,
            self.ledger,
            self.now_ms + 1000,
            self.number,
            table_saved=self.table_saved,
            flushed_ms=self.now_ms,
        )

    def forget_lost_suffix(self, kept: set[MessageId]) -> list[str]:
        """Asynchronous flush may lose what was sent since the last flush, and only a suffix of it.

        Those messages become unknown; what breaks the rule is returned.
        """
        problems = []
        lost = [promise for promise in self.appended if promise.message not in kept]
        first_lost = min((promise.log_offset for promise in lost), default=None)
        for promise in lost:
            if self.ledger.states[promise.message] is not State.OK:
                continue
            if promise.at_ms < self.flushed_ms:
                problems.append(f"{promise.message} was flushed and is lost")
            else:
                self.ledger.attempt(promise.message)
        if first_lost is not None:
            behind = [p for p in self.appended if p.message in kept and p.log_offset > first_lost]
            problems += [f"{p.message} survived behind a lost one" for p in behind]
        return problems


def ids_in(messages: list[ReadBack]) -> set[MessageId]:
    """Whose bodies these are."""
    found = set()
    for message in messages:
        with suppress(ValueError):
            found.add(MessageId.parse(message.body.partition(b"|")[0].decode(errors="replace")))
    return found
