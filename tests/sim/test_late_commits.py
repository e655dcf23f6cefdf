"""Members that read from a slave and commit to its master later do not move their group back."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import Heartbeat, LockBatch
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.headers.offsets import (
    OffsetFound,
    QueryConsumerOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData
from sparrowmq.protocol.locks import LockBatchRequest
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.sim.replicated import TOPIC, follows
from tests.sim.slaves import MASTER, SLAVE, create_topic, send, with_slave

GROUP = "billing"
SENT = 20
COMMITS = ("one-way", "answered")


def question(*, only_looks: bool = False) -> QueryConsumerOffset:
    return QueryConsumerOffset(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        set_zero_if_not_found=False,
        only_looks=only_looks or None,
    )


def commit_of(offset: int) -> UpdateConsumerOffset:
    return UpdateConsumerOffset(consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset)


class Member:
    """Commits like a Java or Go member: it takes no locks, and says one-way how far it is."""

    def __init__(self, sim: RunningCluster, name: str) -> None:
        self.name = name
        self.client = sim.new_client(name)
        self._sim = sim

    def join(self, node: BrokerNode) -> None:
        data = HeartbeatData(
            client_id=self.name, consumer_data_set=(ConsumerData(group_name=GROUP),)
        )
        self._sim.wait(self.client.call(Heartbeat(), data.to_json(), address=node.address))

    def take(self, node: BrokerNode) -> int:
        """Where a broker lets it begin the queue."""
        answer = self._sim.wait(self.client.call(question(), address=node.address))
        return answer.header(OffsetFound).offset if answer.code == ResponseCode.SUCCESS else 0

    def commit(self, offset: int, node: BrokerNode, how: str = "one-way") -> None:
        if how == "one-way":
            self._sim.wait(self.client.send_oneway(commit_of(offset), address=node.address))
            self._sim.advance(0.05)
        else:
            answer = self._sim.wait(self.client.call(commit_of(offset), address=node.address))
            assert answer.code == ResponseCode.SUCCESS, answer.remark


def progress(sim: RunningCluster, node: BrokerNode) -> int:
    """What a broker answers to anyone who asks."""
    answer = sim.wait(sim.client.call(question(only_looks=True), address=node.address))
    return answer.header(OffsetFound).offset if answer.code == ResponseCode.SUCCESS else -1


def commit_unknown_to_the_slave(sim: RunningCluster, member: Member, offset: int) -> None:
    """The slave gets nothing of it, as in the last moment before a kill."""
    slave = sim.brokers[SLAVE].host
    slave.pause()
    member.commit(offset, sim.brokers[MASTER])
    assert progress(sim, sim.brokers[MASTER]) == offset


@contextmanager
def taken_over_at_the_slave(**settings: Any) -> Iterator[tuple[RunningCluster, Member]]:
    """One member had 15 when the master was killed; the other one was told 10, and the master is
    back."""
    with with_slave(**settings) as sim:
        send(sim, *(b"%d" % number for number in range(SENT)))
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        one, two = Member(sim, "one"), Member(sim, "two")
        one.join(master)
        two.join(master)
        one.commit(10, master)
        sim.advance(1.0)
        commit_unknown_to_the_slave(sim, one, 15)
        master.kill()
        slave.host.resume()
        for client in (sim.client, one.client, two.client):
            client.disconnect()
        two.join(slave)
        assert two.take(slave) == 10
        two.commit(12, slave)
        master.start()
        sim.until(lambda: follows(sim))
        yield sim, two


@pytest.mark.parametrize("has_joined", [False, True])
def test_a_member_that_took_over_at_the_slave_does_not_move_its_group_back(
    has_joined: bool,
) -> None:
    """What the first member handled is not handled a third time if the second one ends now."""
    with taken_over_at_the_slave() as (sim, member):
        master = sim.brokers[MASTER]
        if has_joined:
            member.join(master)
        for how in COMMITS if has_joined else ("one-way",):
            member.commit(13, master, how)
            assert progress(sim, master) == 15
        sim.advance(1.0)
        assert progress(sim, sim.brokers[SLAVE]) == 15
        member.commit(17, master)
        assert progress(sim, master) == 17, "it has caught up"


def test_a_member_that_was_parted_from_the_master_does_not_move_its_group_back() -> None:
    with with_slave() as sim:
        send(sim, *(b"%d" % number for number in range(SENT)))
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        one, two = Member(sim, "one"), Member(sim, "two")
        for member in (one, two):
            member.join(master)
        assert two.take(master) == 0, "it had the queue before"
        two.commit(2, master)
        assert one.take(master) == 2
        one.commit(5, master)
        sim.advance(1.0)
        sim.paths.partition(
            [master.host, one.client.host, sim.client.host], [slave.host, two.client.host]
        )
        for offset in (10, 15):
            one.commit(offset, master)
            sim.advance(15.0)
        two.join(slave)
        assert two.take(slave) == 5
        two.commit(7, slave)
        sim.paths.heal()
        sim.until(lambda: follows(sim))
        two.join(master)
        two.commit(8, master)
        assert progress(sim, master) == 15
        two.commit(16, master)
        one.commit(15, master)
        assert progress(sim, master) == 16, "now the other one knows less"


def test_a_member_does_not_undo_what_a_slave_adds_after_its_return() -> None:
    with with_slave() as sim:
        send(sim, *(b"%d" % number for number in range(SENT)))
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        one, two = Member(sim, "one"), Member(sim, "two")
        one.join(master)
        one.commit(3, master)
        sim.advance(1.0)
        two.join(slave)
        two.commit(12, slave)
        sim.advance(1.0)
        assert progress(sim, master) == 12
        one.commit(5, master)
        assert progress(sim, master) == 12


def test_a_reset_that_was_applied_just_before_a_loss_repeats_only_what_followed_it() -> None:
    """On the slave it is still pending: members that ask there begin at its offset again."""
    with with_slave() as sim:
        send(sim, *(b"%d" % number for number in range(SENT)))
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        one, two = Member(sim, "one"), Member(sim, "two")
        one.join(master)
        one.commit(15, master)
        header = InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0, queue_id=0, offset=4)
        sim.wait(sim.client.call(header, address=master.address))
        sim.advance(1.0)
        slave.host.pause()
        assert one.take(master) == 4
        one.commit(8, master)
        master.kill()
        slave.host.resume()
        for client in (sim.client, one.client):
            client.disconnect()
        two.join(slave)
        assert two.take(slave) == 4
        two.commit(6, slave)
        assert progress(sim, slave) == 6, "the reset is over there, too"
        master.start()
        assert progress(sim, master) == 8
        two.commit(7, master)
        assert progress(sim, master) == 8


# ---- who moves a group back all the same


@pytest.mark.parametrize("how", COMMITS)
def test_a_member_that_has_caught_up_may_seek_back(how: str) -> None:
    with taken_over_at_the_slave() as (sim, member):
        master = sim.brokers[MASTER]
        member.join(master)
        member.commit(15, master)
        member.commit(4, master, how)
        assert progress(sim, master) == 4
        member.commit(2, master, how)
        assert progress(sim, master) == 2


def test_a_member_that_was_told_where_to_begin_may_seek_back() -> None:
    with taken_over_at_the_slave() as (sim, member):
        master = sim.brokers[MASTER]
        member.join(master)
        assert member.take(master) == 15
        member.commit(4, master)
        assert progress(sim, master) == 4


def test_a_tool_may_set_progress_back_at_any_time() -> None:
    with taken_over_at_the_slave() as (sim, member):
        master = sim.brokers[MASTER]
        member.join(master)
        answer = sim.wait(sim.client.call(commit_of(4), address=master.address))
        assert answer.code == ResponseCode.SUCCESS
        assert progress(sim, master) == 4
        member.commit(13, master)
        assert progress(sim, master) == 13


def test_a_reset_sets_progress_back_at_any_time() -> None:
    with taken_over_at_the_slave() as (sim, member):
        master = sim.brokers[MASTER]
        member.join(master)
        header = InvokeResetOffset(topic=TOPIC, group=GROUP, timestamp=0, queue_id=0, offset=4)
        sim.wait(sim.client.call(header, address=master.address))
        assert member.take(master) == 4
        member.commit(6, master)
        assert progress(sim, master) == 6


def test_a_member_that_locks_its_queues_may_seek_back() -> None:
    """It has compared its progress with the master's when it locked the queue there."""
    with taken_over_at_the_slave() as (sim, member):
        master = sim.brokers[MASTER]
        member.join(master)
        locking = LockBatchRequest(
            consumer_group=GROUP,
            client_id=member.name,
            mq_set=frozenset({MessageQueue(TOPIC, MASTER, 0)}),
        )
        sim.wait(member.client.call(LockBatch(), locking.to_json(), address=master.address))
        member.commit(13, master)
        assert progress(sim, master) == 13


def test_progress_past_the_end_of_a_queue_is_set_back_by_any_member() -> None:
    """Else a group could skip what is stored there next."""
    with taken_over_at_the_slave() as (sim, member):
        master = sim.brokers[MASTER]
        sim.wait(sim.client.call(commit_of(SENT + 10), address=master.address))
        member.join(master)
        member.commit(SENT, master)
        assert progress(sim, master) == SENT


def test_without_slaves_every_commit_counts() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        for number in range(SENT):
            sim.wait(sim.client.send(TOPIC, b"%d" % number))
        master = sim.brokers[MASTER]
        one, two = Member(sim, "one"), Member(sim, "two")
        one.join(master)
        two.join(master)
        one.commit(15, master)
        two.commit(13, master)
        assert progress(sim, master) == 13


# ---- many losses


class Losses:
    """A queue goes to another member with every loss of the master, and the one before commits
    late. There is no time for the slave to learn what the master answered last."""

    def __init__(self, sim: RunningCluster) -> None:
        self._sim = sim
        self._rng = sim.rng("losses")
        self._master, self._slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        self._members = [Member(sim, name) for name in ("one", "two", "three")]
        self._handled: set[int] = set()
        self._stored = 0
        """What the master answered last."""
        self.ignored = 0
        """How many commits were lower than what the master had."""

    def run(self, losses: int) -> None:
        owner, at = self._members[0], 0
        self._all_join()
        for _ in range(losses):
            for _ in range(self._rng.randrange(4)):
                at = self._handle(owner, at, self._master)
                self._sim.advance(self._rng.choice((0.0, 0.0, 0.1, 0.5)))
            at = self._handle(owner, at, self._master)
            next_owner = self._rng.choice([each for each in self._members if each is not owner])
            lose = self._rng.choice((self._kill, self._part))
            lose(owner, at, next_owner)
            self._sim.until(lambda: follows(self._sim))
            self._all_join()
            owner = self._rng.choice(self._members)
            at = owner.take(self._master)

    def _all_join(self) -> None:
        for member in self._members:
            member.join(self._master)

    def _handle(self, member: Member, at: int, node: BrokerNode) -> int:
        """Where the member is then."""
        count = self._rng.randrange(4)
        self._handled.update(range(at, at + count))
        member.commit(at + count, node)
        if node is self._master:
            self.ignored += at + count < self._stored
            self._check()
        return at + count

    def _check(self) -> None:
        stored = progress(self._sim, self._master)
        assert stored >= self._stored, f"moved back from {self._stored} to {stored}"
        assert self._handled.issuperset(range(stored)), f"skipped messages before {stored}"
        self._stored = stored

    def _kill(self, owner: Member, at: int, next_owner: Member) -> None:
        self._master.kill()
        for client in (self._sim.client, *(member.client for member in self._members)):
            client.disconnect()
        next_at = self._take_over(next_owner)
        self._master.start()
        self._check()
        self._come_back(owner, at, next_owner, next_at)

    def _part(self, owner: Member, at: int, next_owner: Member) -> None:
        here = [self._master.host, self._sim.client.host, owner.client.host]
        self._sim.paths.partition(here, [self._slave.host, next_owner.client.host])
        next_at = self._take_over(next_owner)
        at = self._handle(owner, at, self._master)
        self._sim.paths.heal()
        self._come_back(owner, at, next_owner, next_at)

    def _take_over(self, member: Member) -> int:
        member.join(self._slave)
        at = member.take(self._slave)
        for _ in range(self._rng.randrange(3)):
            at = self._handle(member, at, self._slave)
        return at

    def _come_back(self, owner: Member, at: int, next_owner: Member, next_at: int) -> None:
        """Both continue for a moment, at the master, each from where it is."""
        for _ in range(self._rng.randrange(4)):
            if self._rng.randrange(2):
                next_owner.join(self._master)
            next_at = self._handle(next_owner, next_at, self._master)
            owner.commit(at, self._master)
            self.ignored += at < self._stored
            self._check()


@pytest.mark.parametrize(
    ("history", "losses"),
    [(0, 8), *(pytest.param(seed, 50, marks=pytest.mark.slow) for seed in range(8))],
)
def test_progress_never_moves_back_and_skips_nothing_however_late_members_commit(
    history: int, losses: int
) -> None:
    with with_slave(seed=history, limit_s=7200.0) as sim:
        send(sim, *(b"%d" % number for number in range(20 * losses)))
        lost = Losses(sim)
        lost.run(losses)
        assert lost.ignored > losses / 4
