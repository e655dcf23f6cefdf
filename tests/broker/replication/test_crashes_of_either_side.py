"""Crashes at every disk call of either side: the next start recovers, and nothing is lost.

The process ends instead of a call that changes something; a kill leaves what was written, a power
cut a part of it.
"""

from collections.abc import Callable, Iterator
from random import Random

import pytest

from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.replication.fresh_start import ask_for_new_start, set_store_aside
from sparrowmq.broker.replication.known_slaves import KnownSlaves
from sparrowmq.broker.replication.replication import Role
from sparrowmq.store.layout import LOG_DIR
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.seeds import in_part

TOPIC = "orders"
SENT = [b"message %d" % number for number in range(8)]
CALLS = sorted(range(1, 61), key=lambda call: call % 3 != 1)
"""Every call of the disk; every third one first, of which a few are met in every run."""


def bodies(node: BrokerNode) -> list[bytes]:
    store = node.broker.store
    records = (store.read_record(unit[0]) for unit in store.units(TOPIC, 0, 0, 1000))
    return [record.body for record in records if record is not None]


def feeds(node: BrokerNode) -> bool:
    if not hasattr(node.server, "broker"):
        return False
    replication = node.broker.replication
    return replication.role is Role.MASTER and 1 in replication.feed.links


def crashes(disk: RecordingDisk, call: int, power: bool) -> RecordingDisk:
    return disk.crashed(Random(call)) if power else disk.killed()


def crash_at(
    sim: RunningCluster, node: BrokerNode, call: int, power: bool, is_done: Callable[[], bool]
) -> bool:
    """Start a broker that crashes at that call of its disk, unless it is done before; whether it
    crashed. It runs again when this returns."""
    node.disk.cut_at(call)
    try:
        node.start()
        sim.until(lambda: node.has_ended or is_done())
        if not node.has_ended:
            node.disk.cut_at(1_000_000)
            return False
        node.wait_for_end()
    except BaseExceptionGroup as error:
        assert error.split(PowerCut)[1] is None, error
    except PowerCut:
        pass
    if node.host.is_up:
        node.kill()
    node.disk = crashes(node.disk, call, power)
    node.start()
    return True


def cluster() -> SimCluster:
    return SimCluster(slaves=1, replication=ReplicationMode.SYNC, flush_interval_s=600.0)


def fill(sim: RunningCluster) -> tuple[BrokerNode, BrokerNode]:
    master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
    sim.until(lambda: feeds(master))
    for body in SENT:
        sim.wait(sim.client.send(TOPIC, body))
    return master, slave


def check_both(sim: RunningCluster) -> None:
    """Everything that was acknowledged is on both, and they work together."""
    master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
    sim.until(lambda: feeds(master))
    sim.client.disconnect()
    sim.wait(sim.client.send(TOPIC, b"after"))
    assert bodies(master) == [*SENT, b"after"]
    assert bodies(slave) == [*SENT, b"after"]


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("call", in_part(CALLS, few=5))
def test_a_master_that_crashes_while_it_copies_back_copies_back_again(
    call: int, power: bool
) -> None:
    with cluster().run() as sim:
        master, _ = fill(sim)
        master.lose_power()
        crashed = crash_at(sim, master, call, power, lambda: feeds(master))
        assert crashed or call > 15
        check_both(sim)


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("call", in_part(CALLS, few=5))
def test_a_slave_that_crashes_while_it_joins_joins_again(call: int, power: bool) -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.ASYNC, flush=Flush.SYNC).run() as sim:
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        slave.kill()
        slave.disk = RecordingDisk()
        for body in SENT:
            sim.wait(sim.client.send(TOPIC, body))

        def has_all() -> bool:
            if not hasattr(slave.server, "broker"):
                return False
            end = slave.broker.store.durable_log_offset
            return end == master.broker.store.max_log_offset

        crashed = crash_at(sim, slave, call, power, has_all)
        assert crashed or call > 15
        sim.until(has_all)
        assert bodies(slave) == SENT


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("call", range(1, 9))
def test_a_slave_follows_only_when_it_would_be_remembered(call: int, power: bool) -> None:
    """A master that crashes while it notes a new slave asks it at the next start, or was never
    followed by it."""
    disk = RecordingDisk()
    disk.mkdir("sparrowmq")
    disk.sync_dir("")
    known = KnownSlaves(disk)
    known.remember(1, "10.0.0.1:10911")
    disk.cut_at(call)
    try:
        known.remember(2, "10.0.0.2:10911")
        is_saved = True
    except PowerCut:
        is_saved = False
    found = KnownSlaves.load(crashes(disk, call, power)).addresses
    assert found[1] == "10.0.0.1:10911"
    assert not is_saved or 2 in found


def _aside() -> Iterator[tuple[RecordingDisk, int]]:
    """A store that asked for a new start, crashed at each call of its move."""
    for call in range(1, 200):
        disk = RecordingDisk()
        for name in (f"{LOG_DIR}/0", "consumequeue/orders/0", "config/topics.json"):
            disk.mkdir(name.rpartition("/")[0])
            disk.poke(name, b"old")
        ask_for_new_start(disk)
        disk.cut_at(call)
        try:
            set_store_aside(disk)
        except PowerCut:
            yield disk, call
        else:
            return


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
def test_a_store_is_moved_aside_completely_despite_a_crash_in_any_disk_call(power: bool) -> None:
    calls = 0
    for disk, call in _aside():
        after = crashes(disk, call, power)
        set_store_aside(after)
        assert set_store_aside(after) is None, call
        kept = {path: data for path, data in after.files().items() if data == b"old"}
        assert sorted(kept) == [
            "aside-1/commitlog/0",
            "aside-1/config/topics.json",
            "aside-1/consumequeue/orders/0",
        ], call
        calls += 1
    assert calls > 5
