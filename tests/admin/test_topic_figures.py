"""Many topics at once, who reads them, and who is connected."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    Client,
    ClientRole,
    Producer,
)
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import BrokerRefusal
from sparrowmq.admin.topic_figures import Busy
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.statistics import GetBrokerConsumeStats
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, consuming, numbered, send

BY: tuple[Busy, ...] = ("in", "out", "size")


def test_figures_are_summed_over_brokers_and_unknown_ones_are_not_zero() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2, attributes={"message.type": "NORMAL"})
        await admin.create_topic("empty", queues=1, brokers=["broker-b"])
        await send(client, *numbered("orders", 6))
        orders, empty, missing = await admin.topic_figures(["orders", "empty", "missing"])
        assert [each.broker for each in orders.settings] == ["broker-a", "broker-b"]
        assert orders.messages == 6
        assert orders.last_stored is not None
        assert orders.delivered_per_s is None  # was not asked for
        assert [each.broker for each in empty.settings] == ["broker-b"]
        assert (empty.messages, empty.last_stored) == (0, None)
        assert (missing.settings, missing.messages, missing.stored_per_s) == ((), None, None)

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_rates_count_what_was_sent_and_delivered_in_the_last_minute() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        async with consuming(client, "billing", "orders", 0) as read:
            async with Producer("shop", client=client) as producer:
                for number in range(60):
                    await producer.send(Message("orders", b"%d" % number))
            await read.until(60)
            await asyncio.sleep(30)  # counters are sampled
        (orders,) = await admin.topic_figures(["orders"], rates=True)
        assert orders.stored_per_s is not None
        assert orders.delivered_per_s is not None
        assert orders.stored_per_s > 0
        assert orders.delivered_per_s > 0

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_hanging_broker_is_asked_once_for_any_number_of_topics() -> None:
    async def create(client: Client) -> None:
        admin = Admin(client=client)
        for number in range(20):
            await admin.create_topic(f"topic-{number}", queues=1)

    async def look(client: Client) -> float:
        loop = asyncio.get_running_loop()
        before = loop.time()
        listed = await Admin(client=client).topic_figures([f"topic-{n}" for n in range(20)])
        assert [error.broker for error in listed.errors] == ["broker-b"]
        assert all(len(each.settings) == 1 for each in listed)
        return loop.time() - before

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, create)
        sim.host("broker-b").pause()
        assert as_client(sim, look) < 10


def test_readers_are_listed_with_their_lag_and_live_members() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 4))
        async with consuming(client, "billing", "orders", 4):
            (reader,) = await admin.topic_readers("orders")
            assert (reader.group, len(reader.members)) == ("billing", 1)
            (client_id,) = reader.members
            (listed,) = await admin.clients(group="billing")
            assert (listed.client_id, listed.role) == (client_id, ClientRole.CONSUMER)
            assert listed.groups == ("billing",)
            assert [each.client_id for each in await admin.clients(topic="orders")] == [client_id]
            assert not await admin.clients(topic="orders", role=ClientRole.PRODUCER)
            (timed,) = await admin.with_start_times([listed])
            assert timed.since is not None
            assert timed.since > datetime(2000, 1, 1, tzinfo=UTC)
        await asyncio.sleep(30)
        await send(client, *numbered("orders", 2))
        (reader,) = await admin.topic_readers("orders")
        assert (reader.lag, reader.members) == (2, ())

    with SimCluster(seed=1, brokers=1).run() as sim:
        as_client(sim, work)


def test_a_producer_is_listed_once_with_its_brokers() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        async with Producer("shop", client=client) as producer:
            await producer.send(Message("orders", b"x"))
            await asyncio.sleep(31)  # a heartbeat
            found = await admin.clients(role=ClientRole.PRODUCER, group="shop")
            (listed,) = found
            assert (listed.role, listed.groups) == (ClientRole.PRODUCER, ("shop",))
            assert listed.brokers == ("broker-a", "broker-b")
            assert await admin.with_start_times(found) == list(found)

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize("group", ["", "no group", "x" * 300])
def test_clients_of_an_illegal_group_are_refused(group: str) -> None:
    async def work(client: Client) -> None:
        with pytest.raises(ValueError, match="group"):
            await Admin(client=client).clients(group=group)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize("lacks", [False, True], ids=["together", "one by one"])
def test_the_busiest_topics_are_those_with_the_highest_figure_of_all(
    lacks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ClusterCalls.call

    async def answer(self: ClusterCalls, address: str, header: Any, *more: Any) -> Any:
        if lacks and isinstance(header, GetBrokerConsumeStats):
            raise BrokerRefusal(address, ResponseCode.SYSTEM_ERROR, "more than fits a frame")
        return await call(self, address, header, *more)

    monkeypatch.setattr(ClusterCalls, "call", answer)

    async def work(client: Client) -> None:
        admin = Admin(client=client)
        names = [f"topic-{number:02}" for number in range(30)]
        for name in names:
            await admin.create_topic(name, queues=1)
        async with (
            consuming(client, "billing", "topic-20", 0) as first,
            consuming(client, "audit", "topic-09", 0) as second,
        ):
            await asyncio.sleep(15)
            await send(client, *[Message("topic-03", b"x" * 4000)] * 4, *numbered("topic-25", 30))
            await send(client, *numbered("topic-07", 20), *numbered("topic-20", 10))
            await send(client, *numbered("topic-09", 5))
            await first.until(10)
            await second.until(5)
            await asyncio.sleep(30)
            figures = await admin.topic_figures(names, rates=True)
            order = {
                by: [each.name for each in await admin.busiest_topics(names, by=by, most=3)]
                for by in BY
            }
            (top,) = await admin.busiest_topics(names, by="out", most=1)
            whole = await admin.busiest_topics(names, by="out", most=0)
            with pytest.raises(ValueError, match="'name', must be one of in, out, size"):
                await admin.busiest_topics(names, by="name")  # type: ignore[arg-type]
        assert order == {
            "in": ["topic-25", "topic-07", "topic-20"],
            "out": ["topic-20", "topic-09", "topic-00"],
            "size": ["topic-03", "topic-25", "topic-07"],
        }
        known = {each.name: each for each in figures}
        assert (top.name, top.settings, top.messages, top.size_bytes) == (
            "topic-20",
            known["topic-20"].settings,
            10,
            known["topic-20"].size_bytes,
        )
        assert len(whole) == 30

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)
