"""Crashes at every call of a disk while a slave follows, and while a master hands over to it."""

from contextlib import suppress

import pytest

from sparrowmq.broker.replication.current_role import CurrentRole
from sparrowmq.protocol.headers.replication import HandOver, TakeOver
from sparrowmq.testing.recorded_calls import PowerCut
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused
from tests.broker.replication.test_crashes_of_either_side import (
    CALLS,
    SENT,
    TOPIC,
    bodies,
    cluster,
    crashes,
    feeds,
    fill,
)
from tests.seeds import in_part

_CHANGE_S = 5.0


def restart_after_crash(node: BrokerNode, call: int, power: bool) -> bool:
    """Start a broker again that has met its last call; whether it had."""
    has_crashed = node.has_ended
    if has_crashed:
        try:
            node.wait_for_end()
        except BaseExceptionGroup as error:
            assert error.split(PowerCut)[1] is None, error
        except PowerCut:
            pass
    if node.host.is_up:
        node.kill()
    node.disk = crashes(node.disk, call, power)
    node.start()
    return has_crashed


def is_equal(sim: RunningCluster) -> bool:
    ends = {
        node.broker.store.max_log_offset
        for node in sim.brokers.values()
        if hasattr(node.server, "broker")
    }
    return len(ends) == 1


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("call", in_part(CALLS, few=5))
def test_a_slave_that_crashes_while_following_resumes(call: int, power: bool) -> None:
    """It crashes in what it appends, and in the topics and progress that it copies."""
    with cluster().run() as sim:
        master, slave = fill(sim)
        slave.disk.cut_at(call)
        sent = []
        for number in range(12):
            sent.append(b"later %d" % number)
            for topic, body in ((TOPIC, sent[-1]), (f"topic-{number}", b"x")):
                with suppress(Refused):  # stored, without a second copy
                    sim.wait(sim.client.send(topic, body))
            sim.advance(0.4)
        assert restart_after_crash(slave, call, power) or call > 15
        sim.until(lambda: feeds(master) and is_equal(sim))
        assert bodies(master) == bodies(slave) == [*SENT, *sent]


def id_of(node: BrokerNode) -> int:
    return CurrentRole.load(node.disk, node.config.broker_id).broker_id


@pytest.mark.parametrize("promoted", ["broker-a", "broker-a.1"])
@pytest.mark.parametrize("victim", ["broker-a", "broker-a.1"])
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power cut"])
@pytest.mark.parametrize("call", in_part(CALLS, few=3))
def test_a_crash_in_a_change_of_roles_leaves_one_master_at_most_and_everything_stored(
    call: int, power: bool, victim: str, promoted: str
) -> None:
    with cluster().run() as sim:
        master, slave = fill(sim)
        sim.until(lambda: is_equal(sim))
        node = sim.brokers[victim]
        node.disk.cut_at(call)
        asking = sim.client.call(HandOver(), address=master.address)
        sim.until(lambda: node.has_ended or asking.done())
        sim.advance(_CHANGE_S)
        asking.cancel()
        assert restart_after_crash(node, call, power) or call > 5
        sim.advance(_CHANGE_S)
        masters = [each for each in (master, slave) if id_of(each) == 0]
        assert len(masters) <= 1
        if not masters:  # an operator promotes the old one: a power cut may take from the other
            assert id_of(master) == id_of(slave) == 1
            assert master.broker.store.max_log_offset >= slave.broker.store.max_log_offset
            masters = [sim.brokers[promoted] if is_equal(sim) else master]
            sim.client.disconnect()
            taking = TakeOver(accept_loss="broker-a")
            sim.wait(sim.client.call(taking, address=masters[0].address))
        sim.until(lambda: feeds(masters[0]) and is_equal(sim))
        assert bodies(master) == bodies(slave) == SENT
