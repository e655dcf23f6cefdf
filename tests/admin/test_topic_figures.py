"""Many topics at once, who reads them, and who is connected."""

import asyncio
from datetime import UTC, datetime

import pytest

from sparrowmq import Admin, Client, ClientRole, Producer
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, consuming, numbered, send


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


def test_a_broker_that_hangs_is_asked_once_however_many_topics_there_are() -> None:
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


def test_readers_have_what_they_did_not_read_and_their_live_members() -> None:
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
