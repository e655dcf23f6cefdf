"""Limits as operators see and change them, over all brokers."""

from typing import Any

import pytest

from sparrowmq import Admin, AdminError, Client, LimitReached, Message, NotFound, Producer
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, as_operator


def test_a_quota_holds_on_each_broker_and_is_shown_as_the_sum() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        changes = await admin.set_quota("topic", "orders", messages=5, bytes=5000)
        assert len(changes) == 4
        async with Producer("shop", client=client, retries=0) as producer:
            sent = refused = 0
            for _ in range(30):
                try:
                    await producer.send(Message("orders", b"x"))
                    sent += 1
                except LimitReached:
                    refused += 1
        assert sent == 10
        (limit,) = await admin.limits()
        assert (limit.scope, limit.name) == ("topic", "orders")
        assert (limit.messages, limit.bytes) == (10, 10_000)
        assert limit.brokers == ("broker-a", "broker-b")
        assert limit.refused == limit.refused_last_minute == refused == 20
        assert limit.is_refusing and limit.since is not None
        removed = await admin.unset_limits("topic", "orders")
        assert len(removed) == 4
        assert not await admin.limits()

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        ("topic", "orders"),
        ("producer-group", "shop"),
        ("consumer-group", "billing"),
        ("client", "*"),
    ],
)
def test_every_scope_is_set_listed_and_removed(scope: str, name: str) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders")
        await admin.create_group("billing")
        planned = await admin.set_quota(scope, name, messages=5, dry_run=True)
        assert [each.after for each in planned] == ["5", "5"]
        assert not await admin.limits()
        assert await admin.set_quota(scope, name, messages=5) == planned
        (limit,) = await admin.limits()
        assert (limit.scope, limit.name, limit.messages) == (scope, name, 10)
        assert await admin.set_quota(scope, name, messages=5) == []
        await admin.set_quota(scope, name, bytes=7)
        await admin.unset_limits(scope, name, which=["messages"])
        (limit,) = await admin.limits()
        assert (limit.messages, limit.bytes) == (None, 14)
        await admin.unset_limits(scope, name)
        assert not await admin.limits()

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_operator(sim, work)


def test_a_backlog_is_set_changed_and_removed() -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders")
        await admin.create_group("billing")
        await admin.set_backlog("orders", ["billing"], messages=100)
        await admin.set_backlog("orders", ["billing"], seconds=60, action="slow")
        (limit,) = await admin.limits()
        assert str(limit.backlog) == "60s:slow:billing"
        await admin.unset_limits("topic", "orders", which=["backlog"])
        assert not await admin.limits()

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("set_quota", {"scope": "topics", "name": "orders", "messages": 1}, "must be one of topic"),
    ("set_quota", {"scope": "topic", "name": "orders"}, "needs a limit"),
    ("set_quota", {"scope": "topic", "name": "orders", "messages": 0}, "messages is 0"),
    ("set_quota", {"scope": "topic", "name": "orders", "bytes": -1}, "bytes is -1"),
    ("set_quota", {"scope": "topic", "name": "orders", "messages": 1.5}, "whole number"),
    ("set_quota", {"scope": "topic", "name": "%DLQ%billing", "messages": 1}, "cannot be limited"),
    ("set_quota", {"scope": "topic", "name": "a b", "messages": 1}, "not allowed"),
    ("set_quota", {"scope": "client", "name": "c@1", "messages": 1}, "holds for every client"),
    ("set_quota", {"scope": "consumer-group", "name": "TOOLS_CONSUMER", "messages": 1}, "tools"),
    ("set_quota", {"scope": "producer-group", "name": "a b", "messages": 1}, "not allowed"),
    ("set_backlog", {"topic": "orders", "groups": "billing", "messages": 1}, "list of names"),
    ("set_backlog", {"topic": "orders", "groups": [], "messages": 1}, "names its groups"),
    ("set_backlog", {"topic": "orders", "groups": ["billing"]}, "give one of them"),
    (
        "set_backlog",
        {"topic": "orders", "groups": ["billing"], "messages": 1, "seconds": 1},
        "give one of them",
    ),
    ("set_backlog", {"topic": "orders", "groups": ["billing"], "messages": 0}, "messages is 0"),
    (
        "set_backlog",
        {"topic": "orders", "groups": ["billing"], "messages": 1, "action": "stop"},
        "must be refuse or slow",
    ),
    (
        "set_backlog",
        {"topic": "orders", "groups": ["billing", "billing"], "messages": 1},
        "names group billing more than once",
    ),
    ("unset_limits", {"scope": "topic", "name": "orders", "which": ["speed"]}, "is not a limit"),
    ("unset_limits", {"scope": "client", "which": ["backlog"]}, "is not a limit of a client"),
]


@pytest.mark.parametrize(("method", "arguments", "expected"), BAD)
def test_impossible_limits_are_refused_before_anything_is_asked(
    method: str, arguments: dict[str, Any], expected: str
) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders")
        await admin.create_group("billing")
        with pytest.raises(ValueError, match=expected):
            await getattr(admin, method)(**arguments)
        assert not await admin.limits()

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("set_quota", {"scope": "topic", "name": "nowhere", "messages": 1}),
        ("set_quota", {"scope": "consumer-group", "name": "nobody", "messages": 1}),
        ("set_backlog", {"topic": "orders", "groups": ["nobody"], "messages": 1}),
        ("set_backlog", {"topic": "nowhere", "groups": ["billing"], "messages": 1}),
        ("unset_limits", {"scope": "topic", "name": "nowhere"}),
        ("set_quota", {"scope": "client", "messages": 1, "brokers": ["broker-z"]}),
    ],
)
def test_unknown_topics_groups_and_brokers_are_refused(
    method: str, arguments: dict[str, Any]
) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders")
        await admin.create_group("billing")
        with pytest.raises(NotFound):
            await getattr(admin, method)(**arguments)

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


def test_limits_change_only_if_all_brokers_answer() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        sim.paths.partition([sim.host("operator")], [sim.brokers["broker-b"].host])

        async def work(admin: Admin) -> None:
            with pytest.raises(AdminError):
                await admin.set_quota("client", messages=5)
            assert not (await admin.limits()).items

        as_operator(sim, work, timeout_s=1.0)


def test_a_quota_of_one_broker_is_set_there_only() -> None:
    async def work(admin: Admin) -> None:
        await admin.set_quota("client", messages=5, brokers=["broker-b"])
        (limit,) = await admin.limits()
        assert (limit.messages, limit.brokers) == (5, ("broker-b",))

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_operator(sim, work)
