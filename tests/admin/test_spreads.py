"""A topic is put on more brokers: with its settings, evened out, and never at the cost of order."""

import asyncio
from typing import Any

import pytest

from sparrowmq import Admin, AdminError, NotFound, TopicShare
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_operator

THREE = SimCluster(brokers=3)


def shares(found: list[TopicShare]) -> list[tuple[str, int, int]]:
    return [(each.broker, each.queues_before, each.queues_after) for each in found]


def test_a_topic_is_spread_with_all_its_settings() -> None:
    with THREE.run() as sim:

        async def work(admin: Admin) -> None:
            attributes = {"message.type": "DELAY"}
            await admin.create_topic(
                "orders", queues=6, brokers=["broker-a"], attributes=attributes, perm=6
            )
            wanted = [("broker-a", 6, 6), ("broker-b", 0, 6), ("broker-c", 0, 6)]
            others = ["broker-c", "broker-b"]
            assert shares(await admin.spread_topic("orders", others, dry_run=True)) == wanted
            assert len((await admin.topic("orders")).settings) == 1
            assert shares(await admin.spread_topic("orders", others)) == wanted
            a, b, c = (await admin.topic("orders")).settings
            assert (a.read_queues, a.write_queues, a.perm, a.attributes) == (6, 6, 6, attributes)
            for each in (b, c):
                assert (each.read_queues, each.write_queues, each.perm) == (6, 6, 6)
                assert (each.order, each.attributes) == (False, attributes)
            route = await admin.route("orders")
            assert {each.broker_name for each in route.queue_datas} == {
                a.broker,
                b.broker,
                c.broker,
            }

        as_operator(sim, work)


def test_brokers_with_fewer_queues_get_as_many_as_the_one_with_most() -> None:
    with THREE.run() as sim:

        async def work(admin: Admin) -> None:
            await admin.create_topic("orders", queues=2, brokers=["broker-a", "broker-b"])
            await admin.update_topic("orders", queues=6, brokers=["broker-b"])
            found = await admin.spread_topic("orders", ["broker-c"])
            assert shares(found) == [("broker-a", 2, 6), ("broker-b", 6, 6), ("broker-c", 0, 6)]
            settings = (await admin.topic("orders")).settings
            assert {(each.read_queues, each.write_queues) for each in settings} == {(6, 6)}

        as_operator(sim, work)


def test_a_spread_that_stopped_half_way_is_finished_by_repeating_it() -> None:
    with THREE.run() as sim:

        async def work(admin: Admin) -> None:
            await admin.create_topic("orders", queues=6, brokers=["broker-a", "broker-b"])
            await admin.create_topic("orders", queues=2, brokers=["broker-c"])
            # broker-b got the topic, and then the command was killed
            found = await admin.spread_topic("orders", ["broker-b"])
            assert shares(found) == [("broker-a", 6, 6), ("broker-b", 6, 6), ("broker-c", 2, 6)]
            with pytest.raises(AdminError, match="nothing was changed: topic orders is on brok"):
                await admin.spread_topic("orders", ["broker-b"])

        as_operator(sim, work)


def test_a_topic_that_is_being_shrunk_is_spread_with_the_queues_that_stay() -> None:
    with THREE.run() as sim:

        async def work(admin: Admin) -> None:
            await admin.create_topic("orders", queues=8, brokers=["broker-a"])
            await admin.update_topic("orders", write_queues=4)
            assert shares(await admin.spread_topic("orders", ["broker-b"])) == [
                ("broker-a", 4, 4),
                ("broker-b", 0, 4),
            ]
            a, b = (await admin.topic("orders")).settings
            assert [(each.read_queues, each.write_queues) for each in (a, b)] == [(8, 4), (4, 4)]

        as_operator(sim, work)


@pytest.mark.parametrize(
    ("topic", "brokers", "kind", "text"),
    [
        ("orders", ["broker-z"], NotFound, "broker broker-z does not exist; registered are"),
        ("ordres", ["broker-b"], NotFound, "topic ordres does not exist"),
        ("orders", [], ValueError, "brokers is empty; name those that should have the topic"),
        ("orders", "broker-b", ValueError, "brokers is 'broker-b', must be a list of names"),
        ("orders", ["broker-a"], AdminError, "topic orders is on broker-a already; it is on brok"),
        ("both", ["broker-a", "broker-b"], AdminError, "both is on broker-a, broker-b already"),
        ("unequal", ["broker-b", "broker-c"], AdminError, r"broker-b has topic unequal with other.*"
         r"\(queues 2, not 4\)\. Make them equal first: sparrowmq topic update unequal --broker b"),
        ("closed", ["broker-c"], AdminError, r"has topic closed with other settings .*\(perm "),
        ("TBW102", ["broker-b"], ValueError, "topic TBW102 belongs to the brokers"),
        ("%RETRY%billing", ["broker-b"], ValueError, "belongs to the brokers, which make it where"),
        ("%DLQ%billing", ["broker-b"], ValueError, "belongs to the brokers, which make it where"),
        ("a b", ["broker-b"], ValueError, "has characters that are not allowed"),
        ("single", ["broker-b"], AdminError, "topic single has one queue, which keeps all its mes"),
        ("ordered", ["broker-b"], AdminError, "topic ordered is marked as ordered; with more queu"),
    ],
)  # fmt: skip
def test_a_spread_that_makes_no_sense_is_refused_before_anything_changes(
    topic: str, brokers: Any, kind: type[Exception], text: str
) -> None:
    with THREE.run() as sim:

        async def work(admin: Admin) -> None:
            await admin.create_topic("orders", queues=4, brokers=["broker-a"])
            await admin.create_topic("both", queues=4, brokers=["broker-a", "broker-b"])
            await admin.create_topic("unequal", queues=4, brokers=["broker-a", "broker-b"])
            await admin.update_topic("unequal", queues=2, brokers=["broker-b"])
            await admin.create_topic("closed", queues=4, brokers=["broker-a", "broker-b"])
            await admin.update_topic("closed", perm=4, brokers=["broker-b"])
            await admin.create_topic("single", queues=1, brokers=["broker-a"])
            await admin.create_topic("ordered", queues=4, order=True, brokers=["broker-a"])

            async def tables() -> list[object]:
                names = ("orders", "both", "unequal", "closed", "single", "ordered")
                return [(await admin.topic(name)).settings for name in names]

            before = await tables()
            with pytest.raises(kind, match=text):
                await admin.spread_topic(topic, brokers)
            assert await tables() == before

        as_operator(sim, work)


@pytest.mark.parametrize("topic", ["single", "ordered"])
def test_an_ordered_topic_is_spread_only_if_the_operator_accepts_the_reordering(topic: str) -> None:
    with THREE.run() as sim:

        async def work(admin: Admin) -> None:
            await admin.create_topic("single", queues=1, brokers=["broker-a"])
            await admin.create_topic("ordered", queues=4, order=True, brokers=["broker-a"])
            await admin.spread_topic(topic, ["broker-b"], accept_disorder=True)
            a, b = (await admin.topic(topic)).settings
            assert (a.order, a.write_queues) == (b.order, b.write_queues)

        as_operator(sim, work)


def test_a_broker_that_drains_gets_no_topic_and_one_without_a_master_neither() -> None:
    with SimCluster(brokers=2, slaves=1).run() as sim:

        async def begin(admin: Admin) -> None:
            await admin.create_topic("orders", queues=4, brokers=["broker-a"])
            await admin.drain_broker("broker-b", timeout_s=30)
            with pytest.raises(AdminError, match="broker-b drains and takes no new messages"):
                await admin.spread_topic("orders", ["broker-b"])
            await admin.resume_broker("broker-b")

        async def refused(admin: Admin) -> None:
            with pytest.raises(AdminError, match="broker broker-b has no master now"):
                await admin.spread_topic("orders", ["broker-b"])

        as_operator(sim, begin)
        sim.brokers["broker-b"].stop()
        sim.advance(5)
        as_operator(sim, refused)


def test_a_topic_can_be_made_while_a_broker_drains() -> None:
    """It is registered there without write permission, which is not a failure."""
    with SimCluster(brokers=2).run() as sim:

        async def work(admin: Admin) -> None:
            await admin.create_topic("orders", queues=4)
            sim.brokers["broker-a"].broker.drain.begin(0.0)
            await asyncio.sleep(1)
            before = sim.now_s
            assert await admin.create_topic("invoices", queues=4) == ["broker-a", "broker-b"]
            assert sim.now_s - before < 1
            perms = {
                each.broker_name: each.perm for each in (await admin.route("invoices")).queue_datas
            }
            assert perms == {"broker-a": 4, "broker-b": 6}

        as_operator(sim, work)
