"""Heartbeats register members; their content is checked, compared and passed on."""

import logging
from typing import Any

import msgspec
import pytest

from sparrowmq.broker.handlers.connections import CheckedConsumerConnection
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import ConsumerIdList
from sparrowmq.protocol.headers.clients import GetConsumerList, Heartbeat, NotifyConsumerIdsChanged
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from tests.broker.world import TalkingClient, World, broadcasts, subscribes, world_with

FINGERPRINT = 4711


def members(world: World, group: str = "billing") -> list[str]:
    return sorted(
        world.read(GetConsumerList(consumer_group=group), ConsumerIdList).consumer_id_list
    )


def notices(client: TalkingClient) -> int:
    return len(client.answered.of(NotifyConsumerIdsChanged))


def test_a_heartbeat_makes_a_member_and_its_retry_topic(world: World) -> None:
    world.client("a").beat(subscribes("billing"))
    assert members(world) == ["a"]
    retry = world.broker.topics.get("%RETRY%billing")
    assert retry is not None and retry.read_queue_nums == 1


def test_a_group_without_members_has_no_list(world: World) -> None:
    answer = world.ask(GetConsumerList(consumer_group="billing"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "billing" in answer.remark


def test_other_members_are_notified_when_one_joins_leaves_or_vanishes(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.beat(subscribes("billing"))
    told = notices(a)
    b.beat(subscribes("billing"))
    assert notices(a) == told + 1
    b.leave("billing")
    world.sim.until_idle()
    assert notices(a) == told + 2
    b.beat(subscribes("billing"))
    b.disconnect()
    assert notices(a) == told + 4
    assert members(world) == ["a"]


def test_a_repeated_heartbeat_notifies_no_member(world: World) -> None:
    a = world.client("a")
    a.beat(subscribes("billing"))
    told = notices(a)
    a.beat(subscribes("billing"))
    assert notices(a) == told


def test_members_are_not_notified_when_the_group_switched_it_off(world: World) -> None:
    world.group("billing", notify_consumer_ids_changed_enable=False)
    a, b = world.client("a"), world.client("b")
    a.beat(subscribes("billing"))
    b.beat(subscribes("billing"))
    assert notices(a) == 0


def test_members_are_not_notified_when_the_broker_switched_it_off() -> None:
    with world_with(notify_consumer_ids_changed=False) as world:
        a, b = world.client("a"), world.client("b")
        a.beat(subscribes("billing"))
        b.beat(subscribes("billing"))
        assert notices(a) == 0


def test_members_of_a_broadcasting_group_are_not_notified(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.beat(broadcasts("billing"))
    b.beat(broadcasts("billing"))
    assert notices(a) == 0


def test_the_newest_version_of_a_subscription_wins(world: World) -> None:
    a = world.client("a")
    a.beat(subscribes("billing", expression="paid", version=2))
    a.beat(subscribes("billing", expression="created", version=1))
    group = world.broker.consumers.group("billing")
    assert group is not None
    assert group.subscriptions["orders"].sub_string == "paid"


def test_a_topic_that_is_not_subscribed_any_more_is_forgotten(world: World) -> None:
    a = world.client("a")
    a.beat(subscribes("billing", "orders"))
    a.beat(subscribes("billing", "refunds"))
    group = world.broker.consumers.group("billing")
    assert group is not None and set(group.subscriptions) == {"refunds"}


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"producerDataSet":[]}'])
def test_a_heartbeat_that_cannot_be_read_is_refused(world: World, body: bytes) -> None:
    assert world.ask(Heartbeat(), body).code == ResponseCode.SYSTEM_ERROR


def test_a_heartbeat_without_client_id_or_with_a_bad_group_changes_nothing(world: World) -> None:
    answer = world.ask(Heartbeat(), b'{"clientID":""}')
    assert answer.code == ResponseCode.INVALID_PARAMETER
    bad = world.client("a").beat(subscribes("billing"), subscribes("no spaces"))
    assert bad.code == ResponseCode.INVALID_PARAMETER
    assert world.broker.consumers.group("billing") is None


def test_a_group_that_may_not_be_created_gets_no_members() -> None:
    with world_with(auto_create_group=False) as world:
        world.client("a").beat(subscribes("billing"))
        assert world.broker.consumers.group("billing") is None


# ---- version 2


def is_sub_change(client: TalkingClient, **more: Any) -> str:
    more = {"heartbeat_fingerprint": FINGERPRINT} | more
    answer = client.beat(subscribes("billing"), **more)
    assert answer.ext_fields is not None
    assert answer.ext_fields["IS_SUPPORT_HEART_BEAT_V2"] == "true"
    return answer.ext_fields["IS_SUB_CHANGE"]


def test_a_version_1_heartbeat_is_answered_that_version_2_is_supported(world: World) -> None:
    assert is_sub_change(world.client("a"), heartbeat_fingerprint=0) == "true"


def test_a_fingerprint_that_stays_the_same_needs_no_subscriptions(world: World) -> None:
    a = world.client("a")
    assert is_sub_change(a) == "false"
    assert is_sub_change(a, without_sub=True) == "false"
    group = world.broker.consumers.group("billing")
    assert group is not None and set(group.subscriptions) == {"orders"}


def test_a_new_fingerprint_asks_for_the_subscriptions_again(world: World) -> None:
    a = world.client("a")
    is_sub_change(a)
    assert is_sub_change(a, heartbeat_fingerprint=1, without_sub=True) == "true"
    assert is_sub_change(a, heartbeat_fingerprint=1) == "true"
    assert is_sub_change(a, heartbeat_fingerprint=1, without_sub=True) == "false"


def test_a_broker_that_restarted_asks_for_the_subscriptions_again(world: World) -> None:
    a = world.client("a")
    is_sub_change(a)
    world.sim.brokers["broker-a"].restart()
    a.disconnect()
    assert is_sub_change(a, without_sub=True) == "true"
    assert world.broker.consumers.group("billing") is None
    assert is_sub_change(a) == "false"


def test_short_heartbeats_keep_a_member_alive(world: World) -> None:
    a = world.client("a")
    is_sub_change(a)
    for _ in range(10):
        world.sim.advance(30)
        is_sub_change(a, without_sub=True)
    assert members(world) == ["a"]


def test_members_with_different_fingerprints_stay_alive_and_keep_short_heartbeats(
    world: World,
) -> None:
    """One client may hold more groups than another, and then its fingerprint differs."""
    a, b = world.client("a"), world.client("b")
    is_sub_change(a, heartbeat_fingerprint=1)
    is_sub_change(b, heartbeat_fingerprint=2)
    for _ in range(10):
        world.sim.advance(30)
        assert is_sub_change(a, heartbeat_fingerprint=1, without_sub=True) == "false"
        assert is_sub_change(b, heartbeat_fingerprint=2, without_sub=True) == "false"
    assert members(world) == ["a", "b"]


# ---- what is wrong in a group


def connections(world: World) -> CheckedConsumerConnection:
    header = GetConsumerConnections(consumer_group="billing")
    return world.read(header, CheckedConsumerConnection)


def test_members_that_subscribe_differently_are_reported_and_served(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        a, b = world.client("a"), world.client("b")
        a.beat(subscribes("billing", expression="paid"))
        b.beat(subscribes("billing", expression="created"))
        b.beat(subscribes("billing", expression="created"))
        assert connections(world).unequal_subscriptions == {
            "a": ["orders TAG paid"],
            "b": ["orders TAG created"],
        }
        assert caplog.text.count("members subscribe differently") == 1
        assert members(world) == ["a", "b"]
        b.beat(subscribes("billing", expression="paid", version=2))
        assert connections(world).unequal_subscriptions == {}
        assert caplog.text.count("agree again") == 1


def test_a_retry_topic_that_only_one_member_names_is_not_a_difference(world: World) -> None:
    plain = subscribes("billing")
    retry = subscribes("billing", "%RETRY%billing").subscription_data_set
    both = msgspec.structs.replace(plain, subscription_data_set=plain.subscription_data_set + retry)
    world.client("a").beat(plain)
    world.client("b").beat(both)
    assert connections(world).unequal_subscriptions == {}


def test_a_client_id_that_is_used_twice_is_reported_and_served(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        world.client("a").beat(subscribes("billing"), client_id="10.0.0.9@1")
        second = world.client("b").beat(subscribes("billing"), client_id="10.0.0.9@1")
    assert second.code == ResponseCode.SUCCESS
    assert connections(world).doubled_client_ids == ["10.0.0.9@1"]
    assert "client ids are used twice (10.0.0.9@1)" in caplog.text


def test_a_client_id_may_be_used_twice_when_broadcasting(world: World) -> None:
    world.client("a").beat(broadcasts("billing"), client_id="same")
    world.client("b").beat(broadcasts("billing"), client_id="same")
    assert connections(world).doubled_client_ids == []
