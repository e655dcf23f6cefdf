"""Checks of one store alone, and whether two stores of one broker are equal.

A kill proves nothing about a second copy, for the page cache survives it. So every check opens one
broker's disk alone, as it is or as a power cut leaves it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random

from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.record_layout import BLANK, BLANK_MAGIC
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.consume_queue import BLANK_UNIT_SIZE
from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.faults.replication_clients import SHORT_LIVED, Ledger, id_of

_PORT = 10911
_ASIDE = "aside-1"
_MOST = 1_000_000


@contextmanager
def store_alone(node: BrokerNode, now_ms: int, power_cut: Random | None = None) -> Iterator[Store]:
    """A store on a copy of the broker's disk; with `power_cut` as that leaves it."""
    disk = node.disk.killed() if power_cut is None else node.disk.crashed(power_cut)
    with opened(node.config.store_config(_PORT), disk, now_ms) as store:
        yield store


@contextmanager
def opened(config: StoreConfig, disk: RecordingDisk, now_ms: int) -> Iterator[Store]:
    """A store on that disk, which is let go of without marking anything."""
    store = Store.open(config, disk, now_ms, is_copy=True)
    try:
        yield store
    finally:
        store.abandon()


def has_started_anew(node: BrokerNode) -> bool:
    """Whether a broker began with an empty log once."""
    return node.disk.exists(_ASIDE)


@contextmanager
def store_kept_aside(node: BrokerNode, now_ms: int) -> Iterator[Store]:
    """The store that a broker had before it started over."""
    disk = RecordingDisk()
    for path, data in node.disk.files().items():
        if path.startswith(f"{_ASIDE}/"):
            disk.poke(path.removeprefix(f"{_ASIDE}/"), data)
    with opened(node.config.store_config(_PORT), disk, now_ms) as store:
        yield store


def records(store: Store, start: int) -> Iterator[tuple[int, bytes]]:
    """Every record from a record's or a file's log offset on."""
    size_of_file = store.config.log_file_size
    at = start
    while at < store.max_log_offset:
        head = store.read_log(at, BLANK.size)
        size, magic = BLANK.unpack(head)
        if magic == BLANK_MAGIC:
            at = (at // size_of_file + 1) * size_of_file
            continue
        yield at, store.read_log(at, size)
        at += size


@dataclass(frozen=True)
class Contents:
    """What one store has."""

    begin: int
    end: int
    ids: dict[int, str]
    """The id of every message, by log offset."""
    queued: set[int]
    """Log offsets that a queue leads to."""
    places: dict[tuple[int, int], str]
    """Ids by queue and queue offset, of the topic that readers read."""

    def lacks(self, ledger: Ledger) -> list[str]:
        """Acknowledged messages that cannot be read here although they have not expired."""
        return [
            name
            for name, log_offset in ledger.ok.items()
            if log_offset >= self.begin
            and (self.ids.get(log_offset) != name or log_offset not in self.queued)
        ]

    def hides(self, ledger: Ledger) -> list[str]:
        """Messages that a consumer saw as safe, and that are gone or another one now."""
        oldest: dict[int, int] = {}
        for queue_id, offset in self.places:
            oldest[queue_id] = min(offset, oldest.get(queue_id, offset))
        return [
            f"{name} at {queue_id}/{offset}"
            for (queue_id, offset), name in ledger.seen.items()
            if offset >= oldest.get(queue_id, 0) and self.places.get((queue_id, offset)) != name
        ]


def contents(store: Store, topic: str) -> Contents:
    """Read everything."""
    ids = {}
    places = {}
    for log_offset, record in records(store, store.min_log_offset):
        (message,) = decode_messages(record)
        ids[log_offset] = id_of(message.body)
    queued = set()
    for name, queue_id in store.queues():
        for number, unit in enumerate(_units(store, name, queue_id)):
            queued.add(unit[0])
            if name == topic and unit[0] in ids:
                places[queue_id, store.min_offset(name, queue_id) + number] = ids[unit[0]]
    return Contents(store.min_log_offset, store.max_log_offset, ids, queued, places)


def _units(store: Store, topic: str, queue_id: int) -> list[tuple[int, int, int]]:
    return store.units(topic, queue_id, store.min_offset(topic, queue_id), _MOST)


def differences(master: Store, slave: Store, expired: int = 0) -> list[str]:
    """Where a slave is not what its master is, up to its own end: records, units, key answers.

    What lies before `expired` need not be equal.
    """
    begin = max(master.min_log_offset, slave.min_log_offset, expired)
    end = min(master.max_log_offset, slave.max_log_offset)
    ours = {at: data for at, data in records(master, begin) if at < end}
    theirs = dict(records(slave, begin))
    found = [
        f"record at {at}: {len(ours.get(at, b''))} and {len(theirs.get(at, b''))} bytes"
        for at in sorted(ours.keys() | theirs.keys())
        if ours.get(at) != theirs.get(at)
    ]
    for topic, queue_id in master.queues():
        if topic != SHORT_LIVED:  # a slave learns of a deletion with the next message of the queue
            found += _different_units(master, slave, topic, queue_id, begin, end)
    return found + _different_answers(master, slave, ours)


def _different_units(
    master: Store, slave: Store, topic: str, queue_id: int, begin: int, end: int
) -> list[str]:
    ours, theirs = (
        {
            store.min_offset(topic, queue_id) + number: unit
            for number, unit in enumerate(_units(store, topic, queue_id))
            # Blank ones stand for messages that had expired before the slave could copy them.
            if begin <= unit[0] < end and unit[1] != BLANK_UNIT_SIZE
        }
        for store in (master, slave)
    )
    return [
        f"unit {at} of {topic}/{queue_id}: {ours.get(at)} and {theirs.get(at)}"
        for at in sorted(ours.keys() | theirs.keys())
        if ours.get(at) != theirs.get(at)
    ]


def _different_answers(master: Store, slave: Store, data: dict[int, bytes]) -> list[str]:
    """The answers for the keys of some messages."""
    found = []
    for store in (master, slave):
        store.tick(0)  # what is only in memory goes into the index
    for log_offset in list(data)[:: max(1, len(data) // 20)]:
        (message,) = decode_messages(data[log_offset])
        for key in message.keys:
            answers = [
                store.find_by_key(message.topic, key, 0, _MOST << 40, 64)
                for store in (master, slave)
            ]
            ours, theirs = ([at for at in each.log_offsets if at in data] for each in answers)
            if ours != theirs or not (answers[0].is_cut or log_offset in ours):
                found.append(f"key {key} of {message.topic}: {ours[:3]} and {theirs[:3]}")
    return found
