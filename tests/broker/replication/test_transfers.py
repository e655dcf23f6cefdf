"""When a master sends appended records to its slaves: at once, or grouped with other sends."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import BrokerConfig, Flush, ReplicationMode
from sparrowmq.broker.durability import CROWD, GATHER_S, GROUP, Durability
from sparrowmq.broker.replication.confirmation import Confirmation
from sparrowmq.broker.replication.replicas import Replicas
from sparrowmq.broker.replication.shown_end import ShownEnd
from sparrowmq.net.tasks import Uncancellable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.simulation import Simulation
from tests.broker.durability_world import Bench, KeptRequest

SLAVE = 1


class Transfers(Bench):
    """A master with one slave, which acknowledges when the test decides."""

    def __init__(self, sim: Simulation) -> None:
        self.replicas = Replicas(wanted=2, least=1, max_gap_bytes=1 << 20)
        self.ends: list[int] = []
        """Where each transfer ended."""
        super().__init__(sim, Flush.ASYNC)

    async def _make(self, flush: Flush) -> Durability:
        config = BrokerConfig(
            data_dir=Path("/simulated"), flush=flush, replication=ReplicationMode.SYNC
        )
        self.arrivals = Arrivals(asyncio.get_running_loop(), self.store, max_waiting=10)
        copies = Confirmation(
            config, self.store, self.arrivals, self.replicas, ShownEnd(RecordingDisk())
        )
        copies.feed = self._transfer
        self.replicas.acknowledge(SLAVE, 0)
        return Durability(config, self.store, self, self.arrivals, Uncancellable(), copies)

    def _transfer(self) -> None:
        """As a feed does: one transfer at a time, and none of nothing."""
        sent = self.ends[-1] if self.ends else 0
        if self.replicas.confirmed == sent < self.store.max_log_offset:
            self.ends.append(self.store.max_log_offset)

    def acknowledge(self) -> None:
        """The slave has the last message sent."""
        if self.replicas.acknowledge(SLAVE, self.ends[-1]):
            self.durability.copies_confirmed()
        self.settle()

    def answer_crowd(self, count: int = CROWD) -> None:
        sends = [self.send() for _ in range(count)]
        self.settle()
        self.acknowledge()
        assert [send.code for send in sends] == [ResponseCode.SUCCESS] * count


@pytest.fixture
def master() -> Iterator[Transfers]:
    with Simulation(seed=1) as sim:
        yield Transfers(sim)


def sends(master: Transfers, count: int) -> list[KeptRequest]:
    """So many sends of one turn of the loop."""
    made = [master.send() for _ in range(count)]
    master.settle()
    return made


def test_sends_of_one_turn_share_a_transfer(master: Transfers) -> None:
    waiting = sends(master, 3)
    assert len(master.ends) == 1
    assert [send.code for send in waiting] == [None] * 3
    master.acknowledge()
    assert [send.code for send in waiting] == [ResponseCode.SUCCESS] * 3


def test_one_of_many_senders_waits_for_a_group(master: Transfers) -> None:
    master.answer_crowd()
    sends(master, GROUP - 1)
    assert len(master.ends) == 1
    sends(master, 1)
    assert len(master.ends) == 2


def test_a_group_that_gathered_during_a_transfer_follows_its_acknowledgement(
    master: Transfers,
) -> None:
    first = sends(master, CROWD)
    second = sends(master, GROUP)
    assert len(master.ends) == 1
    master.acknowledge()
    assert first[-1].code == ResponseCode.SUCCESS
    assert second[0].code is None
    assert len(master.ends) == 2


def test_a_group_that_stays_small_waits_a_millisecond(master: Transfers) -> None:
    master.answer_crowd()
    (send,) = sends(master, 1)
    master.sim.advance(GATHER_S / 2)
    assert len(master.ends) == 1
    master.sim.advance(GATHER_S)
    assert len(master.ends) == 2
    master.acknowledge()
    assert send.code == ResponseCode.SUCCESS


def test_few_senders_do_not_wait_for_a_group(master: Transfers) -> None:
    master.answer_crowd(CROWD - 1)
    sends(master, 1)
    assert len(master.ends) == 2


def test_a_crowd_that_left_is_forgotten(master: Transfers) -> None:
    master.answer_crowd()
    sends(master, 1)
    master.sim.advance(2 * GATHER_S)
    master.acknowledge()
    sends(master, 1)
    assert len(master.ends) == 3


def test_a_send_without_slaves_is_answered_in_its_turn(master: Transfers) -> None:
    master.replicas.disconnect(SLAVE)
    (send,) = sends(master, 1)
    assert send.code == ResponseCode.SLAVE_NOT_AVAILABLE
