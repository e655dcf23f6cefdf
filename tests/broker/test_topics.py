"""Operators create, change, delete and list topics."""

import errno
import logging

import msgspec
import pytest

from sparrowmq.net.calls import Response
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.topics import (
    AllTopicConfig,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    GetAllTopicConfig,
    GetSystemTopicsOfBroker,
    GetTopicConfig,
)
from sparrowmq.protocol.route import TopicList
from sparrowmq.protocol.topic_config import (
    RegisteredTopics,
    TopicConfig,
    TopicConfigList,
    TopicConfigTable,
)
from tests.broker.world import World


def create(world: World, topic: str = "orders", **changes: object) -> Response:
    fields: dict[str, object] = {"read_queue_nums": 2, "write_queue_nums": 2, "perm": 6}
    return world.ask(CreateTopic(topic=topic, **(fields | changes)))  # type: ignore[arg-type]


def config(world: World, topic: str = "orders") -> TopicConfig:
    return world.read(GetTopicConfig(topic=topic), TopicConfig)


def test_a_topic_is_created_changed_and_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert create(world).code == ResponseCode.SUCCESS
        assert create(world, write_queue_nums=3, order=True).code == ResponseCode.SUCCESS
    found = config(world)
    assert (found.read_queue_nums, found.write_queue_nums, found.order) == (2, 3, True)
    assert caplog.text.count(" set topics ") == 2


def test_creating_a_topic_as_it_is_changes_nothing(world: World) -> None:
    create(world)
    version = world.broker.topics.table().data_version
    create(world)
    assert world.broker.topics.table().data_version == version


def test_attributes_are_added_and_removed_one_by_one(world: World) -> None:
    create(world, attributes="+message.type=FIFO,+reserve.time=7")
    create(world, attributes="-reserve.time")
    create(world)
    assert config(world).attributes == {"message.type": "FIFO"}


def test_topics_created_in_bulk_have_attributes_as_changes_too(world: World) -> None:
    topic = TopicConfig(topic_name="orders", attributes={"+message.type": "FIFO"})
    world.done(CreateTopics(), TopicConfigList(topic_config_list=(topic,)).to_json())
    assert config(world).attributes == {"message.type": "FIFO"}


REFUSED_ATTRIBUTES = {
    "+colour=red": "'colour': is unknown",
    "+sparrowmq.unheard=1": "'sparrowmq.unheard': is unknown",
    "+message.type=ODD": "'ODD' is unknown, allowed: UNSPECIFIED, NORMAL, FIFO",
    "+queue.type=BatchCQ": "'BatchCQ' is not served by this broker, allowed: SimpleCQ",
    "+queue.type=RocksDBCQ": "'RocksDBCQ' is not served by this broker",
    "+cleanup.policy=COMPACTION": "'COMPACTION' is not served by this broker, allowed: DELETE",
    "+message.type=LITE": "'LITE' is not served by this broker",
    "+lite.topic.expiration=5": "'lite.topic.expiration': is not served by this broker",
    "+reserve.time=-2": "is not a number from -1",
    "-message.type": "not set",
}


@pytest.mark.parametrize("in_bulk", [False, True])
@pytest.mark.parametrize("change", REFUSED_ATTRIBUTES)
def test_attributes_that_are_unknown_or_not_served_are_refused(
    world: World, change: str, in_bulk: bool
) -> None:
    if in_bulk:
        name, _, value = change.partition("=")
        topics = (TopicConfig(topic_name="orders", attributes={name: value}),)
        answer = world.ask(CreateTopics(), TopicConfigList(topic_config_list=topics).to_json())
    else:
        answer = create(world, attributes=change)
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert "topic orders: attribute" in answer.remark
    assert REFUSED_ATTRIBUTES[change] in answer.remark
    assert "orders" not in world.broker.topics


def test_a_topic_with_odd_attributes_is_loaded_and_can_be_changed(world: World) -> None:
    create(world)
    node = world.sim.brokers["broker-a"]
    node.stop()
    table = TopicConfigTable.from_json(node.disk.files()["config/topics.json"])
    odd = {"queue.type": "BatchCQ", "colour": "red"}
    topics = dict(table.topic_config_table)
    topics["orders"] = msgspec.structs.replace(topics["orders"], attributes=odd)
    table = msgspec.structs.replace(table, topic_config_table=topics)
    node.disk.poke("config/topics.json", table.to_json())
    node.start()
    assert create(world, attributes="-colour,+message.type=FIFO").code == ResponseCode.SUCCESS
    assert config(world).attributes == {"queue.type": "BatchCQ", "message.type": "FIFO"}


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "no spaces"},
        {"topic": "x" * 128},
        {"topic": "TBW102"},
        {"topic": "rmq_sys_mine"},
        {"perm": 8},
        {"perm": -1},
        {"read_queue_nums": -1},
        {"write_queue_nums": 4_097},
        {"attributes": "colour=red"},
        {"attributes": "+colour"},
    ],
)
def test_a_topic_that_cannot_be_is_refused(world: World, changes: dict[str, object]) -> None:
    before = world.broker.topics.table().data_version
    answer = create(world, **changes)  # type: ignore[arg-type]
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark
    assert world.broker.topics.table().data_version == before


def test_several_topics_are_created_all_or_none(world: World) -> None:
    good, bad = TopicConfig(topic_name="orders"), TopicConfig(topic_name="refunds", perm=99)
    both = TopicConfigList(topic_config_list=(good, bad))
    assert world.ask(CreateTopics(), both.to_json()).code == ResponseCode.INVALID_PARAMETER
    assert "orders" not in world.broker.topics
    world.done(CreateTopics(), TopicConfigList(topic_config_list=(good,)).to_json())
    assert "orders" in world.broker.topics
    assert world.ask(CreateTopics(), b"?").code == ResponseCode.SYSTEM_ERROR


def test_a_deleted_topic_takes_its_messages_and_all_progress_with_it(world: World) -> None:
    world.send("orders", b"1", b"2")
    world.commit("billing", "orders", 0, 2)
    world.done(DeleteTopic(topic="orders"))
    assert world.ask(GetTopicConfig(topic="orders")).code == ResponseCode.TOPIC_NOT_EXIST
    assert world.broker.offsets.get("billing", "orders", 0) == -1
    world.send("orders", b"anew")
    assert world.sim.wait(world.sim.client.pull("orders")).bodies == [b"anew"]


def test_a_deleted_topic_stays_deleted_after_a_crash(world: World) -> None:
    world.send("orders", b"1")
    world.done(DeleteTopic(topic="orders"))
    world.sim.brokers["broker-a"].restart()
    assert "orders" not in world.broker.topics
    assert world.broker.store.max_offset("orders", 0) == 0


def test_deleting_a_missing_topic_succeeds_and_system_topics_stay(world: World) -> None:
    world.done(DeleteTopic(topic="missing"))
    for topic in ("TBW102", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        assert world.ask(DeleteTopic(topic=topic)).code == ResponseCode.INVALID_PARAMETER


def test_all_topics_are_listed_whole_or_in_parts(world: World) -> None:
    create(world)
    answer = world.done(GetAllTopicConfig())
    table = RegisteredTopics.from_json(answer.body).topic_config_table
    assert {"orders", "TBW102", "DefaultCluster"} <= set(table)
    total = answer.header(AllTopicConfig).total_topic_num
    names: list[str] = []
    for start in range(0, total, 5):
        part = world.read(GetAllTopicConfig(topic_seq=start, max_topic_num=5), RegisteredTopics)
        names += part.topic_config_table
    assert sorted(names) == sorted(table)


def test_system_topics_are_listed_without_those_of_users(world: World) -> None:
    create(world)
    topics = world.read(GetSystemTopicsOfBroker(), TopicList).topic_list
    assert {"TBW102", "DefaultCluster", "broker-a"} <= topics
    assert "orders" not in topics


def test_topics_survive_a_crash(world: World) -> None:
    create(world, attributes="+message.type=FIFO")
    world.sim.brokers["broker-a"].restart()
    world.sim.client.disconnect()
    assert config(world).attributes == {"message.type": "FIFO"}


def test_a_topic_that_cannot_be_deleted_on_a_full_disk_stays_unchanged(world: World) -> None:
    world.topic("orders", 1)
    world.send("orders", b"1", b"2")
    world.commit("billing", "orders", 0, 2)
    disk = world.sim.brokers["broker-a"].disk
    disk.fail("create", errno.ENOSPC, path_prefix="sparrowmq/epochs")
    answer = world.ask(DeleteTopic(topic="orders"))
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "topic orders is not deleted: no space" in answer.remark
    assert "orders" in world.broker.topics
    assert world.broker.offsets.get("billing", "orders", 0) == 2
    disk.heal()
    world.done(DeleteTopic(topic="orders"))
    assert "orders" not in world.broker.topics
    assert world.broker.offsets.get("billing", "orders", 0) == -1
