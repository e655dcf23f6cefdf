"""Power cuts at every call and with any subset of unsynced sectors."""

from contextlib import suppress
from random import Random

import pytest

from sparrowmq.disk.errors import DiskFull
from sparrowmq.store.store import Store
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.seeds import seeds
from tests.store.stores import Told, batch, flush, message, numbers, open_store

QUEUES = 3


class Sender:
    """Sends numbered messages and knows which are durable."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.sent: dict[int, list[int]] = {queue_id: [] for queue_id in range(QUEUES)}
        self.ends: list[tuple[int, int, int]] = []
        self.number = 0

    def work(self, store: Store, disk: RecordingDisk, steps: int) -> None:
        """A random mixture of what a broker does."""
        for step in range(steps):
            match self.rng.randrange(8):
                case 0:
                    store.tick(step * 40)
                case 1:
                    flush(store, disk)
                    self.confirmed = store.durable_log_offset
                case 2:
                    self._send_batch(store)
                case _:
                    self._send(store)

    confirmed = 0

    def _send(self, store: Store) -> None:
        queue_id = self.rng.randrange(QUEUES)
        size = self.rng.choice((20, 20, 300, 1500))
        number, self.number = self.number, self.number + 1
        self.sent[queue_id].append(number)
        stored = store.append(message(number, queue_id=queue_id, size=size), number)
        self.ends.append((stored.log_offset + stored.size, queue_id, number))

    def _send_batch(self, store: Store) -> None:
        queue_id = self.rng.randrange(QUEUES)
        puts = []
        for _ in range(self.rng.randrange(1, 6)):
            number, self.number = self.number, self.number + 1
            self.sent[queue_id].append(number)
            puts.append(message(number, queue_id=queue_id))
        stored = store.append_batch(batch(puts), self.number)
        for put, end in zip(puts, [*stored.log_offsets[1:], stored.end], strict=True):
            self.ends.append((end, queue_id, int(put.uniq_key[2:])))

    def check(self, store: Store) -> None:
        """Durable messages are there, the rest is lost from the end only, nothing is invented."""
        kept = {queue_id: numbers(store, queue_id=queue_id) for queue_id in range(QUEUES)}
        for queue_id, found in kept.items():
            assert found == self.sent[queue_id][: len(found)]
        for end, queue_id, number in self.ends:
            if end <= self.confirmed:
                assert number in kept[queue_id]
        survivors = sorted(number for found in kept.values() for number in found)
        assert survivors == list(range(len(survivors))), "lost from the middle"


@pytest.mark.parametrize("seed", seeds(60))
def test_a_power_cut_loses_only_a_suffix_that_was_not_durable(seed: int) -> None:
    rng = Random(seed)
    disk = RecordingDisk()
    sender = Sender(rng)
    store = open_store(disk)
    disk.cut_at(disk_calls := rng.randrange(1, 400))
    with suppress(PowerCut):
        sender.work(store, disk, 400)
    for again in range(3):
        disk = disk.crashed(rng)
        told = Told()
        store = open_store(disk, report=told)
        sender.check(store)
        kept = sum(len(numbers(store, queue_id=queue_id)) for queue_id in range(QUEUES))
        # The surviving messages are the new model; continue from there and cut again.
        for queue_id in range(QUEUES):
            sender.sent[queue_id] = numbers(store, queue_id=queue_id)
        sender.number = kept
        sender.ends = []
        sender.confirmed = 0
        disk.cut_at(rng.randrange(1, 200))
        try:
            sender.work(store, disk, 150)
        except PowerCut:
            pass
        except DiskFull:
            pytest.fail(f"full at {again} {disk_calls}")


@pytest.mark.parametrize("seed", seeds(30))
def test_a_killed_process_loses_nothing(seed: int) -> None:
    rng = Random(seed)
    disk = RecordingDisk()
    sender = Sender(rng)
    for _ in range(4):
        store = open_store(disk)
        sender.work(store, disk, 120)
        disk = disk.killed()
        store = open_store(disk.killed())
        for queue_id in range(QUEUES):
            assert numbers(store, queue_id=queue_id) == sender.sent[queue_id]


@pytest.mark.parametrize("seed", seeds(20))
def test_a_power_cut_during_recovery_changes_nothing(seed: int) -> None:
    rng = Random(seed)
    disk = RecordingDisk()
    sender = Sender(rng)
    store = open_store(disk)
    sender.work(store, disk, 200)
    disk = disk.crashed(rng)
    for call in range(1, 60, 3):
        attempt = disk.killed()
        attempt.cut_at(call)
        with suppress(PowerCut):
            open_store(attempt)
        sender.check(open_store(attempt.crashed(rng)))


@pytest.mark.parametrize("seed", range(5))
def test_a_deleted_topic_stays_deleted_after_a_power_cut(seed: int) -> None:
    disk = RecordingDisk()
    store = open_store(disk)
    for number in range(10):
        store.append(message(number), number)
    flush(store, disk)
    store.delete_topic("orders", 1)
    store = open_store(disk.crashed(Random(seed)))
    assert numbers(store) == []
