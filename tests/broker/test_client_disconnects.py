"""Clients that unregister, or are silent for two minutes, are removed."""

import asyncio

import pytest

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.live_clients import ConsumerGroup
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import (
    GetConsumerList,
    NotifyConsumerIdsChanged,
    UnregisterClient,
)
from sparrowmq.protocol.headers.offsets import GetMaxOffset
from tests.broker.world import TalkingClient, World, subscribes, world_with

TEN_S = 10
MANY = 1_200
IN_ONE_TURN = 512


def keep_asking(world: World, client: TalkingClient, seconds: int) -> None:
    """A client that is alive enough to ask, and beats no more."""
    for _ in range(seconds // TEN_S):
        world.sim.advance(TEN_S)
        if client_ids(world):
            client.ask(GetMaxOffset(topic="orders", queue_id=0))


def client_ids(world: World) -> list[str]:
    group = world.broker.consumers.group("billing")
    return [] if group is None else sorted(group.client_ids)


def test_a_member_without_a_heartbeat_for_two_minutes_is_forgotten_whatever_else_it_asks(
    world: World,
) -> None:
    world.topic("orders", 1)
    silent = world.client("silent")
    silent.beat(subscribes("billing"))
    keep_asking(world, silent, 120)
    assert client_ids(world) == ["silent"]
    keep_asking(world, silent, 20)
    assert client_ids(world) == []


def test_other_members_are_notified_of_a_silent_one(world: World) -> None:
    world.topic("orders", 1)
    silent, lively = world.client("silent"), world.client("lively")
    silent.beat(subscribes("billing"))
    lively.beat(subscribes("billing"))
    told = len(lively.answered.of(NotifyConsumerIdsChanged))
    for _ in range(14):
        world.sim.advance(TEN_S)
        lively.beat(subscribes("billing"))
    assert client_ids(world) == ["lively"]
    assert len(lively.answered.of(NotifyConsumerIdsChanged)) == told + 1


def test_how_long_a_member_may_be_silent_is_a_setting() -> None:
    with world_with(client_timeout_s=30.0) as world:
        world.topic("orders", 1)
        silent = world.client("silent")
        silent.beat(subscribes("billing"))
        keep_asking(world, silent, 30)
        assert client_ids(world) == ["silent"]
        keep_asking(world, silent, 20)
        assert client_ids(world) == []


def test_a_silent_producer_is_forgotten_too(world: World) -> None:
    world.topic("orders", 1)
    silent = world.client("silent")
    silent.beat(producers=("orders-svc",))
    for seconds, known in ((120, 1), (20, 0)):
        for _ in range(seconds // TEN_S):
            world.sim.advance(TEN_S)
            if world.broker.producers.members("orders-svc"):
                silent.ask(GetMaxOffset(topic="orders", queue_id=0))
        assert len(world.broker.producers.members("orders-svc")) == known


def test_a_producer_that_unregisters_is_removed_from_that_group_only(world: World) -> None:
    producer = world.client("p")
    producer.beat(producers=("orders-svc", "refunds-svc"))
    goodbye = UnregisterClient(client_id="p", producer_group="orders-svc")
    assert producer.ask(goodbye).code == ResponseCode.SUCCESS
    assert world.broker.producers.members("orders-svc") == []
    assert [m.client_id for m in world.broker.producers.members("refunds-svc")] == ["p"]


def test_a_group_whose_last_member_left_starts_over(world: World) -> None:
    member = world.client("a")
    member.beat(subscribes("billing", expression="paid", version=7))
    member.leave("billing")
    answer = world.ask(GetConsumerList(consumer_group="billing"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "no live member" in answer.remark
    member.beat(subscribes("billing", expression="created", version=1))
    group = world.broker.consumers.group("billing")
    assert group is not None
    assert group.subscriptions["orders"].sub_string == "created"


def with_many_groups(world: World, name: str) -> TalkingClient:
    client = world.client(name)
    client.beat(*(subscribes(f"group-{number}") for number in range(MANY)))
    return client


def test_a_silent_client_of_many_groups_is_reported_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("orders", 1)
    silent = with_many_groups(world, "silent")
    silent.beat(subscribes("billing"))
    with caplog.at_level("INFO"):
        keep_asking(world, silent, 150)
    reported = [each.getMessage() for each in caplog.records]
    assert reported.count("closing silent: no heartbeat in time") == 1
    assert not any(world.broker.consumers)


def test_a_client_of_many_groups_leaves_them_in_portions(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending, other = with_many_groups(world, "ending"), with_many_groups(world, "other")
    left_by_turns = [0]
    member_left = Broker.member_left

    def counted(broker: Broker, group: ConsumerGroup, client_id: str) -> None:
        if not left_by_turns[-1]:
            asyncio.get_running_loop().call_soon(left_by_turns.append, 0)
        left_by_turns[-1] += 1
        member_left(broker, group, client_id)

    monkeypatch.setattr(Broker, "member_left", counted)
    told = len(other.answered.of(NotifyConsumerIdsChanged))
    ending.disconnect()
    assert (sum(left_by_turns), max(left_by_turns)) == (MANY, IN_ONE_TURN)
    assert all(group.client_ids == ["other"] for group in world.broker.consumers)
    assert len(other.answered.of(NotifyConsumerIdsChanged)) == told + MANY
