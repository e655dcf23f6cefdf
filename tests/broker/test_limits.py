"""How many topics and groups a broker may have, and how large a message may be."""

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.runtime_config import CHANGEABLE
from sparrowmq.broker.topics import plain_topic
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupList
from sparrowmq.protocol.headers.admin import UpdateBrokerConfig
from sparrowmq.protocol.headers.groups import CreateGroups
from sparrowmq.protocol.headers.topics import CreateTopics
from sparrowmq.protocol.topic_config import TopicConfigList
from sparrowmq.testing.wire import Refused
from tests.broker.world import World, subscribes, world_with


def create_topics(world: World, *names: str) -> int:
    topics = TopicConfigList(topic_config_list=tuple(plain_topic(name, 1) for name in names))
    return world.ask(CreateTopics(), topics.to_json()).code


def create_groups(world: World, *names: str) -> int:
    groups = tuple(SubscriptionGroupConfig(group_name=name) for name in names)
    return world.ask(CreateGroups(), SubscriptionGroupList(group_config_list=groups).to_json()).code


def change(world: World, name: str, value: int) -> int:
    return world.ask(UpdateBrokerConfig(), f"{name}={value}\n".encode()).code


def test_operators_create_topics_up_to_the_limit_and_change_those_there_are(world: World) -> None:
    change(world, "maxTopics", len(world.broker.topics) + 2)
    assert create_topics(world, "a", "b", "c") == ResponseCode.INVALID_PARAMETER
    assert "a" not in world.broker.topics, "all or none"
    assert create_topics(world, "a", "b") == ResponseCode.SUCCESS
    assert create_topics(world, "c") == ResponseCode.INVALID_PARAMETER
    world.topic("a", 4)
    with pytest.raises(Refused, match="at most"):
        world.send("c", b"1")


def test_operators_create_groups_up_to_the_limit_and_change_those_there_are(world: World) -> None:
    change(world, "maxGroups", len(world.broker.groups) + 2)
    assert create_groups(world, "a", "b", "c") == ResponseCode.INVALID_PARAMETER
    assert "a" not in world.broker.groups, "all or none"
    assert create_groups(world, "a", "b") == ResponseCode.SUCCESS
    assert create_groups(world, "c") == ResponseCode.INVALID_PARAMETER
    world.group("a", retry_max_times=3)


def test_heartbeats_create_groups_up_to_the_limit(world: World) -> None:
    change(world, "maxGroups", len(world.broker.groups) + 1)
    world.client("a").beat(subscribes("first"), subscribes("second"))
    assert ("first" in world.broker.groups, "second" in world.broker.groups) == (True, False)
    change(world, "maxGroups", len(world.broker.groups) + 1)
    world.client("b").beat(subscribes("second"))
    assert "second" in world.broker.groups


def test_heartbeats_register_producer_groups_up_to_the_limit(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    change(world, "maxGroups", 3)
    first, second = world.client("first"), world.client("second")
    first.beat(producers=("a", "b", "c", "d", "e"))
    second.beat(producers=("a", "f"))
    assert sorted(name for name, _ in world.broker.producers.groups()) == ["a", "b", "c"]
    assert len(world.broker.producers.members("a")) == 2
    assert "2 producer groups of first are not registered" in caplog.text
    first.disconnect()
    second.beat(producers=("a", "f"))
    assert sorted(name for name, _ in world.broker.producers.groups()) == ["a", "f"]


def test_a_body_of_exactly_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    with world_with(max_message_bytes=1_000) as world:
        world.send("orders", bytes(1_000))
        with pytest.raises(Refused, match="1001 bytes, at most 1000 allowed"):
            world.send("orders", bytes(1_001))
        assert world.broker.store.max_offset("orders", 0) == 1


def test_more_queues_of_a_topic_are_written_at_once(world: World) -> None:
    world.topic("orders", 1)
    world.send("orders", b"first")
    world.topic("orders", 4)
    world.send("orders", b"second", queue_id=3)
    assert world.broker.store.max_offset("orders", 3) == 1


@pytest.mark.parametrize(
    "name", [name for name in CHANGEABLE if CHANGEABLE[name].least is not None]
)
def test_a_setting_takes_its_least_and_its_most_and_nothing_beyond(name: str) -> None:
    setting = CHANGEABLE[name]
    assert setting.least is not None
    # As many copies as the least number may be
    with world_with(replication=ReplicationMode.SYNC, in_sync_replicas=64) as world:
        for value in (setting.least - 1, setting.most + 1):
            assert change(world, name, value) == ResponseCode.INVALID_PARAMETER, value
        for value in (setting.least, setting.most):
            assert change(world, name, value) == ResponseCode.SUCCESS, value
            assert setting.read(world.broker.config) == str(value)
