"""Pulls that reach a slave: when they go there, when they come back, and what they carry."""

import asyncio
from itertools import groupby
from typing import Any

import pytest

from sparrowmq.broker.housekeeping import LoopLag
from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.route import MASTER_ID, BrokerData, QueueData, TopicRoute
from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import TOPIC, Member, create_topic, send
from tests.sim import slaves

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


def test_a_backlog_is_read_from_the_slave_while_the_master_is_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    call = Peers.call

    async def noting(peers: Peers, address: str, header: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(header, PullMessage) and header.topic == TOPIC:
            asked.append(address)
        return await call(peers, address, header, *rest, **more)

    async def take_a_while(message: MessageExt) -> None:
        await asyncio.sleep(0.1)

    monkeypatch.setattr(Peers, "call", noting)
    monkeypatch.setattr(LoopLag, "judge", lambda _lag: None)
    with slaves.with_slave() as sim:
        master, slave = (sim.brokers[name].address for name in (slaves.MASTER, slaves.SLAVE))
        sent = [b"%d" % number for number in range(200)]
        slaves.send(sim, *sent)
        sim.broker.busy_reason = "the broker lags 0.5 s; send again later"
        member = Member(
            sim, take_a_while, limits=FlowLimits(messages=1), pull_batch=2, batch=1, workers=1
        )
        sim.until(lambda: len(member.got) >= 150)
        assert asked.count(slave) > 10 * asked.count(master), "few pulls are the master's"
        visits = sum(address == slave for address, _ in groupby(asked))
        assert visits < 5, "the reader goes to and fro"
        sim.broker.busy_reason = ""
        sim.until(lambda: len(member.got) == 200)
        sim.advance(20)
        assert asked[-1] == master
        assert member.got == sent
