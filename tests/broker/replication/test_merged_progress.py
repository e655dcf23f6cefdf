"""Progress of groups when a master is lost and returns: only a rewind moves it back."""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from sparrowmq.broker.consumer_offsets import ConsumerOffsets, finished
from sparrowmq.broker.replication.table_rules import OffsetChange

QUEUES = st.integers(0, 1)
SLAVES = st.integers(0, 1)
END = 100


def everything(offsets: ConsumerOffsets) -> list[OffsetChange]:
    """The whole content of a table, in an order that does not depend on its history."""
    return sorted(offsets.everything())


def copy_whole(master: ConsumerOffsets, slave: ConsumerOffsets) -> None:
    """What a slave does with a whole table."""
    finished(slave.comparing_missing(master.table()))
    slave.merge(everything(master))


def place(offsets: ConsumerOffsets, queue_id: int) -> tuple[int, int]:
    """Rewind and offset of a queue."""
    for change in everything(offsets):
        if change.queue_id == queue_id:
            return change.rewind, change.offset
    return 0, -1


class ProgressMachine(RuleBasedStateMachine):
    """A master with two slaves. Members commit at the master, and at slaves while it is away."""

    @initialize()
    def make(self) -> None:
        self.life = 1
        self.master: ConsumerOffsets | None = ConsumerOffsets({})
        self.master.begin_life(self.life)
        self.slaves = [ConsumerOffsets({}) for _ in range(2)]
        for slave in self.slaves:
            slave.is_copy = True
        self.saved: list[OffsetChange] = []
        self.seen: dict[tuple[int, int], tuple[int, int]] = defaultdict(lambda: (0, -1))
        """Slave and queue to the highest place that it was seen at."""

    @precondition(lambda self: self.master is not None)
    @rule(queue_id=QUEUES, offset=st.integers(0, END))
    def commit_at_the_master(self, queue_id: int, offset: int) -> None:
        assert self.master is not None
        self.master.carry("g", "t", queue_id, offset)

    @precondition(lambda self: self.master is not None)
    @rule(queue_id=QUEUES, offset=st.integers(0, END))
    def commit_back_at_the_master(self, queue_id: int, offset: int) -> None:
        assert self.master is not None
        self.master.commit("g", "t", queue_id, offset)

    @rule(slave=SLAVES, queue_id=QUEUES, offset=st.integers(0, END))
    def commit_at_a_slave(self, slave: int, queue_id: int, offset: int) -> None:
        offsets = self.slaves[slave]
        before = offsets.get("g", "t", queue_id)
        offsets.commit("g", "t", queue_id, offset)
        if not offsets.pending_resets():
            assert offsets.get("g", "t", queue_id) == max(before, offset)

    @precondition(lambda self: self.master is not None)
    @rule(queue_id=QUEUES, offset=st.integers(0, END))
    def reset(self, queue_id: int, offset: int) -> None:
        assert self.master is not None
        self.master.reset("g", "t", queue_id, offset)
        self.save()  # as the answer to a reset does
        self.master.applied("g", "t", queue_id)

    @precondition(lambda self: self.master is not None)
    @rule()
    def delete_the_topic(self) -> None:
        assert self.master is not None
        self.master.remove_topic("t")
        self.save()

    @precondition(lambda self: self.master is not None)
    @rule(slave=SLAVES)
    def copy(self, slave: int) -> None:
        assert self.master is not None
        copy_whole(self.master, self.slaves[slave])

    @precondition(lambda self: self.master is not None)
    @rule(slave=SLAVES)
    def follow(self, slave: int) -> None:
        """What a slave does: after a state it sends what the master lacks."""
        assert self.master is not None
        self.copy(slave)
        self.master.merge(self.slaves[slave].take_unsent(END))
        self.copy(slave)
        assert everything(self.slaves[slave]) == everything(self.master)

    @precondition(lambda self: self.master is not None)
    @rule()
    def save(self) -> None:
        assert self.master is not None
        self.saved = everything(self.master)

    @precondition(lambda self: self.master is not None)
    @rule()
    def lose_the_master(self) -> None:
        self.master = None

    @precondition(lambda self: self.master is None)
    @rule(answers=st.sets(SLAVES))
    def return_of_the_master(self, answers: set[int]) -> None:
        self.life += 1_000
        self.master = ConsumerOffsets({})
        for change in self.saved:
            self.master.replay(change)
        saved = [place(self.master, queue_id) for queue_id in range(2)]
        self.master.begin_life(self.life)
        for slave in answers:
            self.master.merge(everything(self.slaves[slave]))
        for queue_id in range(2):
            known = [place(self.slaves[slave], queue_id) for slave in answers]
            assert place(self.master, queue_id) == max([saved[queue_id], *known])

    @invariant()
    def a_slave_moves_back_by_a_rewind_only(self) -> None:
        for number, slave in enumerate(self.slaves):
            for queue_id in range(2):
                now = place(slave, queue_id)
                assert now >= self.seen[number, queue_id]
                self.seen[number, queue_id] = now

    @invariant()
    def a_rewind_is_of_one_life(self) -> None:
        """Numbers are not used again, although a power cut takes some of them from the master."""
        assert self.master is None or self.master.last_rewind >= self.life


TestProgress = ProgressMachine.TestCase
TestProgress.settings = settings(stateful_step_count=40)


def test_the_journal_records_the_merged_progress() -> None:
    offsets = ConsumerOffsets({})
    offsets.is_copy = True
    offsets.merge([OffsetChange("t@g", 0, 7, False, 3), OffsetChange("t@g", 1, -1, False, 4)])
    replayed = ConsumerOffsets({})
    for change in offsets.take_dirty():
        replayed.replay(change)
    assert everything(replayed) == everything(offsets)


def test_a_reset_that_a_member_applied_at_a_slave_is_over_at_the_master() -> None:
    master, slave = ConsumerOffsets({}), ConsumerOffsets({})
    slave.is_copy = True
    master.reset("g", "t", 0, 10)
    slave.merge(everything(master))
    slave.commit("g", "t", 0, 99)
    assert slave.get("g", "t", 0) == 10, "a commit of before the reset"
    assert slave.redirect("g", "t", 0, "member") == 10
    assert slave.redirect("g", "t", 0, "member") is None
    slave.commit("g", "t", 0, 12)
    master.merge(everything(slave))
    assert master.get("g", "t", 0) == 12
    assert not master.pending_resets()


def test_of_too_many_removed_offsets_the_last_are_not_remembered_by_row() -> None:
    master, slave = ConsumerOffsets({}), ConsumerOffsets({})
    slave.is_copy = True
    for number in range(10_001):
        master.carry(f"g{number}", "t", 0, 5)
    slave.merge(everything(master))
    master.remove_topic("t")
    assert everything(master) == []
    copy_whole(master, slave)
    assert dict(slave.rows()) == {}


def test_a_slave_sends_its_own_commits_and_those_its_master_lost() -> None:
    slave = ConsumerOffsets({"t@g": {0: 5, 1: 5, 2: 5, 3: 5}, "t@new": {0: 1}})
    slave.is_copy = True
    master = ConsumerOffsets({"t@g": {0: 5, 1: 6, 2: 4, 3: 5}})
    copy_whole(master, slave)
    slave.commit("g", "t", 3, 7)
    later = [("t@new", 0), ("t@g", 2), ("t@g", 3)]
    sent = slave.take_unsent(2)
    slave.mark_unsent(sent)
    assert {change[:2] for change in slave.take_unsent(10)} == set(later)
    assert slave.take_unsent(10) == []
    slave.merge([OffsetChange("t@g", 3, 7)])
    assert slave.take_unsent(10) == []
