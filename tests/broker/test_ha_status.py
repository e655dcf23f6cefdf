"""Request 907 and runtime information report the lag of slaves; a slave records 908."""

from sparrowmq.protocol.body import KVTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.ha_status import HaStatus
from sparrowmq.protocol.headers.admin import GetRuntimeInfo
from sparrowmq.protocol.headers.replication import GetHaStatus, ResetMasterFlushOffset
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

SLAVE = "broker-a.1"


def status(sim: RunningCluster, name: str) -> HaStatus:
    answer = sim.wait(sim.client.call(GetHaStatus(), address=sim.brokers[name].address))
    return HaStatus.from_json(answer.body)


def runtime(sim: RunningCluster, name: str) -> dict[str, str]:
    answer = sim.wait(sim.client.call(GetRuntimeInfo(), address=sim.brokers[name].address))
    return KVTable.from_json(answer.body).table


def send(sim: RunningCluster, count: int = 20) -> None:
    for _ in range(count):
        sim.wait(sim.client.send("orders", bytes(1000)))


def follow(sim: RunningCluster) -> None:
    sim.until(lambda: bool(sim.broker.replication.feed.links))


def test_a_master_lists_its_slaves_and_a_slave_its_master() -> None:
    with SimCluster(slaves=1).run() as sim:
        follow(sim)
        send(sim)
        sim.advance(2)
        master, slave = status(sim, "broker-a"), status(sim, SLAVE)
        end = sim.broker.store.max_log_offset
        assert (master.master, master.master_commit_log_max_offset) == (True, end)
        assert master.in_sync_slave_nums == 1
        (connection,) = master.ha_connection_info
        assert connection.addr == sim.brokers[SLAVE].address
        assert (connection.slave_ack_offset, connection.diff) == (end, 0)
        assert (connection.in_sync, connection.transfer_from_where) == (True, end)
        own = slave.ha_client_runtime_info
        assert (slave.master, own.activated, own.max_offset) == (False, True, end)
        assert own.master_addr == sim.brokers["broker-a"].address
        assert sim.clock() - own.last_read_timestamp < 6_000


def test_the_speed_is_that_since_it_was_last_asked() -> None:
    with SimCluster(slaves=1).run() as sim:
        follow(sim)
        before = status(sim, "broker-a").ha_connection_info[0].transfer_from_where
        send(sim)
        sim.advance(10)
        (connection,) = status(sim, "broker-a").ha_connection_info
        sent = connection.transfer_from_where - before
        assert sent > 20_000
        assert 0.9 * sent / 10 <= connection.transferred_byte_in_second <= sent / 10


def test_a_frozen_slave_is_shown_as_behind() -> None:
    with SimCluster(slaves=1, max_slave_gap_bytes=1_000).run() as sim:
        follow(sim)
        sim.brokers[SLAVE].host.pause()
        send(sim)
        (connection,) = status(sim, "broker-a").ha_connection_info
        assert connection.diff > 20_000
        assert not connection.in_sync
        assert status(sim, "broker-a").in_sync_slave_nums == 0
        info = runtime(sim, "broker-a")
        assert (info["replicationRole"], info["copiesInSync"]) == ("master", "1")
        assert int(info["slavesBehindBytes"]) == connection.diff


def test_a_slave_reports_how_long_it_has_been_without_its_master() -> None:
    with SimCluster(slaves=1).run() as sim:
        follow(sim)
        send(sim)
        sim.advance(1)
        info = runtime(sim, SLAVE)
        assert (info["replicationRole"], info["brokerActive"]) == ("slave", "false")
        assert (info["behindMasterBytes"], info["behindMasterSeconds"]) == ("0", "0")
        sim.brokers["broker-a"].kill()
        sim.advance(30)
        info = runtime(sim, SLAVE)
        assert info["masterAddr"] == ""
        assert 30 <= float(info["behindMasterSeconds"]) <= 40


def test_the_flushed_offset_of_a_master_is_noted_on_its_slave_only() -> None:
    with SimCluster(slaves=1).run() as sim:
        follow(sim)
        for name, node in sim.brokers.items():
            request = ResetMasterFlushOffset(master_flush_offset=77)
            answer = sim.wait(sim.client.call(request, address=node.address))
            assert answer.code == ResponseCode.SUCCESS, name
        assert status(sim, SLAVE).ha_client_runtime_info.master_flush_offset == 77
        assert status(sim, "broker-a").ha_client_runtime_info.master_flush_offset == 0
