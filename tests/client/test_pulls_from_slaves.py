"""Pulls that reach a slave: only a master keeps progress, so that they carry none."""

from typing import Any

import pytest

from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import TOPIC, Member, create_topic, send

COMMITS = 1
SLAVE_ID = 1


@pytest.mark.parametrize(
    ("known", "commits"),
    [((MASTER_ID, SLAVE_ID), True), ((MASTER_ID,), True), ((SLAVE_ID,), False)],
)
def test_a_pull_carries_progress_where_it_reaches_a_master(
    known: tuple[int, ...], commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulls: list[PullMessage] = []
    call = Peers.call

    async def noting(peers: Peers, address: str, header: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(header, PullMessage) and header.topic == TOPIC:
            pulls.append(header)
        return await call(peers, address, header, *rest, **more)

    monkeypatch.setattr(Peers, "call", noting)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        send(sim, b"x")
        # Without sessions, as at an Apache broker: those are ended where a master is missing.
        member = Member(sim, client={"fast_heartbeat": False})
        sim.until(lambda: member.got == [b"x"])
        address = sim.brokers["broker-a"].address
        brokers = BrokerData(
            cluster="c", broker_name="broker-a", broker_addrs=dict.fromkeys(known, address)
        )
        queues = QueueData(broker_name="broker-a", read_queue_nums=1, write_queue_nums=1, perm=6)
        route = TopicRoute(queue_datas=(queues,), broker_datas=(brokers,))
        core_of_consumer(member.consumer).route_table.put(TOPIC, route)
        pulls.clear()
        send(sim, b"y")  # answers the pull that waits
        sim.until(lambda: bool(pulls))
        assert bool(pulls[0].sys_flag & COMMITS) == commits
