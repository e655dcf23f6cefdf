"""Members that would disturb each other are refused at the call, or reported by name."""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.client.client import core_of
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.members import CONSUMERS_OF_PROCESS, ProcessConsumers
from sparrowmq.client.subscriptions import Filter, Sql, Subscriptions, differences
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic

ALL: Mapping[str, Filter] = {TOPIC: "*"}


class OneProcess:
    """Several clients in one process of the host `here`."""

    def __init__(self, sim: RunningCluster) -> None:
        self.sim = sim
        self.members = ProcessConsumers()

    async def start(
        self, subscriptions: Mapping[str, Filter] = ALL, *, name: str = "same", **settings: Any
    ) -> PushConsumer:
        client = self.sim.client_on("here", routes)
        object.__setattr__(client.config, "instance_name", name)
        core_of(client).process_consumers = self.members
        await client.start()
        consumer = PushConsumer(
            GROUP, subscriptions, client=client, threads=InlineWorkers(), **settings
        )
        try:
            await consumer.start(lambda messages: None)
        except ValueError:
            await client.stop()
            raise
        return consumer

    async def end(self, *consumers: PushConsumer) -> None:
        for consumer in consumers:
            await consumer.stop()
            await core_of_consumer(consumer).stop()

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self.sim.run(work, on=self.sim.host("here"))


def test_a_second_member_with_one_client_id_is_refused() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        process = OneProcess(sim)

        async def work() -> None:
            first = await process.start()
            heartbeats = len(sim.broker.consumers.group(GROUP).members)  # type: ignore[union-attr]
            with pytest.raises(ValueError, match=r"client id .*@same in this process already"):
                await process.start()
            assert len(sim.broker.consumers.group(GROUP).members) == heartbeats  # type: ignore[union-attr]
            await process.end(first)

        process.run(work())


def test_several_members_with_distinct_ids_may_run_in_one_process() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, queues=2)
        process = OneProcess(sim)

        async def work() -> None:
            both = [await process.start(name="one"), await process.start(name="two")]
            await asyncio.sleep(5)
            assert [len(one.assignment()) for one in both] == [2, 1]  # one has the retry topic
            await process.end(*both)

        process.run(work())


def test_an_id_is_free_again_when_its_member_stopped() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        process = OneProcess(sim)

        async def work() -> None:
            for _ in range(2):
                await process.end(await process.start())

        process.run(work())


def test_an_id_is_free_again_when_its_member_was_forgotten_with_its_loop() -> None:
    members = ProcessConsumers()
    leftovers = []
    for _ in range(2):
        with SimCluster(seed=1).run() as sim:
            create_topic(sim)
            process = OneProcess(sim)
            process.members = members
            leftovers.append(sim.run(process.start(), on=sim.host("here")))
    assert len(leftovers) == 2


def test_broadcasting_members_may_share_an_id() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        process = OneProcess(sim)

        async def work() -> None:
            model = MessageModel.BROADCASTING
            await process.end(await process.start(model=model), await process.start(model=model))

        process.run(work())


def test_a_member_that_subscribes_differently_is_refused_with_the_difference() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        process = OneProcess(sim)

        async def work() -> None:
            first = await process.start({TOPIC: "created"}, name="one")
            with pytest.raises(
                ValueError, match=r"topic orders: 'paid' here, 'created' there.*use another group"
            ):
                await process.start({TOPIC: "paid"}, name="two")
            await process.end(first)

        process.run(work())


@pytest.mark.parametrize(
    ("first", "second", "refusal"),
    [
        ({}, {"orderly": True}, "without orderly=True, this one is with it"),
        ({"orderly": True}, {}, "with orderly=True, this one is without it"),
        ({}, {"model": "BROADCASTING"}, "the model CLUSTERING, this one is BROADCASTING"),
        ({"model": "BROADCASTING"}, {}, "the model BROADCASTING, this one is CLUSTERING"),
    ],
)
def test_a_member_of_another_model_or_order_is_refused(
    first: dict[str, Any], second: dict[str, Any], refusal: str, tmp_path: Path
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        process = OneProcess(sim)

        async def work() -> None:
            running = await process.start(name="one", offsets_dir=tmp_path, **first)
            with pytest.raises(ValueError, match=f"{refusal}.*use another group"):
                await process.start(name="two", offsets_dir=tmp_path, **second)
            await process.end(running)

        process.run(work())


def test_another_process_that_subscribes_differently_is_reported_by_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        create_topic(sim, topic="refunds")
        Member(sim, name="a", subscriptions={TOPIC: "created"})
        with caplog.at_level(logging.WARNING, "sparrowmq.client"):
            Member(sim, name="b", subscriptions={TOPIC: "created || paid", "refunds": "*"})
        [told] = [one for one in caplog.messages if "subscribe differently:" in one]
        assert f"group {GROUP}" in told
        assert "@a)" in told
        assert "topic orders: 'created || paid' here, 'created' there" in told
        assert "topic refunds: '*' here, not subscribed there" in told


def test_nothing_is_reported_for_members_that_subscribe_alike(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        with caplog.at_level(logging.WARNING, "sparrowmq.client"):
            Member(sim, name="a")
            Member(sim, name="b")
        assert "differently" not in caplog.text


def test_differences_name_topic_kind_and_expression() -> None:
    ours = Subscriptions({"a": "x", "b": "*", "c": Sql("n > 1")}).all()
    theirs = Subscriptions({"a": "x", "b": Sql("n > 1"), "d": "*"}).all()
    assert differences(ours, ours) == ""
    assert differences(ours, theirs) == (
        "topic b: '*' here, SQL92 'n > 1' there;"
        " topic c: SQL92 'n > 1' here, not subscribed there;"
        " topic d: not subscribed here, '*' there"
    )


def test_consumers_of_a_real_process_know_of_each_other() -> None:
    consumer = LitePullConsumer(GROUP, {TOPIC: "*"})
    assert core_of_consumer(consumer).process_consumers is CONSUMERS_OF_PROCESS
