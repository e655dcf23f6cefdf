"""Consumer groups: settings, live members, subscriptions."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq import (
    Admin,
    AlreadyExists,
    Client,
    GroupInfo,
    InUse,
    MessageModel,
    NotFound,
    PushConsumer,
    SettingChange,
    Subscription,
)
from sparrowmq.admin.cluster_calls import ClusterCalls
from sparrowmq.admin.errors import BrokerRefusal
from sparrowmq.cli.commands.group import members_table
from sparrowmq.client.client import core_of
from sparrowmq.console.pages.groups import state_of
from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode, version_text
from sparrowmq.protocol.headers.admin import UpdateGroupForbidden
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.doctor.facts_tables import person, settings
from tests.admin.doctor.provocations import succeed, wait_for_ever
from tests.admin.operator import (
    as_client,
    as_operator,
    consuming,
    numbered,
    refused_with_orders,
    send,
)

GROUP_INFO = GroupInfo(
    name="billing",
    settings=(settings(),),
    members=(person("c1"),),
    model=MessageModel.CLUSTERING,
    subscriptions=frozenset({Subscription("orders")}),
    topics=("orders",),
    doubled_client_ids=frozenset(),
)


def test_a_live_group_shows_settings_members_and_subscriptions() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        await admin.create_group("billing", retries=3)
        await send(client, *numbered("orders", 4))
        begun_ms = core_of(client).clock()
        async with consuming(client, "billing", "orders", 4):
            group = await admin.group("billing")
            members = await admin.members("billing")
        assert [(each.broker, each.retries) for each in group.settings] == [
            ("broker-a", 3),
            ("broker-b", 3),
        ]
        assert group.is_online
        assert group.model is MessageModel.CLUSTERING
        assert group.subscriptions == {Subscription("orders", "*", "TAG")}
        assert not group.subscriptions_differ
        (member,) = group.members
        assert members.items == (member,)
        assert member.client_id == client.client_id
        assert (member.language, member.version) == ("PYTHON", "V5_3_3")
        assert member.address.startswith(client.config.client_ip)
        assert member.brokers == ("broker-a", "broker-b")
        assert member.since is not None
        assert begun_ms <= member.since.timestamp() * 1000 <= core_of(client).clock()
        assert member.queues is not None
        assert sum(queue.topic == "orders" for queue in member.queues) == 4
        assert member.subscriptions == group.subscriptions
        assert member.stacks is None

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, work)


def test_a_group_without_members_keeps_settings_and_topics() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)
        await send(client, *numbered("orders", 2))
        async with consuming(client, "billing", "orders", 2):
            pass
        group = await admin.group("billing")
        assert (group.is_online, group.model, group.members) == (False, None, ())
        assert "orders" in group.topics
        assert len(group.settings) == 1
        assert (await admin.members("billing")).items == ()
        assert "billing" in await admin.groups()

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_members_that_subscribe_differently_are_shown_with_each_subscription() -> None:
    with SimCluster(seed=1).run() as sim:

        async def work(client: Client) -> None:
            admin = Admin(client=client)
            await admin.create_topic("orders", queues=4)
            other = sim.client_on("other")
            await other.start()
            try:
                async with (
                    consuming(client, "billing", "orders", 0, "created"),
                    consuming(other, "billing", "orders", 0, "paid"),
                ):
                    group = await admin.group("billing")
            finally:
                await other.stop()
            assert group.subscriptions_differ
            assert {each.client_id: each.subscriptions for each in group.members} == {
                client.client_id: frozenset({Subscription("orders", "created")}),
                other.client_id: frozenset({Subscription("orders", "paid")}),
            }

        as_client(sim, work)


def test_the_stacks_of_a_member_are_included_on_request() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders")
        async with consuming(client, "billing", "orders", 0):
            plain = await admin.member("billing", client.client_id)
            asked = await admin.member("billing", client.client_id, stacks=True)
            with pytest.raises(NotFound, match=f"live members.* are: {client.client_id}"):
                await admin.member("billing", "who")
        assert plain.stacks is None
        assert "task " in (asked.stacks or "")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_live_group_is_not_deleted_unless_forced() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders")
        async with consuming(client, "billing", "orders", 0):
            with pytest.raises(InUse, match="stop them first") as raised:
                await admin.delete_group("billing")
            assert raised.value.members == (client.client_id,)
            assert (await admin.group("billing")).settings != ()
            assert await admin.delete_group("billing", force=True) == ["broker-a"]

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize("keeps", [True, False])
def test_a_deleted_group_loses_its_progress_unless_it_is_kept(keeps: bool) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        await send(client, *numbered("orders", 3))
        async with consuming(client, "billing", "orders", 3):
            pass
        assert await admin.delete_group("billing", keep_offsets=keeps) == ["broker-a"]
        await admin.create_group("billing")
        (queue,) = (await admin.lag("billing", "orders")).queues
        assert queue.consumer_offset == (3 if keeps else None)

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_group_is_created_on_named_brokers_and_not_changed_against_ones_will() -> None:
    async def work(admin: Admin) -> None:
        assert await admin.create_group("billing", retries=3, brokers=["broker-b"]) == ["broker-b"]
        with pytest.raises(AlreadyExists, match=r"broker-b: retries 3 → 4.*sparrowmq group update"):
            await admin.create_group("billing", retries=4, replace=False)
        assert [each.broker for each in (await admin.group("billing")).settings] == ["broker-b"]
        done = await admin.create_group("billing", may_consume=True, replace=False)
        assert done == ["broker-a", "broker-b"]
        settings = (await admin.group("billing")).settings
        assert [each.retries for each in settings] == [16, 3]

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_operator(sim, work)


BOTH = ("broker-a", "broker-b")
STATES: list[tuple[str, list[tuple[str | None, tuple[str, ...]]]]] = [
    ("consuming", []),
    ("paused", [(None, BOTH)]),
    ("paused", [(None, BOTH), ("orders", BOTH)]),
    ("paused on broker-a", [(None, ("broker-a",))]),
    ("paused in orders", [("orders", BOTH)]),
    ("paused in orders on broker-b", [("orders", ("broker-b",))]),
    (
        "paused on broker-a, paused in orders, paused in refunds on broker-b",
        [(None, ("broker-a",)), ("refunds", ("broker-b",)), ("orders", BOTH)],
    ),
]


@pytest.mark.parametrize(("state", "pauses"), STATES, ids=[str(n) for n in range(len(STATES))])
def test_the_state_of_a_group_names_its_paused_topics(
    state: str, pauses: list[tuple[str | None, tuple[str, ...]]]
) -> None:
    def off(broker: str) -> frozenset[str | None]:
        return frozenset(topic for topic, brokers in pauses if broker in brokers)

    info = replace(
        GROUP_INFO,
        settings=tuple(
            settings(
                broker,
                may_consume=None not in off(broker),
                paused_topics=frozenset(each for each in off(broker) if each is not None),
            )
            for broker in BOTH
        ),
    )
    assert info.state == state
    assert state_of(info, None).word == ("online" if state == "consuming" else state)
    words = {"consuming": "offline", "paused": "paused"}
    offline = replace(info, members=())
    assert offline.state == words.get(state, f"offline, {state}")


def test_the_state_of_a_group_is_shown_without_paused_topics_if_a_broker_omits_them() -> None:
    info = replace(GROUP_INFO, settings=(settings(paused_topics=None), settings("broker-b")))
    assert info.state == "consuming"


def test_a_broker_before_5_0_does_not_report_paused_topics(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = ClusterCalls.call

    async def old(self: ClusterCalls, address: str, header: Any, body: bytes = b"") -> Response:
        if isinstance(header, UpdateGroupForbidden):
            raise BrokerRefusal(address, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "")
        return await call(self, address, header, body)

    monkeypatch.setattr(ClusterCalls, "call", old)

    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        async with consuming(client, "billing", "orders", 0):
            found = await admin.group("billing")
            examined = await admin.doctor("group", "billing")
        assert [each.paused_topics for each in found.settings] == [None]
        assert (found.state, found.errors) == ("consuming", ())
        (skipped,) = (each for each in examined.not_made if "paused" in each.ids)
        assert skipped.subject == "single topics of group billing"
        assert skipped.reason.endswith("which topics a group may not read: broker-a")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_an_unknown_group_is_a_row_without_figures_and_an_error() -> None:
    async def work(admin: Admin) -> None:
        await admin.create_group("billing")
        listed = await admin.group_rows(["billing", "nope"])
        assert [(each.name, each.lag) for each in listed] == [("billing", 0), ("nope", None)]
        (error,) = listed.errors
        assert str(error).startswith("group nope: group nope does not exist; those that do")

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


CHANGES: list[tuple[dict[str, Any], list[SettingChange]]] = [
    ({"retries": 5}, [SettingChange("broker-a", "retries", 3, 5)]),
    (
        {"may_consume": False, "may_broadcast": True},
        [SettingChange("broker-a", "may_consume", True, False)],
    ),
    ({"orderly": True}, [SettingChange("broker-a", "orderly", False, True)]),
    ({"retry_queues": 1}, []),
]


@pytest.mark.parametrize(("given", "expected"), CHANGES)
def test_an_update_changes_only_the_settings_given(
    given: dict[str, Any], expected: list[SettingChange]
) -> None:
    async def work(admin: Admin) -> None:
        await admin.create_group("billing", retries=3)
        before = (await admin.group("billing")).settings
        assert await admin.update_group("billing", **given, dry_run=True) == expected
        assert (await admin.group("billing")).settings == before
        assert await admin.update_group("billing", **given) == expected
        (was,), (now,) = before, (await admin.group("billing")).settings
        changed = {each.setting: each.after for each in expected}
        for name in ("retries", "may_consume", "may_broadcast", "orderly", "retry_queues"):
            assert getattr(now, name) == changed.get(name, getattr(was, name))

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


WRONG: list[tuple[str, dict[str, Any], type[Exception], str]] = [
    ("group", {"group": "nope"}, NotFound, "group nope does not exist; those that do"),
    ("lag", {"group": "nope", "topic": "orders"}, NotFound, "group nope does not exist"),
    ("update_group", {"group": "nope", "retries": 1}, NotFound, "create it with: sparrowmq group"),
    ("create_group", {"group": "a b"}, ValueError, "characters that are not allowed"),
    ("create_group", {"group": "g", "attributes": {"x": None}}, ValueError, "needs a value"),
    ("create_group", {"group": "g", "retries": -7}, ValueError, "is -7, must be -1 or more"),
    ("create_group", {"group": "g", "retry_queues": 0}, ValueError, "is 0, must be 1 or more"),
    ("create_group", {"group": "g", "orderly": "no"}, ValueError, "must be True or False"),
    ("delete_group", {"group": "nope"}, NotFound, "those that do: sparrowmq group list"),
    ("create_group", {"group": "g", "brokers": ["b"]}, NotFound, "registered are: broker-a"),
    ("delete_group", {"group": ""}, ValueError, "the group name is blank"),
    ("members", {"group": ""}, ValueError, "the group name is blank"),
]


@pytest.mark.parametrize(("method", "arguments", "kind", "text"), WRONG)
def test_an_invalid_group_argument_is_refused_with_the_reason(
    method: str, arguments: dict[str, Any], kind: type[Exception], text: str
) -> None:
    refused_with_orders(method, arguments, kind, text)


@pytest.mark.parametrize(
    ("number", "text"),
    [(479, "V5_3_3"), (317, "V4_5_2"), (401, "V4_9_4"), (212, "V4_0_0_SNAPSHOT"), (60, "60")],
)
def test_versions_are_shown_as_apache_names_them(number: int, text: str) -> None:
    assert version_text(number) == text


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    ("handler", "in_flight", "waits_for"),
    [
        (wait_for_ever, 3, "its handler: 3 messages, none finished for 30 s"),
        (wait_for_ever, 1, "its handler: 1 message, none finished for 30 s"),
        (succeed, 0, ""),
    ],
)
def test_a_member_waits_for_a_handler_that_does_not_return(
    handler: Any, in_flight: int, waits_for: str, orderly: bool
) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=1)
        async with PushConsumer(
            "billing", {"orders": "*"}, client=client, orderly=orderly
        ) as consumer:
            await consumer.start(handler)
            await asyncio.sleep(100)  # idle: that does not count
            await send(client, *numbered("orders", in_flight or 3))
            await asyncio.sleep(30)
            found = await admin.members("billing")
        (member,) = found
        assert member.in_flight == in_flight
        assert members_table(found).rows[0][-1] == waits_for

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)
