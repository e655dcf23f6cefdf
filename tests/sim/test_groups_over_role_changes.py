"""Brokers change their roles as planned, under members of every kind: nothing is lost or skipped,
order is kept, and no progress moves back."""

import asyncio
from pathlib import Path

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.replication.replication import Role
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.replication import HandOver
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.faults.replication_planted import take_over_with_older_tables
from tests.seeds import seeds
from tests.sim.replicated import TOPIC, follows, role
from tests.sim.slaves import MASTER, SLAVE, SLAVE_ID, with_slave
from tests.sim.test_losses_of_the_master import QUEUES, Handled, Progress, start_members

CHANGES = 4
BETWEEN_S = 2.0
CAUGHT_UP_S = 10.0


class Master:
    """Which of the two brokers is the master now."""

    def __init__(self, sim: RunningCluster) -> None:
        self._sim = sim
        self.name, self.other = MASTER, SLAVE

    @property
    def node(self) -> BrokerNode:
        return self._sim.brokers[self.name]

    def hand_over(self) -> None:
        """As `sparrowmq broker demote` does; returns when the old master follows the new one."""
        sim = self._sim
        answer = sim.wait(sim.client.call(HandOver(), address=self.node.address))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        self.name, self.other = self.other, self.name
        sim.until(lambda: hasattr(self.node.server, "broker") and role(self.node) is Role.MASTER)
        sim.until(lambda: follows(sim, SLAVE_ID, self.name))


class Sender:
    """One producer, so that the bodies of a queue are numbers that only grow."""

    def __init__(self, sim: RunningCluster) -> None:
        self.sent: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        self.is_stopping = False
        self._sim = sim
        self.task = sim.host("sender").start(self._send())

    async def _send(self) -> None:
        rng, number = self._sim.rng("sender"), 0
        client = self._sim.client_on("sender")
        await client.start()
        async with Producer("shop", client=client) as producer:
            while not self.is_stopping:
                number += 1
                body = b"%d" % number
                result = await producer.send(Message(TOPIC, body))
                assert result.is_ok
                self.sent[result.queue.queue_id].append(body)
                await asyncio.sleep(rng.random() / 10)
        await client.stop()


def change_roles(sim: RunningCluster, tmp_path: Path) -> tuple[Sender, dict[str, Handled]]:
    """Returns what was sent, and what each kind of members was given."""
    master = Master(sim)
    sender, handled = Sender(sim), start_members(sim, tmp_path)
    progress = Progress(sim, ("concurrent", "ordered", "lite"), lambda: master.node)
    for _ in range(CHANGES):
        sim.advance(BETWEEN_S)
        progress.ask()
        master.hand_over()
        progress.ask()
    sim.advance(BETWEEN_S)
    progress.ask()
    sender.is_stopping = True
    sim.wait(sender.task)
    sim.advance(CAUGHT_UP_S)
    progress.ask()
    return sender, handled


@pytest.mark.parametrize("number", seeds(8, few=1))
def test_members_of_every_kind_get_everything_in_order_while_roles_change(
    number: int, tmp_path: Path
) -> None:
    with with_slave(queues=QUEUES, seed=number, replication=ReplicationMode.SYNC) as sim:
        sender, handled = change_roles(sim, tmp_path)
        assert min(map(len, sender.sent.values())) > 20
        for kind, got in handled.items():
            assert got.has_all(sender.sent), kind
        handled["ordered"].check_order()


def test_planted_a_new_master_with_older_tables_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_over_with_older_tables(monkeypatch.setattr)
    with (
        with_slave(queues=QUEUES, seed=0, replication=ReplicationMode.SYNC) as sim,
        pytest.raises(AssertionError, match=r"queue \d: \d+ became \d+"),
    ):
        change_roles(sim, tmp_path)
