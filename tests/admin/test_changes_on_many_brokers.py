"""Operations on several brokers of which some refuse or are away."""

from collections.abc import Awaitable, Callable

import pytest

from sparrowmq import Admin, AdminError, Client, NotFound, PartlyDone
from sparrowmq.admin.errors import not_done
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.client.client import core_of
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, as_operator


@pytest.mark.parametrize("queues", [8, 16])
def test_name_servers_know_the_change_when_the_call_returns(queues: int) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        as_operator(sim, lambda admin: admin.create_topic("orders", queues=4))
        done = as_operator(sim, lambda admin: admin.create_topic("orders", queues=queues))
        assert done == ["broker-a", "broker-b"]
        route = as_operator(sim, lambda admin: admin.route("orders"))
        assert [data.write_queue_nums for data in route.queue_datas] == [queues] * 2


def test_what_every_broker_refuses_is_not_called_done_anywhere() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        with pytest.raises(AdminError) as raised:
            as_operator(sim, lambda admin: admin.create_topic("orders", queues=5000))
        assert not isinstance(raised.value, PartlyDone)
        text = str(raised.value)
        assert text.count("5000 read queues, allowed are 0 to 4096") == 1
        assert "(said by broker-a, broker-b)" in text
        assert "run it again" not in text


def test_an_unreachable_broker_is_named_along_with_those_that_have_the_change() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        sim.host("broker-b").pause()
        with pytest.raises(PartlyDone, match="when that is mended run it again") as raised:
            as_operator(sim, lambda admin: admin.create_topic("orders"))
        assert raised.value.done == ["broker-a"]
        assert list(raised.value.failed) == ["broker-b"]


DELETIONS: dict[str, Callable[[Admin], Awaitable[list[str]]]] = {
    "a topic": lambda admin: admin.delete_topic("orders"),
    "a topic that may be missing": lambda admin: admin.delete_topic("orders", missing_ok=True),
    "a group": lambda admin: admin.delete_group("billing"),
    "a group by force": lambda admin: admin.delete_group("billing", force=True),
    "a group that may be missing": lambda admin: admin.delete_group(
        "billing", force=True, missing_ok=True
    ),
}


@pytest.mark.parametrize("deletion", DELETIONS)
def test_nothing_is_deleted_while_a_broker_hangs_and_it_deletes_nothing_later(
    deletion: str,
) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
        for node in sim.brokers.values():  # requests sent now arrive when the broker resumes
            await core_of(client).peers.connect(node.address)
        sim.host("broker-b").pause()
        with pytest.raises(AdminError, match="nothing was changed, since not all brokers answer"):
            await DELETIONS[deletion](admin)
        sim.host("broker-b").resume()
        both = ["broker-a", "broker-b"]
        assert [each.broker for each in (await admin.topic("orders")).settings] == both
        assert [each.broker for each in (await admin.group("billing")).settings] == both

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


PAUSES: dict[str, Callable[[Admin], Awaitable[list[str]]]] = {
    "a group": lambda admin: admin.pause_group("billing"),
    "a group in one topic": lambda admin: admin.pause_group("billing", topic="orders"),
    "the resumption in one topic": lambda admin: admin.resume_group("billing", topic="orders"),
}


@pytest.mark.parametrize("pause", PAUSES)
def test_no_group_is_paused_or_resumed_on_some_brokers_while_another_hangs(pause: str) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
        for node in sim.brokers.values():  # what is sent now arrives when the broker goes on
            await core_of(client).peers.connect(node.address)
        sim.host("broker-b").pause()
        with pytest.raises(AdminError, match="nothing was changed, since not all brokers answer"):
            await PAUSES[pause](admin)
        sim.host("broker-b").resume()
        settings = (await admin.group("billing")).settings
        assert [(each.may_consume, each.paused_topics) for each in settings] == [
            (True, frozenset())
        ] * 2

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_a_broker_that_was_sent_a_change_and_did_not_answer_may_have_made_it() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        for node in sim.brokers.values():
            await core_of(client).peers.connect(node.address)
        sim.host("broker-b").pause()
        with pytest.raises(PartlyDone, match="and it is not known whether on broker-b") as raised:
            await admin.create_topic("orders", replace=True)
        assert "but not on" not in str(raised.value)
        assert (raised.value.done, raised.value.unknown) == (["broker-a"], ("broker-b",))

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_brokers_that_refuse_for_the_same_reason_are_listed_after_the_reason() -> None:
    refused = [
        BrokerFailure(
            name, port, f"{port} answered 1 (SYSTEM_ERROR): dedup is yes", is_refusal=True
        )
        for name, port in (("broker-a", "127.0.0.1:1"), ("broker-b", "127.0.0.1:2"))
    ]
    assert str(not_done(refused)) == "not done: dedup is yes (said by broker-a, broker-b)"
    assert str(not_done(refused[:1])) == f"not done: {refused[0]}"


def test_a_change_is_reported_as_not_done_only_when_that_is_certain() -> None:
    refused = BrokerFailure("broker-a", "a:1", "it is full")
    silent = BrokerFailure("broker-b", "b:1", "did not answer", may_have_acted=True)
    unknown = "it is not known whether it was done: broker-b: did not answer"
    assert str(not_done([refused])) == "not done: broker-a: it is full"
    assert str(not_done([silent])) == unknown
    assert str(not_done([refused, silent])) == f"not done: broker-a: it is full; {unknown}"


def test_a_topic_that_brokers_deleted_does_not_exist_although_it_has_a_route_still() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        as_operator(sim, lambda admin: admin.create_topic("orders"))
        for node in sim.brokers.values():
            node.broker.topics.remove("orders")
        with pytest.raises(NotFound, match="topic orders does not exist; those that do"):
            as_operator(sim, lambda admin: admin.topic("orders"))
