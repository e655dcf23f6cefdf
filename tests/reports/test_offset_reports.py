"""Groups of RocketMQ users that read days of messages again or skipped some, by number."""

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.offsets import UpdateConsumerOffset
from sparrowmq.protocol.headers.pull import Pulled
from sparrowmq.protocol.sys_flag import PULL_COMMIT_OFFSET
from sparrowmq.store.table_file import TableMissing
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.delivery_world import DeliveryWorld
from tests.broker.world import subscribes, world_with
from tests.client.members import Member, create_topic, send, stored_offset


def bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("orderly", [False, True])
def test_report_3503_and_1825_a_group_resumes_at_its_offset_after_a_broker_restart(
    end: str, orderly: bool
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, orderly=orderly)
        send(sim, *bodies(0, 60))
        sim.advance(20)
        getattr(sim.brokers["broker-a"], end)()
        sim.advance(3)
        member.host.kill()
        sim.brokers["broker-a"].start()
        second = Member(sim, name="second", orderly=orderly)
        sim.advance(40)
        sim.client.disconnect()
        send(sim, *bodies(60, 90))
        sim.advance(10)
        assert (member.got, second.got) == (bodies(0, 60), bodies(60, 90))
        assert stored_offset(sim) == 90


def test_report_2705_minutes_without_network_make_no_group_read_everything_again() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        create_topic(sim)
        member = Member(sim)
        send(sim, *bodies(0, 50))
        sim.advance(10)
        sim.network.isolate(sim.host("broker-a"))
        sim.advance(300)
        sim.paths.heal()
        sim.advance(60)
        send(sim, *bodies(50, 60))
        sim.advance(10)
        assert member.got == bodies(0, 60)


@pytest.mark.parametrize("beyond", [1, 2, 1_000])
def test_report_2181_a_pull_past_the_end_is_sent_to_the_end_and_not_to_0(beyond: int) -> None:
    with world_with() as world:
        world.send("orders", *bodies(0, 20))
        world.client("member").beat(subscribes("billing"))
        answer = world.pull("orders", queue_offset=20 + beyond)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.header(Pulled).next_begin_offset == 20


def test_report_551_a_lost_offset_table_stops_the_start_instead_of_starting_groups_at_0() -> None:
    with DeliveryWorld() as world:
        world.send("orders")
        world.broker.offsets.commit("billing", "orders", 0, 1)
        world.stop()
        for path in [path for path in world.disk.files() if "consumerOffset" in path]:
            world.disk.unlink(path)
        with pytest.raises(TableMissing, match=r"consumerOffset\.json"):
            world.start()


def test_report_3401_neither_an_old_pull_nor_a_commit_of_minus_1_lowers_progress() -> None:
    with world_with() as world:
        world.send("orders", *bodies(0, 20))
        world.client("member").beat(subscribes("billing"))

        def commit(offset: int) -> None:
            world.done(
                UpdateConsumerOffset(
                    consumer_group="billing", topic="orders", queue_id=0, commit_offset=offset
                )
            )

        commit(15)
        for offset in (0, 3, -1):
            world.pull("orders", sys_flag=PULL_COMMIT_OFFSET, commit_offset=offset)
        commit(-1)
        assert world.broker.offsets.get("billing", "orders", 0) == 15
