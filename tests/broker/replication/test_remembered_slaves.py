"""Slaves that a master remembers: listed with their log end, and retired when they are gone."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from msgspec import structs

from sparrowmq import Admin, AdminError, SlaveInfo
from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.replication.known_slaves import KnownSlaves
from sparrowmq.broker.replication.log_description import LogDescription
from sparrowmq.broker.replication.replication import Role
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.replication import (
    DescribeLog,
    FollowMaster,
    ListSlaves,
    RetireSlave,
)
from sparrowmq.store.epochs import LogStart
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused
from tests.admin.operator import as_operator

TOPIC = "orders"


def follows(sim: RunningCluster) -> bool:
    server = sim.brokers["broker-a"].server
    return hasattr(server, "broker") and 1 in server.broker.replication.feed.links


def unsynced() -> SimCluster:
    return SimCluster(slaves=1, replication=ReplicationMode.SYNC, flush_interval_s=600.0)


@pytest.fixture
def sim() -> Iterator[RunningCluster]:
    """A master that syncs nothing by itself, and its slave, which has a message."""
    with unsynced().run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"a message"))
        yield sim


def nodes(sim: RunningCluster) -> tuple[BrokerNode, BrokerNode]:
    return sim.brokers["broker-a"], sim.brokers["broker-a.1"]


def listed(sim: RunningCluster) -> list[SlaveInfo]:
    async def work(admin: Admin) -> list[SlaveInfo]:
        return list(await admin.slaves())

    return as_operator(sim, work)


def retire(sim: RunningCluster, broker_id: int = 1, *, dry_run: bool = False) -> SlaveInfo:
    async def work(admin: Admin) -> SlaveInfo:
        return await admin.retire_slave("broker-a", broker_id, dry_run=dry_run)

    return as_operator(sim, work)


def lose_slave(sim: RunningCluster) -> None:
    sim.brokers["broker-a.1"].kill()
    sim.until(lambda: not follows(sim))


def needed_from(node: BrokerNode) -> int | None:
    return node.broker.replication.needed_from


def now(sim: RunningCluster) -> datetime:
    return datetime.fromtimestamp(sim.clock() / 1000, UTC)


def test_a_following_slave_is_listed_with_its_log_end(sim: RunningCluster) -> None:
    (slave,) = listed(sim)
    assert (slave.broker, slave.broker_id, slave.follows) == ("broker-a", 1, True)
    assert slave.address == sim.brokers["broker-a.1"].address
    assert slave.acknowledged == sim.broker.store.max_log_offset
    assert slave.behind_bytes == 0
    assert slave.heard is not None
    assert now(sim) - slave.heard < timedelta(seconds=6)


def test_a_slave_that_is_away_is_listed_with_its_last_log_end_and_time(
    sim: RunningCluster,
) -> None:
    had, before = sim.broker.store.max_log_offset, now(sim)
    lose_slave(sim)
    with pytest.raises(Refused):
        sim.wait(sim.client.send(TOPIC, b"on the master alone"))
    sim.advance(100)
    (slave,) = listed(sim)
    assert not slave.follows
    assert slave.acknowledged == had
    assert slave.behind_bytes == sim.broker.store.max_log_offset - had > 0
    assert slave.heard is not None
    assert slave.heard - before < timedelta(seconds=30)


def test_a_slaves_log_end_is_known_after_an_orderly_restart(sim: RunningCluster) -> None:
    master, _ = nodes(sim)
    lose_slave(sim)
    (before,) = listed(sim)
    master.stop()
    master.start()
    assert listed(sim) == [before]


def test_a_retired_slave_is_neither_listed_nor_asked_nor_kept_files_for(
    sim: RunningCluster,
) -> None:
    master, _ = nodes(sim)
    lose_slave(sim)
    kept_from = [needed_from(master)]
    retire(sim)
    assert listed(sim) == []
    assert [*kept_from, needed_from(master)] == [master.broker.store.max_log_offset, None]
    master.lose_power()
    master.start()
    assert master.broker.replication.role is Role.MASTER
    sim.client.disconnect()
    assert sim.wait(sim.client.pull(TOPIC)).bodies == [b"a message"], "it was on the slave alone"


def test_a_dry_run_retires_nothing(sim: RunningCluster) -> None:
    lose_slave(sim)
    assert retire(sim, dry_run=True) in listed(sim)


def test_a_retired_slave_that_comes_back_is_remembered_again(sim: RunningCluster) -> None:
    lose_slave(sim)
    retire(sim)
    sim.brokers["broker-a.1"].start()
    sim.until(lambda: follows(sim))
    assert [slave.broker_id for slave in listed(sim)] == [1]


def waiting(sim: RunningCluster) -> None:
    lose_slave(sim)
    sim.brokers["broker-a"].lose_power()
    sim.brokers["broker-a"].start()
    sim.client.disconnect()


def test_a_broker_with_the_id_of_a_slave_and_another_history_does_not_take_its_place(
    sim: RunningCluster,
) -> None:
    lose_slave(sim)
    master, slave = nodes(sim)
    master.restart()
    sim.client.disconnect()
    assert master.broker.replication.role is Role.WAITING
    own = LogDescription.from_json(sim.wait(sim.client.call(DescribeLog())).body).claim
    other = structs.replace(own, broker_id=1, address="10.9.9.9:10911")
    for lineage, address in (
        ((LogStart(1, 0),), slave.address),
        (own.lineage, other.address),
    ):
        claim = structs.replace(other, lineage=lineage)
        sim.wait(sim.client.call(FollowMaster(), claim.to_json()))
        assert [each.address for each in listed(sim)] == [address]


REFUSED: dict[str, tuple[Callable[[RunningCluster], None], int, str, str]] = {
    "it follows": (lambda sim: None, 1, "follows", "slave 1 at .* follows this master"),
    "another id": (lose_slave, 2, "does not exist; it remembers: 1", "remembers: 1"),
    "its master waits for it": (waiting, 1, "--accept-loss broker-a", "--accept-loss broker-a"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_slave_that_is_needed_or_unknown_is_not_retired(name: str, sim: RunningCluster) -> None:
    prepare, broker_id, text, text_of_broker = REFUSED[name]
    prepare(sim)
    before = listed(sim)
    with pytest.raises(AdminError, match=text):
        retire(sim, broker_id)
    answer = sim.wait(sim.client.call(RetireSlave(broker_id=broker_id)))
    assert answer.code != ResponseCode.SUCCESS
    assert re.search(text_of_broker, answer.remark)
    assert [slave.broker_id for slave in listed(sim)] == [slave.broker_id for slave in before]


@pytest.mark.parametrize("request_of_master", [ListSlaves(), RetireSlave(broker_id=1)])
def test_a_slave_remembers_no_slaves(
    request_of_master: ListSlaves | RetireSlave, sim: RunningCluster
) -> None:
    slave = sim.brokers["broker-a.1"].address
    answer = sim.wait(sim.client.call(request_of_master, address=slave))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "ask its master" in answer.remark


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("call", range(1, 12))
def test_a_slave_whose_retirement_was_answered_stays_retired(call: int, power: bool) -> None:
    """Whichever call of the disk a crash meets, the slave is remembered, or the master has synced
    everything that the slave had."""
    with unsynced().run() as sim:
        sim.until(lambda: follows(sim))
        sim.wait(sim.client.send(TOPIC, b"a message"))
        lose_slave(sim)
        master = sim.brokers["broker-a"]
        end = master.broker.store.max_log_offset
        master.disk.cut_at(call)
        asked = sim.client.call(RetireSlave(broker_id=1), timeout_s=5.0)
        sim.until(lambda: asked.done() or master.has_ended)
        is_answered = not master.has_ended and asked.result().code == ResponseCode.SUCCESS
        if master.has_ended:
            with pytest.raises(BaseExceptionGroup) as ended:
                master.wait_for_end()
            assert ended.value.split(PowerCut)[1] is None
        disk = master.disk.crashed(sim.rng("cut")) if power else master.disk.killed()
        known = KnownSlaves.load(disk)
        if is_answered:
            assert not known.slaves
        if not known.slaves:
            assert master.broker.store.durable_log_offset == end
