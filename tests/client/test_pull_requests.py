"""What consumers ask of brokers with each pull: how many messages, and how long to wait."""

import asyncio
from typing import Any

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.net.peers import Peers
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, create_topic

QUEUE = MessageQueue(TOPIC, "broker-a", 0)


async def for_a_minute(sim: RunningCluster, kind: type[GroupConsumer]) -> None:
    client = sim.client_on("reader", routes)
    await client.start()
    if kind is PushConsumer:
        async with PushConsumer(
            GROUP, {TOPIC: "*"}, client=client, threads=InlineWorkers()
        ) as push:
            await push.start(print)
            await asyncio.sleep(60)
    elif kind is LitePullConsumer:
        async with LitePullConsumer(GROUP, {TOPIC: "*"}, client=client):
            await asyncio.sleep(60)
    else:
        async with PullConsumer(GROUP, client=client) as pull:
            await pull.pull(QUEUE, 0, waits=True)
    await client.stop()


@pytest.mark.parametrize(
    ("kind", "count", "wait_s", "give_up_s"),
    [(PushConsumer, 32, 15, 30), (LitePullConsumer, 10, 20, 30), (PullConsumer, 32, 20, 30)],
)
def test_a_pull_asks_for_so_many_messages_and_waits_so_long(
    kind: type[GroupConsumer],
    count: int,
    wait_s: int,
    give_up_s: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: set[tuple[int, int | None, float]] = set()
    call = Peers.call

    async def noting(peers: Peers, address: str, header: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(header, PullMessage) and header.topic == TOPIC:
            wait_ms = header.suspend_timeout_millis
            asked.add((header.max_msg_nums, wait_ms, more["timeout_s"]))
        return await call(peers, address, header, *rest, **more)

    monkeypatch.setattr(Peers, "call", noting)
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        sim.run(for_a_minute(sim, kind), on=sim.host("reader"))
    assert asked == {(count, wait_s * 1000, give_up_s)}
