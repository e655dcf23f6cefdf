"""Topics: what an operator sees of them, and how they are changed."""

from typing import Any

import pytest

from sparrowmq import Admin, AlreadyExists, Client, MessageQueue, NotFound, SettingChange
from sparrowmq.client.client import core_of
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, as_operator, numbered, refused_with_orders, send


def test_a_topic_shows_settings_per_broker_and_the_offsets_of_each_queue() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic(
            "orders", read_queues=3, write_queues=2, order=True, attributes={"message.type": "FIFO"}
        )
        await send(client, *numbered("orders", 5))
        topic = await admin.topic("orders")
        assert [(each.broker, each.read_queues, each.write_queues) for each in topic.settings] == [
            ("broker-a", 3, 2),
            ("broker-b", 3, 2),
        ]
        (settings, _) = topic.settings
        assert (settings.permission, settings.order) == ("RW-", True)
        assert settings.attributes == {"message.type": "FIFO"}
        assert len(topic.queues) == 6
        assert topic.messages == 5
        assert topic.errors == ()
        empty = MessageQueue("orders", "broker-a", 2)
        held = {each.queue: each for each in topic.queues}
        assert held[empty].last_stored is None
        assert (held[empty].min_offset, held[empty].max_offset) == (0, 0)
        assert topic.last_stored is not None
        assert topic.last_stored.timestamp() * 1000 == pytest.approx(
            core_of(client).clock(), abs=2000
        )

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_all_topics_are_listed_with_those_of_the_brokers() -> None:
    with SimCluster(seed=1).run() as sim:
        as_operator(sim, lambda admin: admin.create_topic("orders"))
        assert {"orders", "TBW102"} <= set(as_operator(sim, lambda admin: admin.topics()))


def test_a_topic_is_created_on_the_brokers_that_were_named() -> None:
    with SimCluster(seed=1, brokers=3).run() as sim:
        done = as_operator(
            sim, lambda admin: admin.create_topic("orders", brokers=["broker-c", "broker-a"])
        )
        assert done == ["broker-a", "broker-c"]
        topic = as_operator(sim, lambda admin: admin.topic("orders"))
        assert [each.broker for each in topic.settings] == ["broker-a", "broker-c"]


def test_creating_a_topic_that_exists_changes_it_unless_that_is_refused() -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders", queues=4)
        assert await admin.create_topic("orders", queues=4, replace=False) == ["broker-a"]
        with pytest.raises(
            AlreadyExists, match=r"read_queues 4 → 6.*sparrowmq topic update"
        ) as raised:
            await admin.create_topic("orders", read_queues=6, write_queues=4, replace=False)
        assert raised.value.differences == ("broker-a: read_queues 4 → 6",)
        assert (await admin.topic("orders")).settings[0].read_queues == 4
        await admin.create_topic("orders", queues=6)
        assert (await admin.topic("orders")).settings[0].read_queues == 6

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


def test_creating_an_existing_topic_compares_only_the_settings_given() -> None:
    async def work(admin: Admin) -> None:
        known = {"message.type": "FIFO"}
        await admin.create_topic(
            "orders", queues=2, perm=4, order=True, attributes=known, brokers=["broker-a"]
        )
        done = await admin.create_topic("orders", attributes=known, replace=False)
        assert done == ["broker-a", "broker-b"]
        settings = (await admin.topic("orders")).settings
        assert [(each.read_queues, each.perm, each.order) for each in settings] == [
            (2, 4, True),
            (8, 6, False),
        ]
        assert [each.attributes for each in settings] == [known, known]

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_operator(sim, work)


def test_a_topic_is_replaced_with_defaults_for_what_is_not_given() -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders", queues=2, perm=4)
        await admin.create_topic("orders")
        (settings,) = (await admin.topic("orders")).settings
        assert (settings.read_queues, settings.write_queues, settings.perm) == (8, 8, 6)

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


CHANGES: list[tuple[dict[str, Any], list[SettingChange]]] = [
    ({"perm": 4}, [SettingChange("broker-a", "perm", 6, 4)]),
    (
        {"queues": 8},
        [
            SettingChange("broker-a", "read_queues", 4, 8),
            SettingChange("broker-a", "write_queues", 4, 8),
        ],
    ),
    ({"queues": 4, "write_queues": 9}, [SettingChange("broker-a", "write_queues", 4, 9)]),
    ({"read_queues": 4, "write_queues": 9}, [SettingChange("broker-a", "write_queues", 4, 9)]),
    (
        {"attributes": {"message.type": None, "reserve.time": "5"}},
        [
            SettingChange("broker-a", "message.type", "FIFO", None),
            SettingChange("broker-a", "reserve.time", None, "5"),
        ],
    ),
    ({"order": False, "attributes": {"message.type": "FIFO"}}, []),
]


@pytest.mark.parametrize(("given", "expected"), CHANGES)
def test_an_update_changes_only_the_settings_given(
    given: dict[str, Any], expected: list[SettingChange]
) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders", queues=4, attributes={"message.type": "FIFO"})
        before = await admin.topic("orders")
        assert await admin.update_topic("orders", **given, dry_run=True) == expected
        assert await admin.topic("orders") == before
        assert await admin.update_topic("orders", **given) == expected
        assert await admin.update_topic("orders", **given) == []
        (settings,) = (await admin.topic("orders")).settings
        now = {
            "read_queues": settings.read_queues,
            "write_queues": settings.write_queues,
            "perm": settings.perm,
            **settings.attributes,
        }
        wanted = {"read_queues": 4, "write_queues": 4, "perm": 6, "message.type": "FIFO"}
        wanted |= {change.setting: change.after for change in expected}
        assert now == {name: value for name, value in wanted.items() if value is not None}

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


def test_a_deleted_topic_is_gone_everywhere_and_may_be_deleted_again() -> None:
    async def work(admin: Admin) -> None:
        await admin.create_topic("orders", brokers=["broker-a"])
        for _ in range(2):
            done = await admin.delete_topic("orders", missing_ok=True)
            assert done == ["broker-a", "broker-b"]
        with pytest.raises(NotFound, match=r"orders does not exist; .*: sparrowmq topic list"):
            await admin.delete_topic("orders")
        assert "orders" not in await admin.topics()
        with pytest.raises(NotFound) as raised:
            await admin.topic("orders")
        assert (raised.value.kind, raised.value.name) == ("topic", "orders")

    with SimCluster(seed=1, name_servers=2, brokers=2).run() as sim:
        as_operator(sim, work)


WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("create_topic", {"topic": "a b"}, ValueError, "characters that are not allowed"),
    ("create_topic", {"topic": "o", "queues": -1}, ValueError, "queues is -1, must be 1 or more"),
    ("create_topic", {"topic": "o", "queues": 0}, ValueError, "queues is 0, must be 1 or more"),
    ("create_topic", {"topic": "o", "read_queues": 0}, ValueError, "read_queues is 0, must be 1"),
    ("create_topic", {"topic": "o", "queues": "8"}, ValueError, "queues is '8', must be a whole"),
    ("create_topic", {"topic": "o", "order": "no"}, ValueError, "order is 'no', must be True or"),
    ("update_topic", {"topic": "orders", "queues": 0}, ValueError, "queues is 0, must be 1"),
    ("update_topic", {"topic": "orders", "write_queues": -1}, ValueError, "must be 0 or more"),
    ("create_topic", {"topic": "o", "perm": 8}, ValueError, "perm is 8, must be a sum"),
    ("create_topic", {"topic": "o", "attributes": {"x": None}}, ValueError, "needs a value"),
    ("create_topic", {"topic": "o", "cluster": "C"}, NotFound, "known are: DefaultCluster"),
    ("create_topic", {"topic": "o", "brokers": ["b"]}, NotFound, "registered are: broker-a"),
    ("create_topic", {"topic": "o", "brokers": "b"}, ValueError, "must be a list of names"),
    ("update_topic", {"topic": "orders", "brokers": "b"}, ValueError, "must be a list of names"),
    ("create_topic", {"topic": "o", "attributes": ["x"]}, ValueError, "must be a Mapping"),
    ("create_topic", {"topic": "o", "perm": "RW"}, ValueError, "perm is 'RW', must be a whole"),
    ("update_topic", {"topic": "nope"}, NotFound, "topic nope does not exist; those that do"),
    ("update_topic", {"topic": "orders", "brokers": ["b"]}, NotFound, "orders is on: broker-a"),
    ("delete_topic", {"topic": "nope"}, NotFound, "nope does not exist; those that do: spar"),
    ("delete_topic", {"topic": ""}, ValueError, "the topic name is blank"),
    ("topic", {"topic": "nope"}, NotFound, "topic nope does not exist; those that do"),
    ("route", {"topic": "nope"}, NotFound, "topic nope does not exist; those that do"),
]


@pytest.mark.parametrize(("method", "arguments", "kind", "text"), WRONG)
def test_an_invalid_topic_argument_is_refused_with_the_reason(
    method: str, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    refused_with_orders(method, arguments, kind, text)
