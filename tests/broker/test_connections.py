"""Who is connected, and who subscribes to what."""

from sparrowmq.protocol.body import GroupList
from sparrowmq.protocol.broker_stats import SubscriptionFound
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.connections import ConsumerConnection, ProducerConnection, ProducerTable
from sparrowmq.protocol.headers.connections import (
    GetAllProducers,
    GetConsumerConnections,
    GetConsumersOfTopic,
    GetProducerConnections,
    GetSubscription,
    GetTopicsOfConsumer,
)
from sparrowmq.protocol.route import TopicList
from tests.broker.world import World, broadcasts, subscribes


def test_a_consumer_group_lists_its_members_and_subscriptions(world: World) -> None:
    for name in ("a", "b"):
        world.client(name).beat(subscribes("billing", expression="paid"))
    found = world.read(GetConsumerConnections(consumer_group="billing"), ConsumerConnection)
    assert sorted(one.client_id for one in found.connection_set) == ["a", "b"]
    assert all(one.client_addr.startswith("10.0.0.") for one in found.connection_set)
    assert {one.language for one in found.connection_set} == {"PYTHON"}
    assert found.subscription_table["orders"].sub_string == "paid"


def test_a_broadcasting_group_is_reported_as_such(world: World) -> None:
    world.client("a").beat(broadcasts("billing"))
    found = world.read(GetConsumerConnections(consumer_group="billing"), ConsumerConnection)
    assert found.message_model == "BROADCASTING"


def test_a_group_without_members_is_not_online(world: World) -> None:
    answer = world.ask(GetConsumerConnections(consumer_group="billing"))
    assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert world.ask(GetProducerConnections(producer_group="shop")).code != ResponseCode.SUCCESS


def test_producers_are_listed_by_group_until_they_go(world: World) -> None:
    a, b = world.client("a"), world.client("b")
    a.beat(producers=("shop", "till"))
    b.beat(producers=("shop",))
    found = world.read(GetProducerConnections(producer_group="shop"), ProducerConnection)
    assert sorted(one.client_id for one in found.connection_set) == ["a", "b"]
    table = world.read(GetAllProducers(), ProducerTable).data
    assert {group: len(members) for group, members in table.items()} == {"shop": 2, "till": 1}
    (shop,) = (one for one in found.connection_set if one.client_id == "a")
    assert table["till"][0].remote_ip == shop.client_addr, "with the port, as Apache's broker"
    a.disconnect()
    table = world.read(GetAllProducers(), ProducerTable).data
    assert {group: len(members) for group, members in table.items()} == {"shop": 1}


def test_groups_of_a_topic_are_those_that_subscribe_and_those_that_consumed(world: World) -> None:
    world.topic("orders")
    world.commit("old", "orders", 0, 0)
    world.client("a").beat(subscribes("live"))
    groups = world.read(GetConsumersOfTopic(topic="orders"), GroupList).group_list
    assert groups == {"old", "live"}


def test_topics_of_a_group_are_those_it_consumed(world: World) -> None:
    for topic in ("orders", "refunds"):
        world.topic(topic)
        world.commit("billing", topic, 0, 0)
    found = world.read(GetTopicsOfConsumer(group="billing"), TopicList)
    assert found.topic_list == {"orders", "refunds"}
    assert found.broker_addr == world.broker.address


def test_a_subscription_is_found_while_the_group_lives(world: World) -> None:
    header = GetSubscription(group="billing", topic="orders")
    assert world.read(header, SubscriptionFound).subscription_data is None
    world.client("a").beat(subscribes("billing", expression="paid"))
    wanted = world.read(header, SubscriptionFound).subscription_data
    assert wanted is not None and wanted.sub_string == "paid"
