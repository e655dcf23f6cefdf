"""When a master redirects readers to a slave, and what the slave answers."""

from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.replication.replication import Role
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.route import MASTER_ID
from sparrowmq.store.messages import QueueRead, ReadStatus
from sparrowmq.testing import sim_nodes
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.sim.replicated import follows, has_all, role
from tests.sim.slaves import (
    MASTER,
    SLAVE,
    SLAVE_ID,
    create_topic,
    pull_header,
    pulled,
    send,
    with_slave,
)
from tests.store.cold_disk import ColdDisk
from tests.store.stores import message

FOUND, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.PULL_NOT_FOUND


def kill_master(sim: RunningCluster) -> None:
    """The slave has noticed it, and so have the name servers."""
    sim.brokers[MASTER].kill()
    sim.client.disconnect()
    sim.advance(6)


# ---- what a slave answers


def test_a_slave_serves_its_copy() -> None:
    with with_slave() as sim:
        send(sim, b"0", b"1", b"2")
        found = sim.wait(sim.client.pull("orders", address=sim.brokers[SLAVE].address, offset=1))
        assert found.bodies == [b"1", b"2"]


def test_a_pull_that_waits_at_a_slave_is_answered_when_the_copy_grows() -> None:
    with with_slave() as sim:
        slave = sim.brokers[SLAVE].address
        waiting = sim.client.pull("orders", address=slave, offset=0, wait_s=15)
        sim.advance(0.1)
        began_s = sim.now_s
        send(sim, b"new")
        assert sim.wait(waiting).bodies == [b"new"]
        assert sim.now_s - began_s < 0.5


@pytest.mark.parametrize(("is_there", "suggested"), [(True, MASTER_ID), (False, SLAVE_ID)])
def test_a_reader_at_the_end_is_sent_to_the_master_if_there_is_one(
    is_there: bool, suggested: int
) -> None:
    with with_slave() as sim:
        send(sim, b"0")
        if not is_there:
            kill_master(sim)
        began_s = sim.now_s
        code, answer = pulled(sim, sim.brokers[SLAVE], 1, wait_s=15)
        assert (code, answer.next_begin_offset) == (NOT_FOUND, 1)
        assert answer.suggest_which_broker_id == suggested
        assert 15 <= sim.now_s - began_s < 16


OUT_OF_RANGE = [
    ReadStatus.OFFSET_OVERFLOW_BADLY,
    ReadStatus.OFFSET_TOO_SMALL,
    ReadStatus.NO_MESSAGE_IN_QUEUE,
    ReadStatus.NO_MATCHED_LOGIC_QUEUE,
    ReadStatus.MESSAGE_WAS_REMOVING,
    ReadStatus.OFFSET_FOUND_NULL,
]


@pytest.mark.slow
@pytest.mark.parametrize("status", OUT_OF_RANGE)
@pytest.mark.parametrize(("wait_s", "held_s"), [(0, 0), (0.25, 0.25), (15, 1)])
@pytest.mark.parametrize(("is_there", "suggested"), [(True, MASTER_ID), (False, SLAVE_ID)])
def test_a_slave_moves_no_position(
    status: ReadStatus, wait_s: float, held_s: float, is_there: bool, suggested: int
) -> None:
    with with_slave() as sim:
        if not is_there:
            kill_master(sim)
        slave = sim.brokers[SLAVE]

        def read_queue(*args: Any, **options: Any) -> QueueRead:
            return QueueRead(status, 40, 30, 50)

        slave.broker.store.read_queue = read_queue
        began_s = sim.now_s
        code, answer = pulled(sim, slave, 7, wait_s=wait_s, epoch=0)
        assert (code, answer.next_begin_offset) == (NOT_FOUND, 7)
        assert (answer.epoch, answer.valid_end) == (0, None), "an offset that is only repeated"
        assert answer.suggest_which_broker_id == suggested
        assert sim.now_s - began_s == pytest.approx(held_s, abs=0.1)


@pytest.mark.parametrize(
    ("epochs_ahead", "code"), [(0, FOUND), (1, NOT_FOUND)], ids=["known", "not known yet"]
)
def test_a_slave_does_not_serve_a_position_of_an_epoch_that_it_does_not_know(
    epochs_ahead: int, code: ResponseCode
) -> None:
    with with_slave() as sim:
        send(sim, b"0", b"1")
        epoch = sim.broker.store.epochs.current + epochs_ahead
        answered, answer = pulled(sim, sim.brokers[SLAVE], 1, epoch=epoch)
        assert (answered, answer.epoch) == (code, epoch)


def test_a_slave_that_lags_behind_an_epoch_does_not_shorten_a_queue() -> None:
    with with_slave() as sim:
        send(sim, *(b"%d" % number for number in range(5)))
        master, slave = sim.brokers[MASTER], sim.brokers[SLAVE]
        first = sim.broker.store.epochs.current
        slave.kill()
        for number in range(5, 9):
            sim.wait(sim.client.send("orders", b"%d" % number))
        master.stop()
        sim.client.disconnect()
        master.start()
        table = master.broker.store.epochs.table()
        slave.start()
        # It has learned of the second epoch and has not got there yet.
        store = slave.broker.store
        store.epochs.adopt(table)
        assert store.epochs.end_since("orders", 0, first) in (None, 9)
        sim.until(lambda: follows(sim) and has_all(sim))
        assert store.epochs.end_since("orders", 0, first) == 9


def part(sim: RunningCluster) -> None:
    """Give slave 1 a message that its master does not have, and the master others."""
    slave = sim.brokers[SLAVE]
    as_slave = slave.config
    slave.stop()
    slave.config = replace(as_slave, broker_id=0, name_servers=())
    slave.start()
    slave.broker.store.append(message(1), sim.clock())
    slave.stop()
    slave.config = as_slave
    sim.wait(sim.client.send("orders", b"on the master"))


def test_a_slave_whose_log_diverged_serves_no_reads_in_any_state_of_its_master(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A master that starts or waits refuses it, too, without a judgement."""
    with SimCluster(slaves=2, in_sync_replicas=2, replication=ReplicationMode.SYNC).run() as sim:
        sim.until(lambda: follows(sim, 1) and follows(sim, 2))
        create_topic(sim)
        sim.wait(sim.client.send("orders", b"common"))
        master, slave, other = sim.brokers.values()
        part(sim)
        slave.start()
        sim.until(lambda: "differ from offset" in caplog.text)
        assert pulled(sim, slave, 0)[0] == NOT_FOUND
        for node in (other, master):
            node.kill()
        sim.client.disconnect()
        master.start()
        assert role(master) is Role.WAITING
        sim.advance(20)
        assert pulled(sim, slave, 0)[0] == NOT_FOUND


def test_a_slave_that_is_not_to_be_read_refuses_pulls_as_apaches_does() -> None:
    with with_slave(slave_reads=False) as sim:
        response = sim.wait(sim.client.call(pull_header(0), address=sim.brokers[SLAVE].address))
        assert response.code == ResponseCode.SYSTEM_BUSY
        assert "slaveReadEnable is false" in response.remark


# ---- what a master suggests


CASES: dict[str, tuple[dict[str, Any], int]] = {
    "far from the end": ({}, SLAVE_ID),
    "close to the end": ({"slave_read_gap_bytes": 1024 * 1024}, MASTER_ID),
    "switched off": ({"slave_reads": False}, MASTER_ID),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("is_cold", [True, False])
def test_a_master_sends_readers_away_that_wait_for_its_device(
    case: str, is_cold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sim_nodes, "RecordingDisk", ColdDisk)
    settings, suggested = CASES[case]
    with with_slave(**{"slave_read_gap_bytes": 1_000, **settings}) as sim:
        send(sim, *(bytes(500) for _ in range(40)))
        sim.advance(2)  # written, and no longer in the store's own memory
        sim.brokers[MASTER].disk.is_cold = is_cold  # type: ignore[attr-defined]
        code, answer = pulled(sim, sim.brokers[MASTER], 0)
        assert code == FOUND
        assert answer.suggest_which_broker_id == (suggested if is_cold else MASTER_ID)


@pytest.mark.parametrize(
    ("settings", "suggested"),
    [
        ({"which_broker_when_consume_slowly": 0}, MASTER_ID),
        ({"which_broker_when_consume_slowly": 7}, SLAVE_ID),
    ],
)
def test_a_busy_master_sends_readers_where_their_group_wants(
    settings: dict[str, Any], suggested: int
) -> None:
    with with_slave() as sim:
        group = SubscriptionGroupConfig(group_name="billing", **settings)
        sim.wait(sim.client.call(CreateGroup(), group.to_json()))
        send(sim, b"0")
        assert pulled(sim, sim.brokers[MASTER], 0)[1].suggest_which_broker_id == MASTER_ID
        sim.broker.busy_reason = "the broker lags"
        assert pulled(sim, sim.brokers[MASTER], 0)[1].suggest_which_broker_id == suggested


def test_a_master_redirects_no_reader_to_a_slave_that_lacks_the_messages() -> None:
    with with_slave(max_slave_gap_bytes=1_000) as sim:
        send(sim, b"0")
        sim.brokers[SLAVE].host.pause()
        for _ in range(10):
            sim.wait(sim.client.send("orders", bytes(500)))
        sim.broker.busy_reason = "the broker lags"
        assert pulled(sim, sim.brokers[MASTER], 0)[1].suggest_which_broker_id == MASTER_ID


def test_a_master_redirects_no_reader_to_a_slave_on_its_own_host() -> None:
    with with_slave() as sim:
        slave = sim.brokers[SLAVE]
        slave.stop()
        here = sim.brokers[MASTER].host.ip
        slave.config = replace(slave.config, advertise_host=here)
        slave.start()
        sim.until(lambda: follows(sim))
        send(sim, b"0")
        sim.broker.busy_reason = "the broker lags"
        assert pulled(sim, sim.brokers[MASTER], 0)[1].suggest_which_broker_id == MASTER_ID


def test_a_redirected_reader_stays_with_the_slave_for_a_while() -> None:
    with with_slave() as sim:
        send(sim, b"0", b"1")
        slave = sim.brokers[SLAVE]
        assert pulled(sim, slave, 0)[1].suggest_which_broker_id == SLAVE_ID
        sim.advance(4)
        assert pulled(sim, slave, 0)[1].suggest_which_broker_id == SLAVE_ID
        sim.advance(1)
        assert pulled(sim, slave, 0)[1].suggest_which_broker_id == MASTER_ID


def test_a_reader_far_from_the_end_stays_with_the_slave_until_it_is_closer() -> None:
    with with_slave(slave_read_gap_bytes=4_000) as sim:
        send(sim, *(bytes(500) for _ in range(20)))
        slave = sim.brokers[SLAVE]
        pulled(sim, slave, 0)
        sim.advance(10)
        assert pulled(sim, slave, 0)[1].suggest_which_broker_id == SLAVE_ID
        assert pulled(sim, slave, 18)[1].suggest_which_broker_id == MASTER_ID
