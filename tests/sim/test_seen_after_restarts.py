"""Which messages of a synchronous master consumers may see after it restarts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.replication.replication import Role
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.route import MASTER_ID
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.wire import Refused
from tests.sim.replicated import TOPIC, bodies, follows, role
from tests.sim.slaves import MASTER, SLAVE, pulled, send, with_slave

SYNC: dict[str, Any] = {"replication": ReplicationMode.SYNC, "slave_timeout_s": 2.0}
NEVER_S = 3000.0
WATCHED_S = 1.0
"""A master looks that often for messages that have waited for too long."""


def seen_from(sim: RunningCluster, offset: int, wait_s: float = 0.0) -> tuple[list[bytes], int]:
    """What a member that knows no epochs gets from the master, and where it stands then."""
    address = sim.brokers[MASTER].address
    got: list[bytes] = []
    while True:
        pulled = sim.wait(sim.client.pull(TOPIC, address=address, offset=offset, wait_s=wait_s))
        got, offset = got + pulled.bodies, pulled.next_offset
        if not pulled.messages and pulled.code != ResponseCode.PULL_OFFSET_MOVED:
            return got, offset


def send_alone(sim: RunningCluster, body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        sim.wait(sim.client.send(TOPIC, body))
    assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_no_member_skips_the_replacement_of_a_message_without_copies() -> None:
    """A power cut takes messages whose sender was warned; a slave comes back and has none."""
    with with_slave(flush_interval_s=NEVER_S, **SYNC) as sim:
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        send(sim, b"on both")
        slave.kill()
        sim.until(lambda: not follows(sim))
        master.sync_s = 5.0
        for number in range(16):  # so many that not all of them happen to be on the disk
            send_alone(sim, b"on one %d" % number)
        _, position = seen_from(sim, 0)
        master.lose_power()
        sim.client.disconnect()
        slave.start()
        master.start()
        assert role(master) is Role.MASTER
        assert b"on one 15" not in bodies(master)
        sim.until(lambda: follows(sim))
        fresh = [b"new %d" % number for number in range(20)]
        for body in fresh:
            sim.wait(sim.client.send(TOPIC, body))
        got, _ = seen_from(sim, position)
        assert set(fresh) <= set(got)


def test_a_message_without_copies_is_seen_when_it_is_on_the_disk() -> None:
    with with_slave(flush_interval_s=NEVER_S, **SYNC) as sim:
        sim.brokers[SLAVE].kill()
        sim.until(lambda: not follows(sim))
        sim.brokers[MASTER].sync_s = 0.5
        began_s = sim.now_s
        send_alone(sim, b"on one")
        assert sim.now_s - began_s < 0.1, "its sender does not wait for the disk"
        assert seen_from(sim, 0)[0] == []
        assert seen_from(sim, 0, wait_s=10.0)[0] == [b"on one"]
        assert sim.now_s - began_s < 1.0 + 10.0


@pytest.mark.parametrize("flush", list(Flush))
@pytest.mark.parametrize("comes_back", [True, False])
def test_messages_no_slave_confirmed_stay_hidden_after_a_kill(
    flush: Flush, comes_back: bool
) -> None:
    """Until the slave has it too, or for as long as a sender would have waited for it."""
    with with_slave(flush=flush, **SYNC) as sim:
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        send(sim, b"on both")
        slave.host.pause()
        sending = sim.client.send(TOPIC, b"on one")
        sim.until(lambda: bodies(master) == [b"on both", b"on one"])
        master.kill()
        with pytest.raises(ConnectionLost):
            sim.wait(sending)
        slave.host.resume()
        master.start()
        began_s = sim.now_s
        slave.host.pause()
        assert not follows(sim)
        assert seen_from(sim, 0) == ([b"on both"], 1)
        # A member that had seen more, because its sender was warned, is not moved back.
        assert seen_from(sim, 2) == ([], 2)
        send_alone(sim, b"sent later")
        assert seen_from(sim, 0) == ([b"on both"], 1)
        if comes_back:
            slave.host.resume()
            sim.until(lambda: follows(sim))
            sim.advance(0.5)
            assert sim.now_s - began_s < SYNC["slave_timeout_s"]
        else:
            sim.advance(SYNC["slave_timeout_s"] + WATCHED_S)
        assert seen_from(sim, 0)[0] == [b"on both", b"on one", b"sent later"]


def test_all_messages_are_visible_at_once_after_an_orderly_stop() -> None:
    with with_slave(**SYNC) as sim:
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        send(sim, b"on both")
        slave.stop()
        sim.until(lambda: not follows(sim))
        send_alone(sim, b"on one")
        master.stop()
        sim.client.disconnect()
        master.start()
        assert seen_from(sim, 0)[0] == [b"on both", b"on one"]


@contextmanager
def waiting_master(flush: Flush = Flush.ASYNC) -> Iterator[RunningCluster]:
    """A master that waits, as its slave is off. It was killed when the slave lacked one message."""
    with with_slave(flush=flush, **SYNC) as sim:
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        send(sim, b"on both")
        slave.host.pause()
        sending = sim.client.send(TOPIC, b"on one")
        sim.until(lambda: bodies(master) == [b"on both", b"on one"])
        master.kill()
        with pytest.raises(ConnectionLost):
            sim.wait(sending)
        slave.kill()
        master.start()
        assert role(master) is Role.WAITING
        yield sim


@pytest.mark.parametrize("flush", list(Flush))
def test_a_master_that_waits_shows_no_more_than_before_its_kill(flush: Flush) -> None:
    with waiting_master(flush) as sim:
        assert seen_from(sim, 0) == ([b"on both"], 1)
        sim.advance(10.0)
        assert seen_from(sim, 0) == ([b"on both"], 1)
        sim.brokers[MASTER].restart()
        assert seen_from(sim, 0) == ([b"on both"], 1)
        sim.brokers[SLAVE].start()
        sim.until(lambda: follows(sim))
        sim.advance(0.5)
        assert seen_from(sim, 0)[0] == [b"on both", b"on one"]


def test_a_master_that_waits_shows_what_it_had_given_up() -> None:
    """Its senders were warned, it was on the disk, and consumers may have seen it."""
    with with_slave(flush_interval_s=NEVER_S, **SYNC) as sim:
        send(sim, b"on both")
        sim.brokers[SLAVE].kill()
        sim.until(lambda: not follows(sim))
        send_alone(sim, b"on one")
        assert seen_from(sim, 0, wait_s=1.0)[0] == [b"on both", b"on one"]
        sim.brokers[MASTER].restart()
        assert role(sim.brokers[MASTER]) is Role.WAITING
        sim.client.disconnect()
        assert seen_from(sim, 0)[0] == [b"on both", b"on one"]


@pytest.mark.parametrize("offset", [1, 2, 7])
@pytest.mark.parametrize("wait_s", [0.0, 15.0])
def test_a_master_that_waits_moves_no_position(offset: int, wait_s: float) -> None:
    """Messages that it hides, or lost, are there again when its slaves have answered."""
    with waiting_master() as sim:
        code, answer = pulled(sim, sim.brokers[MASTER], offset, wait_s=wait_s)
        assert (code, answer.next_begin_offset) == (ResponseCode.PULL_NOT_FOUND, offset)
        assert answer.suggest_which_broker_id == MASTER_ID


def test_all_messages_of_a_master_that_stopped_in_order_are_visible_while_it_waits() -> None:
    with with_slave(**SYNC) as sim:
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        send(sim, b"on both")
        slave.host.pause()
        sim.wait(sim.client.send(TOPIC, b"on one", WAIT="false"))
        master.stop()
        slave.kill()
        sim.client.disconnect()
        master.start()
        assert role(master) is Role.WAITING
        assert seen_from(sim, 0)[0] == [b"on both", b"on one"]
