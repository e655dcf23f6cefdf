"""Routes as producers and consumers read them."""

from sparrowmq.client.route_table import publish_queues, subscribe_queues
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.route import BrokerData, QueueData, TopicRoute


def queue_data(broker: str, *, read: int = 8, write: int = 8, perm: int = 6) -> QueueData:
    return QueueData(broker_name=broker, read_queue_nums=read, write_queue_nums=write, perm=perm)


def broker_data(broker: str, *ids: int) -> BrokerData:
    addresses = {number: f"{broker}:{10911 + number}" for number in ids or (0,)}
    return BrokerData(cluster="c", broker_name=broker, broker_addrs=addresses)


def route(*queues: QueueData, brokers: tuple[BrokerData, ...] = (), order: str = "") -> TopicRoute:
    found = brokers or tuple(broker_data(data.broker_name) for data in queues)
    return TopicRoute(queue_datas=queues, broker_datas=found, order_topic_conf=order or None)


def shown(queues: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in queues]


def test_two_brokers_with_8_queues_each_are_a_route_of_16_queues_in_the_order_of_names() -> None:
    found = publish_queues("t", route(queue_data("b"), queue_data("a")))
    assert shown(found) == [f"a{n}" for n in range(8)] + [f"b{n}" for n in range(8)]


def test_only_writable_queues_are_sent_to_and_only_readable_ones_read() -> None:
    both = route(queue_data("a", perm=4), queue_data("b", perm=2), queue_data("c", perm=6))
    assert {queue.broker_name for queue in publish_queues("t", both)} == {"b", "c"}
    assert {queue.broker_name for queue in subscribe_queues("t", both)} == {"a", "c"}


def test_read_and_write_queues_are_counted_by_themselves() -> None:
    uneven = route(queue_data("a", read=3, write=2))
    assert shown(publish_queues("t", uneven)) == ["a0", "a1"]
    assert shown(subscribe_queues("t", uneven)) == ["a0", "a1", "a2"]


def test_a_broker_without_a_master_is_readable_but_gets_no_sends() -> None:
    slave_only = (broker_data("a", 1), broker_data("b", 0, 1))
    found = route(queue_data("a"), queue_data("b"), brokers=slave_only)
    assert {queue.broker_name for queue in publish_queues("t", found)} == {"b"}
    assert {queue.broker_name for queue in subscribe_queues("t", found)} == {"a", "b"}


def test_an_order_configuration_replaces_the_list_and_keeps_a_dead_brokers_queues() -> None:
    found = publish_queues("t", route(queue_data("a"), order="a:2;b:1"))
    assert shown(found) == ["a0", "a1", "b0"]
