"""Clusters that answer slowly, in part or not at all; what brokers report about themselves."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    AdminError,
    BrokerFailure,
    Client,
    NameServerRefusal,
    NameServersAway,
    NoBrokerAnswers,
    NotFound,
    NotStarted,
    PartlyDone,
    Producer,
    TopicAway,
    TopicInfo,
)
from sparrowmq.admin import cluster_calls
from sparrowmq.client.client import core_of
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import as_client, as_operator, consuming, numbered, send


async def prepare(client: Client) -> None:
    admin = Admin(client=client)
    await admin.create_topic("orders", queues=1)
    await send(client, *numbered("orders", 4))
    async with consuming(client, "billing", "orders", 4):
        pass


QUESTIONS: dict[str, tuple[Callable[[Admin], Awaitable[Any]], Callable[[Any], Any]]] = {
    "topic": (
        lambda admin: admin.topic("orders"),
        lambda topic: [each.queue.broker_name for each in topic.queues],
    ),
    "groups": (lambda admin: admin.groups(), lambda groups: ["broker-a"] * ("billing" in groups)),
    "group": (
        lambda admin: admin.group("billing"),
        lambda group: [each.broker for each in group.settings],
    ),
    "lag": (
        lambda admin: admin.lag("billing", "orders"),
        lambda lag: [each.queue.broker_name for each in lag.queues],
    ),
    "members": (lambda admin: admin.members("billing"), lambda members: ["broker-a"]),
    "producers": (lambda admin: admin.producers(), lambda producers: ["broker-a"]),
    "topic_figures": (
        lambda admin: admin.topic_figures(["orders"], rates=True),
        lambda listed: [each.broker for one in listed for each in one.settings],
    ),
    "topic_readers": (
        lambda admin: admin.topic_readers("orders"),
        lambda readers: [queue.broker_name for each in readers for queue in each.unread],
    ),
    "clients": (lambda admin: admin.clients(), lambda clients: ["broker-a"]),
    "find_messages": (
        lambda admin: admin.find_messages("orders", "key-0"),
        lambda found: ["broker-a"],
    ),
    "group_rows": (
        lambda admin: admin.group_rows(["billing"]),
        lambda rows: ["broker-a"] * (rows[0].lag == 0),
    ),
    "subscriptions": (lambda admin: admin.subscriptions("billing"), lambda found: ["broker-a"]),
    "messages_between": (
        lambda admin: admin.messages_between("orders"),
        lambda found: sorted({each.broker_name for each in found.messages}),
    ),
}


def hang(sim: RunningCluster, broker: str) -> str:
    sim.host(broker).pause()
    return "did not answer .* within 5 s|not connected within"


def vanish(sim: RunningCluster, broker: str) -> str:
    """Name servers take two minutes to notice that a host without power is gone."""
    sim.host(broker).power_off()
    return "not connected within"


FAULTS = {"hangs": hang, "is without power": vanish}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_failing_broker_is_an_error_along_with_the_answers_of_the_other(
    question: str, fault: str
) -> None:
    ask, brokers_of = QUESTIONS[question]
    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, prepare)
        before_s = sim.now_s
        text = FAULTS[fault](sim, "broker-b")
        result = as_operator(sim, ask)
        assert brokers_of(result) == ["broker-a"]
        (error,) = result.errors
        assert (error.broker, error.address) == ("broker-b", sim.brokers["broker-b"].address)
        assert sim.now_s - before_s < 30
        assert re.search(text, error.reason)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_fails_when_every_broker_does(question: str) -> None:
    ask, _ = QUESTIONS[question]
    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, prepare)
        for broker in ("broker-a", "broker-b"):
            sim.host(broker).pause()
        with pytest.raises(
            NoBrokerAnswers, match=r"every broker failed: broker-a: .*; broker-b:"
        ) as raised:
            as_operator(sim, ask)
        assert [error.broker for error in raised.value.errors] == ["broker-a", "broker-b"]


def test_brokers_are_listed_with_figures_and_those_that_hang_without() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, prepare)
        sim.run(asyncio.sleep(30))  # counters are sampled
        sim.host("broker-b").pause()
        listed = as_operator(sim, lambda admin: admin.brokers())
        first, second = listed
        assert [(each.name, each.role, each.cluster) for each in listed] == [
            ("broker-a", "master", "DefaultCluster"),
            ("broker-b", "master", "DefaultCluster"),
        ]
        assert first.address == sim.brokers["broker-a"].address
        assert first.runtime is not None
        assert first.runtime.version == "V5_3_3"
        assert first.runtime.stored_today == 2
        assert first.runtime.busy_reason == ""
        assert first.runtime.disk_used is not None
        assert first.runtime.started is not None
        assert first.runtime.started.timestamp() * 1000 >= sim.epoch_ms
        assert second.runtime is None
        assert [error.broker for error in listed.errors] == ["broker-b"]
        clusters = as_operator(sim, lambda admin: admin.clusters())
        assert clusters == {"DefaultCluster": ("broker-a", "broker-b")}


def test_a_brokers_settings_are_read_by_apaches_names() -> None:
    with SimCluster(seed=1).run() as sim:
        config = as_operator(sim, lambda admin: admin.broker_config("broker-a"))
        assert config["brokerName"] == "broker-a"
        with pytest.raises(NotFound, match="registered are: broker-a"):
            as_operator(sim, lambda admin: admin.broker_config("broker-x"))


def test_live_producers_are_listed_per_broker() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        async with Producer("shop", client=client) as producer:
            await producer.send(next(iter(numbered("orders", 1))))
            await core_of(client).heartbeats.send_everywhere()
            (found,) = await admin.producers()
        assert (found.group, found.client_id, found.broker) == (
            "shop",
            client.client_id,
            "broker-a",
        )
        assert found.language == "PYTHON"
        assert found.last_seen is not None

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_the_number_of_requests_in_flight_stays_within_the_limit() -> None:
    async def work(client: Client) -> int:
        running = most = 0

        async def ask() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await core_of(client).peers.connect(core_of(client).name_servers.addresses[0])
            running -= 1

        await cluster_calls.at_once([ask] * 50)
        return most

    with SimCluster(seed=1).run() as sim:
        assert as_client(sim, work) == cluster_calls.MOST_AT_ONCE


# ---- name servers


def test_name_servers_that_do_not_answer_are_named_with_who_named_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def ask() -> None:
        async with Admin() as admin:
            await admin.topics()

    with SimCluster(seed=1).run() as sim:
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", "10.0.9.9:9876")
        with pytest.raises(
            NameServersAway,
            match=r"\(10.0.9.9:9876, from environment variable SPARROWMQ_NAME_SERVERS\)",
        ) as raised:
            sim.run(ask(), on=sim.host("operator"))
        assert raised.value.addresses == ("10.0.9.9:9876",)
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", "http://10.0.9.9:9876")
        with pytest.raises(ValueError, match="from environment variable SPARROWMQ_NAME_SERVERS"):
            Admin()


def test_a_broker_given_as_a_name_server_is_named_with_the_origin_of_its_address() -> None:
    with SimCluster(seed=1).run() as sim:

        async def ask() -> None:
            async with Admin(sim.brokers["broker-a"].address) as admin:
                await admin.topics()

        text = (
            r"the name server \(10\S+:\d+, from the argument name_servers\) answered 3: .*"
            r" is not supported here; that is not a name server, but perhaps a broker; name"
        )
        with pytest.raises(NameServerRefusal, match=text):
            sim.run(ask(), on=sim.host("operator"))


def test_a_deletion_that_a_name_server_missed_is_done_in_part() -> None:
    with SimCluster(seed=1, name_servers=2).run() as sim:
        as_operator(sim, lambda admin: admin.create_topic("orders"))
        sim.host("name-server-2").pause()
        with pytest.raises(PartlyDone) as raised:
            as_operator(sim, lambda admin: admin.delete_topic("orders"))
        assert raised.value.done == ["broker-a"]
        address = sim.name_servers["name-server-2"].address
        assert list(raised.value.failed) == [f"name server {address}"]


NO_BROKER = "^no broker is registered with the name server; start one first$"


@pytest.mark.parametrize("question", ["groups", "topic", "topic_readers", "find_messages"])
def test_a_cluster_without_brokers_is_reported_as_such(question: str) -> None:
    ask, _ = QUESTIONS[question]
    with SimCluster(seed=1, brokers=0).run() as sim:
        with pytest.raises(AdminError, match=NO_BROKER) as raised:
            as_operator(sim, ask)
        assert not isinstance(raised.value, NotFound)  # the topic may well exist


def test_a_topic_whose_brokers_are_all_gone_is_not_reported_as_missing() -> None:
    async def ask(admin: Admin) -> TopicInfo:
        await asyncio.sleep(1)  # the name server hears of the end
        return await admin.topic("orders")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, prepare)
        sim.brokers["broker-a"].kill()
        with pytest.raises(
            TopicAway, match=r"has no route; .*broker-a.*; start it again"
        ) as raised:
            as_operator(sim, ask)
        assert raised.value.topic == "orders"
        assert not isinstance(raised.value, NotFound)
        sim.name_servers["name-server-1"].restart()
        with pytest.raises(AdminError, match=NO_BROKER):
            as_operator(sim, ask)


def test_a_message_of_a_topic_whose_brokers_are_gone_is_not_reported_as_missing() -> None:
    async def send_one(client: Client) -> str:
        await Admin(client=client).create_topic("orders", brokers=["broker-b"])
        (sent,) = await send(client, *numbered("orders", 1))
        return sent.msg_id

    with SimCluster(seed=1, brokers=2).run() as sim:
        message_id = as_client(sim, send_one)
        sim.brokers["broker-b"].kill()
        sim.advance(1)
        for ask in (Admin.message, Admin.trace):
            with pytest.raises(TopicAway, match=r"topic orders has no route; .*broker-b"):
                as_operator(sim, lambda admin, ask=ask: ask(admin, message_id, "orders"))  # type: ignore[misc]


def test_using_an_unstarted_admin_raises() -> None:
    with SimCluster(seed=1).run() as sim, pytest.raises(NotStarted, match="async with"):
        sim.run(Admin("10.0.0.1:9876").topics(), on=sim.host("operator"))


def test_settings_that_would_not_count_are_refused() -> None:
    with SimCluster(seed=1).run() as sim:
        client = sim.client_on("operator")
        with pytest.raises(ValueError, match="client and name_servers cannot be combined"):
            Admin("a:9876", client=client)
    with pytest.raises(ValueError, match="timeout_s is 0"):
        Admin("a:9876", timeout_s=0)


def test_a_failure_reads_as_a_line() -> None:
    assert str(BrokerFailure("broker-a", "10.0.0.1:10911", "gone")) == "broker-a: gone"
