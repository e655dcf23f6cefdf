"""Who owns which queue and why, as members report it or as it is inferred."""

import asyncio

import pytest

from sparrowmq import Admin, AdminError, Client, ConsumeFromWhere, NotFound, PushConsumer
from sparrowmq.admin.rebalance import RebalanceInfo
from sparrowmq.admin.rebalance_simulation import read_event, simulate
from sparrowmq.client.group import running_info
from sparrowmq.client.strategies import STICKY
from sparrowmq.protocol.rebalance_report import REBALANCE_PROPERTY, read_report
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.doctor.provocations import wait_for_ever
from tests.admin.operator import Read, as_client, as_operator, numbered, send


async def member(client: Client, **more: object) -> PushConsumer:
    consumer = PushConsumer("billing", {"orders": "*"}, client=client, **more)  # type: ignore[arg-type]
    await consumer.start(Read().handle)
    return consumer


async def two_members(sim: RunningCluster, admin: Admin, **more: object) -> list[Client]:
    """A member with all queues, then a second one that took its share."""
    await admin.create_topic("orders", queues=4)
    clients = []
    for name in ("first", "second"):
        client = sim.client_on(name)
        clients.append(client)
        await client.start()
        await member(client, **more)
        await asyncio.sleep(5)
    return clients


def explained(**more: object) -> tuple[RebalanceInfo, list[str]]:
    """What an operator sees of two members, and their client ids."""
    with SimCluster(seed=1).run() as sim:

        async def work(client: Client) -> tuple[RebalanceInfo, list[str]]:
            admin = Admin(client=client)
            clients = await two_members(sim, admin, **more)
            found = await admin.rebalance("billing")
            ids = [each.client_id for each in clients]
            for each in clients:
                await each.stop()
            return found, ids

        return as_client(sim, work)


def test_members_report_since_when_and_why_they_hold_a_queue() -> None:
    found, ids = explained()
    assert [each.queue.queue_id for each in found.queues] == [0, 1, 2, 3]
    assert {each.owner for each in found.queues} == set(ids)
    assert not any(each.is_inferred for each in found.queues)
    assert {each.why for each in found.queues} == {
        "AVG: 4 queues, 1 member: 4 for this member",
        "AVG: 4 queues, 2 members: 2 for this member",
    }
    since = {each.owner: each.since for each in found.queues}
    first, second = (since[client_id] for client_id in ids)
    assert first is not None
    assert second is not None
    assert first < second
    assert found.strategies == {"AVG"}
    assert (found.silent, found.errors) == ({}, ())


def test_the_last_moves_are_listed_newest_first_with_their_reasons() -> None:
    found, ids = explained()
    times = [move.at for move in found.moves]
    assert times == sorted(times, key=lambda at: at.timestamp() if at else 0.0, reverse=True)
    moved = [move for move in found.moves if move.queue is not None and move.member == ids[0]]
    given = [move for move in moved if move.action == "drop"]
    assert len(given) == 2
    assert all(move.why.startswith("assigned to another member") for move in given)
    shares = [move.why for move in found.moves if move.action == "share" and move.member == ids[0]]
    assert shares == [
        "4 queues, 2 members: 2 for this member",
        "4 queues, 1 member: 4 for this member",
    ]
    assert not [move for move in found.moves if move.topic.startswith("%RETRY%")]


def test_the_reason_of_members_that_report_none_is_inferred(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_info, "REBALANCE_PROPERTY", "unknown")
    found, ids = explained()
    assert {each.owner for each in found.queues} == set(ids)
    assert all(each.is_inferred and each.since is None for each in found.queues)
    assert {each.why for each in found.queues} == {"AVG: 4 queues, 2 members"}
    assert [each.strategy for each in found.members] == ["AVG", "AVG"]
    assert all(each.is_inferred for each in found.members)
    assert found.moves == ()


def test_strategies_are_reported() -> None:
    found, _ = explained(strategy=STICKY)
    assert found.strategies == {"STICKY"}


def test_a_group_without_members_reports_that_for_every_queue() -> None:
    async def work(admin: Admin) -> RebalanceInfo:
        await admin.create_topic("orders", queues=2)
        await admin.create_group("billing")
        return await admin.rebalance("billing", "orders")

    with SimCluster(seed=1).run() as sim:
        found = as_operator(sim, work)
    assert [each.owner for each in found.queues] == [None, None]
    assert {each.why for each in found.queues} == {"the group has no live members"}


def test_what_does_not_exist_is_refused() -> None:
    async def work(admin: Admin) -> None:
        with pytest.raises(NotFound, match="group billing"):
            await admin.rebalance("billing")
        with pytest.raises(NotFound, match="group billing"):
            await admin.simulated_group("billing")
        await admin.create_group("billing")
        with pytest.raises(AdminError, match="no live members; simulate a described one"):
            await admin.simulated_group("billing")

    with SimCluster(seed=1).run() as sim:
        as_operator(sim, work)


def test_a_live_group_is_simulated_with_its_owners_rates_and_strategy() -> None:
    with SimCluster(seed=1).run() as sim:

        async def work(client: Client) -> None:
            admin = Admin(client=client)
            clients = await two_members(sim, admin)
            await send(client, *numbered("orders", 60))
            await asyncio.sleep(15)
            group = await admin.simulated_group("billing", "orders")
            assert group.members == tuple(sorted(each.client_id for each in clients))
            assert (group.strategy, len(group.owners), group.others) == ("AVG", 4, frozenset())
            assert group.per_s > 0
            for each in clients:
                await each.stop()

        as_client(sim, work)


def test_the_lag_of_a_handler_that_never_returns_is_in_the_spike() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        await admin.create_topic("orders", queues=2)

        async with PushConsumer(
            "billing", {"orders": "*"}, client=client, from_where=ConsumeFromWhere.FIRST_OFFSET
        ) as consumer:
            await consumer.start(wait_for_ever)
            await send(client, *numbered("orders", 52))
            await asyncio.sleep(20)
            group = await admin.simulated_group("billing", "orders")
            assert sum(group.lag.values()) == 52
            assert 19 < group.handler_s < 21
            (found,) = simulate(group, [read_event("join")], ["AVG"])
            assert found.spike >= 26
            assert found.repeated == 26

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"held": 7}'])
def test_an_unreadable_report_counts_as_missing(text: str) -> None:
    assert read_report({REBALANCE_PROPERTY: text}) is None
