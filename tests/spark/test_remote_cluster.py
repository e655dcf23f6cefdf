"""Where topics lie and what their queues hold, asked by Spark's workers."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparrowmq.blocking import Message
from sparrowmq.protocol.codes import ROUTE_LOST, RequestCode, ResponseCode
from sparrowmq.spark.errors import BrokerAway, ClusterUnreachable, ServerRefused, TopicMissing
from sparrowmq.spark.wire.cluster import Queue, QueuePosition, RemoteCluster, split_name_servers
from sparrowmq.testing import Cluster
from sparrowmq.testing.held_port import HeldPort
from tests.spark.scripted_broker import HANG_UP, Said, ScriptedBroker
from tests.spark.topics import fill, send


def test_queues_offsets_and_times_of_a_topic(running: Cluster) -> None:
    fill(running, "routes", 40)
    with RemoteCluster(running.name_server) as routes:
        queues = routes.queues("routes")
        assert queues == [Queue("routes", "broker-a", number) for number in range(len(queues))]
        assert sum(map(routes.max_offset, queues)) == 40
        assert [routes.min_offset(queue) for queue in queues] == [0] * len(queues)
        assert [routes.offset_at(queue, 0) for queue in queues] == [0] * len(queues)
        after = [routes.offset_at(queue, 2**62) for queue in queues]
        assert after == list(map(routes.max_offset, queues))


def test_an_unknown_topic_is_named_with_the_remedy(running: Cluster) -> None:
    with (
        RemoteCluster(running.name_server) as routes,
        pytest.raises(TopicMissing, match="topic create"),
    ):
        routes.queues("routes-nowhere")


LOST = f"{ROUTE_LOST}broker broker-a at 10.0.0.3:10911 left 3 s ago; start it again"


def test_a_topic_whose_brokers_are_away_is_not_called_missing() -> None:
    with ScriptedBroker() as names, RemoteCluster(names.address) as routes:
        names.on(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            lambda _: Said(code=ResponseCode.TOPIC_NOT_EXIST, remark=LOST),
        )
        with pytest.raises(TopicMissing) as caught:
            routes.queues("orders")
    assert str(caught.value) == f"topic orders at name server {names.address}: {LOST}"


def test_user_topics_exclude_system_topics(running: Cluster) -> None:
    send(running, [Message("routes-mine", b"x")])
    with RemoteCluster(running.name_server) as routes:
        found = routes.user_topics()
        assert "routes-mine" in found
        assert not {"broker-a", "DefaultCluster", "TBW102", "SELF_TEST_TOPIC"} & set(found)


def test_a_broker_where_a_name_server_belongs_is_recognised(running: Cluster) -> None:
    broker = running.broker_addresses["broker-a"]
    with RemoteCluster(broker, origin="option nameServer") as routes:
        for ask in (routes.broker_names, lambda: routes.queues("routes-of-a-broker")):
            with pytest.raises(ServerRefused) as caught:
                ask()
            assert str(caught.value).endswith(
                f"at {broker} (option nameServer) was refused with code 3: this is a broker, not a"
                " name server; name servers listen on port 9876 by default"
            )


def test_a_group_has_no_offset_where_it_never_was(running: Cluster) -> None:
    fill(running, "routes-group", 4)
    with RemoteCluster(running.name_server) as routes:
        queue = routes.queues("routes-group")[0]
        assert routes.consumer_offset("nobody", queue) is None
        with pytest.raises(ServerRefused, match="nobody"):
            routes.update_consumer_offset("nobody", queue, QueuePosition(1))


def test_the_next_name_server_is_asked_when_one_is_down(running: Cluster) -> None:
    fill(running, "routes-two", 1)
    with HeldPort() as gone:
        with RemoteCluster(f"{gone.address};{running.name_server}") as routes:
            assert routes.queues("routes-two")
        with (
            RemoteCluster(gone.address) as routes,
            pytest.raises(ClusterUnreachable, match=gone.address),
        ):
            routes.queues("routes-two")


def test_known_routes_are_used_while_every_name_server_is_down() -> None:
    with ScriptedBroker() as name_server, RemoteCluster(name_server.address) as routes:
        found = routes.queues("orders")
        name_server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda _: HANG_UP)
        assert routes.queues("orders") == found
        with pytest.raises(ClusterUnreachable):
            routes.queues("bills")


def test_json_as_java_writes_it_is_read_and_the_master_is_chosen() -> None:
    with ScriptedBroker("orders", queues=2) as broker, RemoteCluster(broker.address) as routes:
        broker.on(RequestCode.GET_MAX_OFFSET, lambda asked: Said(fields={"offset": "17"}))
        assert routes.address("orders", "broker-a") == broker.address
        assert [routes.max_offset(queue) for queue in routes.queues("orders")] == [17, 17]


def test_a_broker_that_does_not_serve_the_topic_is_reported_as_away(running: Cluster) -> None:
    fill(running, "routes-away", 1)
    with RemoteCluster(running.name_server) as routes, pytest.raises(BrokerAway, match="broker-x"):
        routes.max_offset(Queue("routes-away", "broker-x", 0))


def test_a_route_is_requested_once_and_again_if_its_broker_does_not_answer() -> None:
    asked = RequestCode.GET_ROUTEINFO_BY_TOPIC
    with ScriptedBroker() as broker, RemoteCluster(broker.address) as routes:
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: Said(fields={"offset": "17"}))
        (queue,) = routes.queues("orders")
        assert [routes.max_offset(queue) for _ in range(3)] == [17] * 3
        assert broker.count(asked) == 1
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: HANG_UP)
        with pytest.raises(ClusterUnreachable):
            routes.max_offset(queue)
        assert broker.count(asked) == 2


def test_a_topic_that_is_gone_together_with_its_broker_is_waited_for() -> None:
    """A name server that was restarted at the same time does not know the topic for a moment."""
    unknown = Said(ResponseCode.TOPIC_NOT_EXIST)
    with ScriptedBroker() as broker, RemoteCluster(broker.address) as routes:
        (queue,) = routes.queues("orders")
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: HANG_UP)
        broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda _: unknown)
        with pytest.raises(BrokerAway, match="no broker that serves topic orders is registered"):
            routes.max_offset(queue)
        with RemoteCluster(broker.address) as of_a_new_task, pytest.raises(BrokerAway):
            of_a_new_task.max_offset(queue)


@pytest.mark.parametrize(
    "ask", [RemoteCluster.topics, RemoteCluster.broker_names, RemoteCluster.user_topics]
)
def test_a_refusal_of_a_name_server_does_not_count_as_an_empty_cluster(
    ask: Callable[[RemoteCluster], list[str]],
) -> None:
    no = Said(ResponseCode.SYSTEM_ERROR, body=b"{}", remark="not now")
    with ScriptedBroker() as server, RemoteCluster(server.address) as routes:
        server.on(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, lambda _: no)
        server.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: no)
        with pytest.raises(ServerRefused, match="not now"):
            ask(routes)


def written(**more: Any) -> list[Queue]:
    """Where a topic of two brokers can be written to; broker-b has a slave and no master."""
    route = {
        "brokerDatas": [
            {"brokerName": "broker-b", "brokerAddrs": {"1": "10.0.0.2:1"}},
            {"brokerName": "broker-a", "brokerAddrs": {"0": "10.0.0.1:1", "1": "10.0.0.3:1"}},
        ],
        "queueDatas": [
            {"brokerName": name, "perm": 6, "readQueueNums": 3, "writeQueueNums": 2}
            for name in ("broker-b", "broker-a")
        ],
        **more,
    }
    with ScriptedBroker() as server, RemoteCluster(server.address) as routes:
        said = Said(body=json.dumps(route).encode())
        server.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda _: said)
        found = routes.route("orders")
    assert len(found.queues) == 6, "a slave is read"
    return list(found.write_queues)


def test_only_brokers_that_have_a_master_are_written_to() -> None:
    assert written() == [Queue("orders", "broker-a", 0), Queue("orders", "broker-a", 1)]


def test_an_order_configuration_lists_the_queues_that_are_written() -> None:
    found = written(orderTopicConf="broker-b:1;broker-a:2")
    assert [(queue.broker_name, queue.queue_id) for queue in found] == [
        ("broker-b", 0),
        ("broker-a", 0),
        ("broker-a", 1),
    ]


@pytest.mark.parametrize("text", ["", ";", "localhost", "a:b"])
def test_a_name_server_has_to_be_host_and_port(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        split_name_servers(text)


def test_name_servers_are_separated_by_semicolons_or_commas() -> None:
    assert split_name_servers("a:1; b:2,c:3") == ("a:1", "b:2", "c:3")
