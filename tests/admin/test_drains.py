"""Operators drain brokers: no acknowledged message is left behind, and no new ones arrive."""

import asyncio

import pytest

from sparrowmq import (
    AdminError,
    BrokerDrain,
    Client,
    DrainState,
    Message,
    NoRoute,
    NotFound,
    Producer,
)
from sparrowmq.protocol.headers.drain import BeginDrain
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.wire import Refused
from tests.admin.draining import TWO, A, on_a, perms, read_once, sim_call, state, stored, with_topic
from tests.admin.operator import as_client, consuming, numbered, send


def test_a_broker_without_unread_messages_leaves_and_comes_back() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            dry = await admin.drain_broker(A, dry_run=True)
            assert (dry.state, dry.is_apache, dry.unread) == (DrainState.SERVING, False, ())
            seen: list[BrokerDrain] = []
            left = await admin.drain_broker(A, progress=seen.append)
            assert left.state is DrainState.LEFT
            assert [each.state for each in seen] == [DrainState.DRAINING]
            assert [each.name for each in await admin.brokers()] == ["broker-b"]
            assert await admin.drained_brokers() == {A: left.address}
            assert (await admin.drain_broker(A)).state is DrainState.LEFT  # again: nothing to do
            assert (await admin.resume_broker(A)).state is DrainState.LEFT
            assert [each.name for each in await admin.brokers()] == [A, "broker-b"]
            assert await admin.drained_brokers() == {}
            assert (await admin.resume_broker(A)).state is DrainState.SERVING

        as_client(sim, work)
        assert perms(sim) == {A: True, "broker-b": True}


def test_sends_and_reads_continue_during_a_drain() -> None:
    """Every message is delivered once, and none of them is stored on the broker that drains."""
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            async with consuming(client, "billing", "orders", 0) as read:
                await send(client, *numbered("orders", 40))
                async with Producer("shop", client=client) as producer:
                    draining = asyncio.create_task(admin.drain_broker(A, grace_s=0))
                    for number in range(200):
                        await producer.send(Message("orders", b"more %d" % number))
                        await asyncio.sleep(0.02)
                    left = await draining
                await read.until(240)
                assert left.state is DrainState.LEFT
                assert len({message.msg_id for message in read.messages}) == 240

        as_client(sim, work)
        assert stored(sim) <= 30


def test_keyed_sends_move_to_another_broker_at_once() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            async with Producer("shop", client=client) as producer:
                await producer.send(Message("orders", b"x", sharding_key="k0"))
                await sim_call(sim, client, BeginDrain())
                results = [
                    await producer.send(Message("orders", b"x", sharding_key=f"k{number}"))
                    for number in range(20)
                ]
            assert {each.queue.broker_name for each in results} == {"broker-b"}
            await admin.resume_broker(A)

        as_client(sim, work)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"broker": "broker-z"}, NotFound, "broker broker-z does not exist; registered are: "),
        ({"ignore_groups": ["nobody"]}, NotFound, "group nobody does not exist"),
        ({"ignore_groups": "billing"}, ValueError, "ignore_groups is 'billing', must be a list"),
        ({"ignore_groups": ["a b"]}, ValueError, "group 'a b' has characters"),
        ({"grace_s": -1}, ValueError, "grace_s is -1, must be more than 0"),
        ({"grace_s": 3600}, AdminError, "graceMs is 3600000, allowed are 0 to 600000"),
        ({"timeout_s": 0}, ValueError, "timeout_s is 0, must be more than 0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    options: dict[str, object], kind: type[Exception], text: str
) -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            with pytest.raises(kind, match=text):
                await admin.drain_broker(**{"broker": A, **options})  # type: ignore[arg-type]

        as_client(sim, work)
        assert state(sim) is DrainState.SERVING


def test_the_last_broker_of_a_topic_is_not_drained_until_the_topic_is_spread() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            for topic in ("alone", "lonely"):
                await admin.create_topic(topic, queues=2, brokers=[A])
            await admin.create_topic("closed", queues=2, brokers=[A], perm=4)
            text = r"of these topics of broker-a: alone, lonely\. .*sparrowmq topic spread TOPIC"
            with pytest.raises(AdminError, match=text):
                await admin.drain_broker(A)
            assert state(sim) is DrainState.SERVING
            await admin.spread_topic("alone", ["broker-b"])
            await admin.delete_topic("lonely")
            assert (await admin.drain_broker(A)).state is DrainState.LEFT
            with pytest.raises(AdminError, match=r"topics of broker-b: alone, orders"):
                await admin.drain_broker("broker-b")

        as_client(sim, work)


def test_a_topic_whose_order_configuration_names_the_broker_is_named() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await admin.set_key_value("ORDER_TOPIC_CONFIG", "orders", "broker-a:2;broker-b:2")
            with pytest.raises(
                AdminError, match=r"the order configuration of orders sends keys to"
            ):
                await admin.drain_broker(A)
            await admin.set_key_value("ORDER_TOPIC_CONFIG", "orders", "broker-b:2")
            assert (await admin.drain_broker(A)).state is DrainState.LEFT

        as_client(sim, work)


def test_without_name_servers_no_drain_starts_and_a_started_one_continues() -> None:
    with TWO.run() as sim:

        async def work(client: Client) -> None:
            admin = await with_topic(client)
            await read_once(client, "billing")
            await on_a(client, 1)
            draining = asyncio.create_task(admin.drain_broker(A, grace_s=0))
            await asyncio.sleep(5)
            others = [sim.host(name) for name in ("operator", A, "broker-b")]
            sim.paths.partition([sim.host("name-server-1")], others)
            with pytest.raises(AdminError, match="no name server answers"):
                await admin.drain_broker("broker-b")
            await asyncio.sleep(60)
            assert not draining.done()
            sim.paths.heal()
            async with consuming(client, "billing", "orders", 1):
                assert (await draining).state is DrainState.LEFT

        as_client(sim, work)


def test_a_send_fails_with_the_reason_when_the_only_broker_drains() -> None:
    with SimCluster().run() as sim:

        async def work(client: Client) -> None:
            await with_topic(client)
            async with Producer("shop", client=client, timeout_s=3) as producer:
                await producer.send(Message("orders", b"x"))
                await sim_call(sim, client, BeginDrain())
                with pytest.raises(NoRoute, match="no broker takes messages for it now"):
                    await producer.send(Message("orders", b"x"))

        as_client(sim, work)


@pytest.mark.parametrize(
    ("topic", "is_taken"),
    [("orders", False), ("%RETRY%billing", True), ("DefaultCluster_REPLY_TOPIC", True)],
)
def test_a_send_passes_only_where_it_ends_something(topic: str, is_taken: bool) -> None:
    with TWO.run() as sim:

        async def begin(client: Client) -> None:
            await with_topic(client)
            await sim_call(sim, client, BeginDrain())

        as_client(sim, begin)
        sending = sim.client.send(topic, b"x", address=sim.brokers[A].address)
        if is_taken:
            assert sim.wait(sending).queue_offset == 0
        else:
            with pytest.raises(Refused, match="drains and takes no new messages; send to another"):
                sim.wait(sending)
