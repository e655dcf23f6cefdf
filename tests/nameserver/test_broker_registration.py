"""Brokers register, stay alive, change, and leave."""

from typing import Any

import pytest

from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import (
    NAME_TAKEN,
    DataVersionCompared,
    QueryDataVersion,
    UnregisterBroker,
)
from sparrowmq.protocol.registration import RegisterBrokerBody, body_checksum
from sparrowmq.protocol.topic_config import RegisteredTopics
from tests.nameserver.world import Broker, registration, topic, world


def test_a_registered_broker_shows_in_the_routes_of_its_topics() -> None:
    with world() as w:
        broker = w.broker("broker-a")
        broker.register(["orders"])
        route = w.client.route("orders")
        assert [data.broker_name for data in route.queue_datas] == ["broker-a"]
        assert (route.queue_datas[0].read_queue_nums, route.queue_datas[0].perm) == (4, 6)
        (group,) = route.broker_datas
        assert (group.cluster, group.broker_name) == ("DefaultCluster", "broker-a")
        assert group.broker_addrs == {0: broker.address}


def test_a_broker_whose_connection_closes_is_dropped_at_once() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"])
        before_s = w.sim.now_s
        broker.disconnect()
        assert not w.client.has_route("orders")
        assert w.sim.now_s - before_s < 1


def test_a_killed_broker_is_dropped_at_once() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"])
        broker.host.kill()
        w.sim.until_idle()
        assert w.server.table.live == {}


def test_a_broker_reconnecting_before_its_old_connection_ends_stays() -> None:
    with world() as w:
        old = w.broker(address="10.9.9.9:10911")
        old.register(["orders"])
        new = Broker(w.sim, "broker-a", 0, "DefaultCluster", "10.9.9.9:10911")
        new.peers = w.broker("other").peers
        new.register(["orders"])
        old.disconnect()
        assert w.client.has_route("orders")


def test_unregistering_removes_a_broker_and_topics_that_no_other_has() -> None:
    with world() as w:
        one, two = w.broker("broker-a"), w.broker("broker-b")
        one.register(["orders", "only-a"])
        two.register(["orders"])
        one.unregister()
        assert [data.broker_name for data in w.client.route("orders").queue_datas] == ["broker-b"]
        assert not w.client.has_route("only-a")


def test_unregistering_twice_or_an_unknown_broker_is_fine() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"])
        broker.unregister()
        broker.unregister()


def test_unregistering_under_another_name_removes_no_broker() -> None:
    with world() as w:
        broker = w.broker("broker-a")
        broker.register(["orders"])
        broker.ok(
            UnregisterBroker(
                cluster_name=broker.cluster,
                broker_name="broker-b",
                broker_id=0,
                broker_addr=broker.address,
            )
        )
        assert w.client.has_route("orders")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_restarted_name_server_learns_routes_from_renewed_registrations(is_killed: bool) -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"])
        if is_killed:
            w.host.kill()
            w.start()
        else:
            w.restart()
        assert not w.client.has_route("orders")
        broker.register(["orders"])
        assert w.client.has_route("orders")


def refused(broker: Broker) -> str:
    """The reason why a broker is not registered."""
    response = broker.call(broker.header(), registration(["orders"], broker.version))
    assert response.code == NAME_TAKEN
    return str(response.remark)


def test_a_second_master_is_refused_while_the_first_one_answers() -> None:
    with world() as w:
        first, second = w.broker(address="10.9.9.1:10911"), w.broker(address="10.9.9.2:10911")
        first.register(["orders"])
        for _ in range(2):
            text = refused(second)
            assert first.address in text
            assert "stop that one first" in text
        assert w.client.route("orders").broker_datas[0].broker_addrs == {0: first.address}
        first.unregister()
        second.register(["orders"])
        assert w.client.route("orders").broker_datas[0].broker_addrs == {0: second.address}


def test_a_master_takes_the_name_of_one_that_does_not_answer() -> None:
    with world() as w:
        first, second = w.broker(address="10.9.9.1:10911"), w.broker(address="10.9.9.2:10911")
        first.register(["orders"])
        first.host.pause()
        second.register(["orders"])
        assert w.client.route("orders").broker_datas[0].broker_addrs == {0: second.address}
        assert list(w.server.table.live) == [second.address]


@pytest.mark.parametrize(
    "changes",
    [{"broker_id": 1}, {"version": DataVersion(state_version=1)}],
    ids=["slave", "elected"],
)
def test_the_address_that_registers_last_gets_the_broker_id(changes: dict[str, Any]) -> None:
    with world() as w:
        number = changes.get("broker_id", 0)
        first = w.broker(address="10.9.9.1:10911", broker_id=number)
        first.register(["orders"])
        second = w.broker(address="10.9.9.2:10911", broker_id=number)
        second.version = changes.get("version", second.version)
        second.register(["orders"])
        assert list(w.server.table.live) == [second.address]


def test_an_address_with_an_older_state_does_not_take_the_broker_id() -> None:
    with world() as w:
        elected, deposed = w.broker(address="10.9.9.1:10911"), w.broker(address="10.9.9.2:10911")
        elected.version = DataVersion(state_version=2)
        deposed.version = DataVersion(state_version=1)
        elected.register(["orders"])
        deposed.register(["orders", "stale"])
        assert w.client.route("orders").broker_datas[0].broker_addrs == {0: elected.address}
        assert not w.client.has_route("stale")


def test_a_slave_that_became_master_leaves_its_old_id() -> None:
    with world() as w:
        broker = w.broker(broker_id=1)
        broker.register()
        broker.broker_id = 0
        broker.register(["orders"])
        assert w.client.route("orders").broker_datas[0].broker_addrs == {0: broker.address}


def test_a_renamed_broker_leaves_no_trace_of_its_old_name() -> None:
    with world() as w:
        broker = w.broker("old-name")
        broker.register(["orders"])
        broker.name = "new-name"
        broker.register(["orders"])
        assert set(w.server.table.groups) == {"new-name"}
        assert [data.broker_name for data in w.client.route("orders").queue_datas] == ["new-name"]


def test_one_topic_alone_does_not_register_an_unknown_broker() -> None:
    with world() as w:
        broker = w.broker()
        table = RegisteredTopics(topic_config_table={"orders": topic("orders")})
        response = broker.call(broker.header(), RegisterBrokerBody(topics=table).to_json())
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "register with all topics first" in response.remark
        assert w.server.table.groups == {}


def test_a_compressed_registration_is_read_even_without_the_flag() -> None:
    for says_so in (True, False):
        with world() as w:
            broker = w.broker()
            body = registration(["orders"], compressed=True)
            broker.ok(broker.header(compressed=says_so, body_crc32=body_checksum(body)), body)
            assert w.client.has_route("orders")


def test_a_registration_without_a_body_registers_a_broker_without_topics() -> None:
    with world() as w:
        broker = w.broker()
        broker.ok(broker.header())
        assert list(w.server.table.live) == [broker.address]


def test_a_broker_asks_whether_its_topics_changed() -> None:
    with world() as w:
        broker = w.broker()
        assert compare(broker, broker.version) == (True, b"")
        broker.register(["orders"])
        assert compare(broker, broker.version) == (False, broker.version.to_json())
        newer = broker.version.next(now_ms=5)
        assert compare(broker, newer) == (True, broker.version.to_json())


def compare(broker: Broker, version: DataVersion) -> tuple[bool, bytes]:
    response = broker.ok(
        QueryDataVersion(
            cluster_name=broker.cluster,
            broker_name=broker.name,
            broker_id=broker.broker_id,
            broker_addr=broker.address,
        ),
        version.to_json(),
    )
    return response.header(DataVersionCompared).changed, response.body
