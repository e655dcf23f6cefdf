"""A slave learns of deletions later than it gets messages: it deletes what the master deleted, and
keeps what was stored in a topic that was made again."""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparrowmq.store.store import Store
from sparrowmq.testing.recording_disk import RecordingDisk
from tests.store.stores import Told, flush, message, numbers, open_store

TOPICS = ("orders", "payments")
QUEUES = range(3)


def copy(master: Store, slave: Store, size: int = 1_000) -> None:
    """Everything that the master has."""
    offset = slave.max_log_offset
    while data := master.read_log(offset, size):
        offset = slave.append_raw(offset, data)


def visible(store: Store) -> dict[tuple[str, int], list[int]]:
    """The messages of every queue that has some."""
    found = {
        (topic, queue_id): numbers(store, topic, queue_id)
        for topic in TOPICS
        for queue_id in QUEUES
    }
    return {key: kept for key, kept in found.items() if kept}


def test_a_deleted_topic_is_gone_and_stays_gone_after_a_crash() -> None:
    master, disk = open_store(RecordingDisk()), RecordingDisk()
    slave = open_store(disk)
    for number in range(10):
        master.append(message(number, queue_id=number % 3), number)
    copy(master, slave)
    master.delete_topic("orders", 1)
    assert slave.follow_deletions(master.deletions) == ["orders"]
    slave.save_deletions()
    assert visible(slave) == {}
    slave = open_store(disk.killed())
    assert visible(slave) == {}
    assert slave.follow_deletions(master.deletions) == []


@pytest.mark.parametrize("queues", [(0,), (0, 1, 2)])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_recreated_topic_keeps_its_messages(queues: tuple[int, ...], checkpoint: bool) -> None:
    master, disk = open_store(RecordingDisk()), RecordingDisk()
    slave = open_store(disk)
    for number in range(10):
        master.append(message(number, queue_id=number % 3), number)
    copy(master, slave)
    master.delete_topic("orders", 1)
    for queue_id in queues:
        master.append(message(100 + queue_id, queue_id=queue_id), 100)
    copy(master, slave)
    if checkpoint:
        for now_ms in range(1_000, 2_000, 100):
            slave.tick(now_ms)
            flush(slave, disk)
    slave.follow_deletions(master.deletions)
    slave.save_deletions()
    expected = {("orders", queue_id): [100 + queue_id] for queue_id in queues}
    assert visible(slave) == visible(master) == expected
    told = Told()
    slave = open_store(disk.killed(), report=told)
    assert visible(slave) == expected
    assert not told.damage


class CopyMachine(RuleBasedStateMachine):
    """A master that deletes and makes topics again, a slave that follows and crashes."""

    @initialize(seed=st.integers(0, 1_000))
    def make(self, seed: int) -> None:
        self.rng = Random(seed)
        self.master = open_store(RecordingDisk())
        self.disk = RecordingDisk()
        self.slave = open_store(self.disk)
        self.number = 0
        self.now = 1

    @rule(topic=st.sampled_from(TOPICS), queue_id=st.sampled_from(QUEUES), count=st.integers(1, 60))
    def append(self, topic: str, queue_id: int, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.master.append(message(self.number, topic, queue_id), self.now)

    @rule(topic=st.sampled_from(TOPICS))
    def delete(self, topic: str) -> None:
        self.now += 1
        self.master.delete_topic(topic, self.now)

    @rule(size=st.integers(100, 5_000))
    def copy_a_piece(self, size: int) -> None:
        offset = self.slave.max_log_offset
        self.slave.append_raw(offset, self.master.read_log(offset, size))
        self.slave.forget_held_bytes()

    @rule()
    def checkpoint(self) -> None:
        self.now += 60
        self.slave.tick(self.now)
        flush(self.slave, self.disk)

    @rule()
    def kill(self) -> None:
        self.disk = self.disk.killed()
        self.slave = open_store(self.disk, now_ms=self.now)

    @rule()
    def lose_power(self) -> None:
        self.disk = self.disk.crashed(self.rng)
        self.slave = open_store(self.disk, now_ms=self.now)

    @rule(messages_after=st.integers(0, 5), topic=st.sampled_from(TOPICS))
    def follow(self, messages_after: int, topic: str) -> None:
        """The state is taken, more is stored and copied, and the state is applied."""
        deletions = self.master.deletions
        for _ in range(messages_after):
            self.append(topic, 0, 1)
        copy(self.master, self.slave)
        self.slave.follow_deletions(deletions)
        self.slave.save_deletions()

    @invariant()
    def what_follows_is_the_same(self) -> None:
        if self.slave.max_log_offset == self.master.max_log_offset and all(
            self.slave.deletions.get(topic, 0) >= before
            for topic, before in self.master.deletions.items()
        ):
            assert visible(self.slave) == visible(self.master)


TestCopiedDeletions = CopyMachine.TestCase
TestCopiedDeletions.settings = settings(stateful_step_count=30)
