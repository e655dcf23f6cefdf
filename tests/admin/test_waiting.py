"""What waits for a group: since when, how much of it matches; pausing; differing subscriptions."""

import asyncio

import pytest

from sparrowmq import Admin, Client, ConsumeFromWhere, Message, MessageQueue, NotFound, PushConsumer
from sparrowmq.admin import waiting
from sparrowmq.client.client import core_of
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import Read, as_client, consuming, numbered, send

FIRST = MessageQueue("orders", "broker-a", 0)


async def behind(client: Client, tags: list[str]) -> Admin:
    """A topic in which messages with these tags wait for a group that has read one."""
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=1)
    await send(client, Message("orders", b"first", tags="paid"))
    async with consuming(client, "billing", "orders", 1, "paid"):
        pass
    await send(client, *(Message("orders", b"x", tags=tag) for tag in tags))
    return admin


def test_the_lag_includes_the_oldest_waiting_message_on_request() -> None:
    async def work(client: Client) -> None:
        admin = await behind(client, ["paid", "open"])
        plain = await admin.lag("billing", "orders")
        assert plain.queues[0].oldest_waiting is None
        (queue,) = (await admin.lag("billing", "orders", waiting=True)).queues
        message = await admin.read_message(FIRST, 1)
        assert queue.oldest_waiting == message.stored_at

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize(
    ("most", "matching", "is_exact"), [(100_000, 3, True), (4, 5, False)], ids=["all", "sample"]
)
def test_matching_counts_the_messages_that_pass_the_filter(
    most: int, matching: int, is_exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of ten that wait three match; of the first four two do."""
    monkeypatch.setattr(waiting, "MOST_COUNTED", most)
    monkeypatch.setattr(waiting, "PAGE", 3)

    async def work(client: Client) -> None:
        tags = ["open", "paid", "paid", *["open"] * 6, "paid"]
        admin = await behind(client, tags)
        await admin.pause_group("billing")
        read = Read()
        async with PushConsumer("billing", {"orders": "paid"}, client=client) as consumer:
            await consumer.start(read.handle)
            await core_of(client).heartbeats.send_everywhere()
            (queue,) = (await admin.lag("billing", "orders", matching=True)).queues
        assert (queue.lag, queue.matching, queue.is_exact) == (10, matching, is_exact)
        assert read.messages == []

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_matching_is_unknown_for_an_offline_group() -> None:
    async def work(client: Client) -> None:
        admin = await behind(client, ["paid"])
        (queue,) = (await admin.lag("billing", "orders", matching=True)).queues
        assert (queue.lag, queue.matching) == (1, None)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize("topic", [None, "orders"], ids=["all topics", "one topic"])
def test_a_paused_group_gets_nothing_until_it_is_resumed(topic: str | None) -> None:
    async def work(client: Client) -> None:
        admin = await behind(client, [])
        assert await admin.pause_group("billing", topic=topic) == ["broker-a"]
        await send(client, *numbered("orders", 2))
        read = Read()
        async with PushConsumer("billing", {"orders": "*"}, client=client) as consumer:
            await consumer.start(read.handle)
            await asyncio.sleep(60)
            assert read.messages == []
            assert await admin.resume_group("billing", topic=topic) == ["broker-a"]
            await read.until(2)
        with pytest.raises(NotFound):
            await admin.pause_group("nope", topic=topic)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_members_that_want_different_things_are_named_with_the_difference() -> None:
    async def work(client: Client) -> None:
        admin = await behind(client, [])
        other = client_two
        await other.start()
        first = PushConsumer("billing", {"orders": "paid"}, client=client)
        second = PushConsumer(
            "billing",
            {"orders": "open"},
            client=other,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
        )
        async with first, second:
            await first.start(Read().handle)
            await second.start(Read().handle)
            await asyncio.sleep(60)
            rows = await admin.subscriptions("billing")
        await other.stop()
        assert [(each.subscription.expression, each.members) for each in rows] == [
            ("open", (other.client_id,)),
            ("paid", (client.client_id,)),
        ]
        assert rows[0].difference == f"{client.client_id} subscribes to 'paid'"

    with SimCluster(seed=1).run() as sim:
        client_two = sim.client_on("another")
        as_client(sim, work)
