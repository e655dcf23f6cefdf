"""Progress of all groups at once equals what brokers report for each group."""

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    Client,
    GroupLag,
    GroupRow,
    Message,
    MessageModel,
    MessageQueue,
    MoveBy,
    Producer,
    PushConsumer,
)
from sparrowmq.admin import sampled_progress
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import BrokerRefusal
from sparrowmq.client.client import core_of
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.statistics import (
    GetAllConsumerOffsets,
    GetBrokerConsumeStats,
    GetConsumeStats,
)
from sparrowmq.protocol.names import retry_topic
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import Read, as_client, consuming, numbered, send

OFFLINE = ["audit", "billing", "fresh", "moved", "uneven"]
LIVE = ["early", "filtering", "shouting"]


async def prepare(client: Client) -> Admin:
    """Groups of which something waits, and each in its own way."""
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=2, brokers=("broker-a",))
    await admin.create_topic("tags", queues=1)
    await admin.create_topic("odd", read_queues=3, write_queues=2)
    for group in OFFLINE:
        await admin.create_group(group, may_consume=True)
    await send(client, *numbered("orders", 6), *numbered("odd", 6))
    for group, topic in (("billing", "orders"), ("audit", "orders"), ("uneven", "odd")):
        async with consuming(client, group, topic, 6):
            pass
    await admin.create_topic("orders", queues=2, brokers=("broker-b",))  # nobody has read there
    async with Producer("shop", client=client) as producer:
        for broker in ("broker-a", "broker-b"):
            for _ in range(3):
                queue = MessageQueue("orders", broker, 1)
                await producer.send(Message("orders", b"x"), queue=queue)
    await admin.reset_offsets("billing", retry_topic("billing"), "earliest")
    first = MessageQueue("orders", "broker-a", 0)
    await admin.reset_offsets("moved", "orders", {first: 0})
    await send(client, *(Message("tags", b"x", tags=tag) for tag in ("paid", "open", "paid")))
    for group in LIVE:
        await admin.create_group(group, may_consume=False)
    return admin


def plain(lag: GroupLag) -> tuple[str, dict[MessageQueue, tuple[int | None, int]]]:
    """A sample's figures for each queue of a group."""
    return lag.group, {each.queue: (each.consumer_offset, each.lag) for each in lag.queues}


def counted(lag: GroupLag) -> GroupLag:
    """Without what is not asked where nothing waits."""
    queues = tuple(each if each.lag else replace(each, min_offset=0) for each in lag.queues)
    return replace(lag, queues=queues)


Compared = tuple[list[GroupLag], list[GroupLag], list[GroupRow], list[GroupRow], list[GroupLag]]


async def compare(client: Client) -> Compared:
    """Together and one by one: lags with all their figures, and rows."""
    admin = await prepare(client)
    early = PushConsumer("early", {"orders": "*"}, client=client)
    filtering = PushConsumer("filtering", {"tags": "paid"}, client=client)
    shouting = PushConsumer(
        "shouting", {"orders": "*"}, client=client, model=MessageModel.BROADCASTING
    )
    async with early, filtering, shouting:
        for each in (early, filtering, shouting):
            await each.start(Read().handle)
        await core_of(client).heartbeats.send_everywhere()
        await admin.reset_offsets("early", "orders", "earliest")  # pending: it may not read
        await asyncio.sleep(15)  # brokers look every 10 s how much was read
        (rated,) = await admin.lags(["billing"])
        measured = await admin.lag("billing")
        assert rated.consumed_per_s == pytest.approx(measured.consumed_per_s, rel=0.2)
        assert rated.consumed_per_s > 0
        await asyncio.sleep(120)  # rates are 0 from now on
        names = [*OFFLINE, *LIVE]
        alone = [await admin.lag(each, owners=False, waiting=True, matching=True) for each in names]
        lags = [await admin.with_waiting(each) for each in await admin.lags([*names, "nobody"])]
        rows = [(await admin.group_rows([each]))[0] for each in names]
        together = list(await admin.group_rows(names))
        sampled = await admin.sampled_lags([*names, "nobody"])
    lags, alone = [counted(each) for each in lags], [counted(each) for each in alone]
    return lags, alone, together, rows, sampled


def test_figures_of_all_groups_are_those_of_each() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        lags, alone, rows, single, sampled = as_client(sim, compare)
    assert lags == alone
    assert rows == single
    known = {each.group: each for each in lags}
    assert {each.group for each in sampled} == {"audit", "billing", "moved", "early"}, (
        "of the others brokers do not say enough together"
    )
    assert [plain(each) for each in sampled] == [plain(known[each.group]) for each in sampled]
    assert known["billing"].lag == 6  # what a broker has on which it has read nothing counts
    assert known["filtering"].lag == 3
    assert {each.matching for each in known["filtering"].queues if each.lag} <= {0, 1, 2}
    assert known["fresh"].queues == ()
    assert known["shouting"].lag == 0
    offsets = [each.consumer_offset for each in known["moved"].queues]
    assert offsets.count(0) == 1
    assert None in offsets
    assert retry_topic("billing") in known["billing"].by_topic
    assert [
        each.queue.queue_id for each in known["uneven"].queues if each.queue.topic == "odd"
    ] == [
        *range(3),
        *range(3),
    ]


@pytest.mark.parametrize("lacking", [GetBrokerConsumeStats, GetAllConsumerOffsets])
def test_a_broker_that_cannot_answer_for_all_is_asked_about_each_group(
    lacking: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = ClusterCalls.call
    asked: Counter[str] = Counter()

    async def refusing(self: ClusterCalls, address: str, header: Any, *more: Any) -> Any:
        asked[type(header).__name__] += 1
        if isinstance(header, lacking):
            raise BrokerRefusal(address, ResponseCode.SYSTEM_ERROR, "more than fits a frame")
        return await call(self, address, header, *more)

    monkeypatch.setattr(ClusterCalls, "call", refusing)
    with SimCluster(seed=1, brokers=2).run() as sim:
        lags, alone, rows, single, sampled = as_client(sim, compare)
    assert lags == alone
    assert rows == single
    assert asked[GetConsumeStats.__name__] > 2 * len(lags)
    assert sampled == []


def test_a_sample_asks_about_few_topics_and_leaves_out_groups_that_need_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where a broker does not say when the last read message came: nothing was read."""

    async def work(client: Client) -> list[GroupLag]:
        admin = Admin(client=client)
        for topic in ("one", "two", "three"):
            await admin.create_topic(topic, queues=1)
            await send(client, *numbered(topic, 2))
        for group, topic in (("a", "one"), ("b", "one"), ("c", "two"), ("d", "three")):
            await admin.create_group(group)
            await admin.reset_offsets(group, topic, "earliest")
        await admin.reset_offsets("d", "three", MoveBy(1))
        return await admin.sampled_lags(["a", "b", "c", "d"])

    monkeypatch.setattr(sampled_progress, "MOST_TOPICS", 1)
    with SimCluster(seed=1).run() as sim:
        found = as_client(sim, work)
    assert [(each.group, each.lag) for each in found] == [("a", 2), ("b", 2), ("d", 1)]


def test_a_broker_that_hangs_is_missing_in_every_sample() -> None:
    async def work(client: Client) -> list[GroupLag]:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 2))
        await admin.create_group("billing")
        await admin.reset_offsets("billing", "orders", "earliest")
        sim.host("broker-b").pause()
        return await admin.sampled_lags(["billing"])

    with SimCluster(seed=1, brokers=2).run() as sim:
        (found,) = as_client(sim, work)
    assert [each.broker for each in found.errors] == ["broker-b"]
