"""What a route shows, and to whom."""

import json
from collections.abc import Callable

import pytest

from sparrowmq.nameserver.lost_brokers import LostBrokers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import (
    AddWritePerm,
    DeleteTopicRoute,
    GetTopicRoute,
    PutKvConfig,
    UpdateNameServerConfig,
    WipeWritePerm,
    WritePermAdded,
    WritePermWiped,
)
from sparrowmq.protocol.registration import RegisterBrokerBody
from sparrowmq.protocol.route import TopicQueueMappingInfo, TopicRoute
from sparrowmq.protocol.topic_config import RegisteredTopics
from tests.nameserver.world import PORT, Broker, World, topic, world
from tests.net.wire import Answer, Wire, request


def test_an_unknown_topic_is_refused_by_name_and_with_the_remedy() -> None:
    with world() as w:
        response = w.client.call(GetTopicRoute(topic="ordres"))
        assert response.code == ResponseCode.TOPIC_NOT_EXIST
        assert "'ordres'" in response.remark
        assert "create it" in response.remark


LOSSES: dict[str, tuple[Callable[[World, Broker], object], str]] = {
    "disconnected": (lambda w, broker: broker.disconnect(), "disconnected 0 s ago"),
    "silent": (lambda w, broker: w.sim.network.isolate(broker.host), "fell silent 5 min ago"),
    "left": (lambda w, broker: broker.unregister(), "left 0 s ago"),
}


@pytest.mark.parametrize("how", LOSSES)
def test_a_route_to_a_lost_broker_is_refused_with_how_it_was_lost(how: str) -> None:
    lose, says = LOSSES[how]
    with world(broker_timeout_s=120) as w:
        broker = w.broker()
        broker.register(["orders"])
        lose(w, broker)
        if how == "silent":
            w.sim.advance(300)
        response = w.client.call(GetTopicRoute(topic="orders"))
        assert response.code == ResponseCode.TOPIC_NOT_EXIST
        lost = f"broker {broker.name} at {broker.address} {says}; start it again"
        assert response.remark == f"no broker that has the topic is alive: {lost}"
        assert "create it" in w.client.call(GetTopicRoute(topic="ordres")).remark


def test_a_lost_topic_is_forgotten_when_it_is_deleted_or_its_broker_is_back_without_it() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders", "bills"])
        broker.unregister()
        w.client.ok(DeleteTopicRoute(topic="orders"))
        assert "create it" in w.client.call(GetTopicRoute(topic="orders")).remark
        assert "start it again" in w.client.call(GetTopicRoute(topic="bills")).remark
        broker.register([])
        assert "create it" in w.client.call(GetTopicRoute(topic="bills")).remark


def test_only_the_latest_of_many_lost_brokers_are_remembered() -> None:
    lost = LostBrokers()
    for number in range(1_000):
        lost.remember(f"broker-{number}", "b:1", "left", 0, {"orders", f"only-{number}"})
    assert [each.name for each in lost.having("orders")][-1] == "broker-999"
    assert len(lost.having("orders")) == 100
    lost.remember("wide", "b:1", "left", 0, {str(number) for number in range(100_000)})
    assert lost.having("orders") == []


def test_a_hostile_topic_name_is_cut_in_the_answer() -> None:
    with world() as w:
        response = w.client.call(GetTopicRoute(topic="x" * 100_000))
        assert response.code == ResponseCode.TOPIC_NOT_EXIST
        assert len(response.remark) < 500


def test_a_route_lists_every_broker_name_sorted() -> None:
    with world() as w:
        for name in ("broker-c", "broker-a", "broker-b"):
            w.broker(name).register(["orders"])
        route = w.client.route("orders")
        names = ["broker-a", "broker-b", "broker-c"]
        assert [data.broker_name for data in route.queue_datas] == names
        assert [data.broker_name for data in route.broker_datas] == names


def test_slaves_are_listed_with_their_master_and_learn_its_address() -> None:
    with world() as w:
        master, slave = w.broker(broker_id=0), w.broker(broker_id=1)
        alone = slave.register()
        assert (alone.master_addr, alone.ha_server_addr) == (None, None)
        of_master = master.register(["orders"])
        assert (of_master.master_addr, of_master.ha_server_addr) == (None, None)
        of_slave = slave.register(["orders"])
        assert of_slave.master_addr == master.address
        assert of_slave.ha_server_addr == master.header().ha_server_addr
        addresses = w.client.route("orders").broker_datas[0].broker_addrs
        assert addresses == {0: master.address, 1: slave.address}


def test_a_slave_before_5_0_does_not_decide_about_topics() -> None:
    with world() as w:
        w.broker(broker_id=1).register(["of-the-slave"], enable_acting_master=None)
        assert not w.client.has_route("of-the-slave")


def test_a_slave_since_5_0_decides_only_while_it_has_the_smallest_id() -> None:
    with world() as w:
        w.broker(broker_id=1).register(["first"], enable_acting_master=False)
        assert w.client.has_route("first")
        w.broker(broker_id=2).register(["second"], enable_acting_master=False)
        assert not w.client.has_route("second")


def test_a_changed_topic_shows_when_its_broker_registers_a_new_version() -> None:
    with world() as w:
        broker = w.broker()
        broker.register([topic("orders", queues=4)])
        assert w.client.route("orders").queue_datas[0].read_queue_nums == 4
        broker.update([topic("orders", queues=8)])
        assert w.client.route("orders").queue_datas[0].read_queue_nums == 8


def test_a_cached_route_follows_brokers_that_come_and_go() -> None:
    with world() as w:
        one, two = w.broker("broker-a"), w.broker("broker-b")
        one.register(["orders"])
        assert len(w.client.route("orders").broker_datas) == 1
        two.register(["orders"])
        assert len(w.client.route("orders").broker_datas) == 2
        slave = w.broker("broker-b", 1)
        slave.register(["orders"])
        assert w.client.route("orders").broker_datas[1].broker_addrs[1] == slave.address
        two.disconnect()
        assert w.client.route("orders").broker_datas[1].broker_addrs == {1: slave.address}


def test_wiped_permissions_stay_wiped_until_the_broker_changes_its_topics() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"])
        assert w.client.route("orders").queue_datas[0].perm == 6
        wiped = w.client.ok(WipeWritePerm(broker_name="broker-a")).header(WritePermWiped)
        assert wiped.wipe_topic_count == 3
        assert w.client.route("orders").queue_datas[0].perm == 4
        broker.register(["orders"])
        assert w.client.route("orders").queue_datas[0].perm == 4
        broker.update(["orders"])
        assert w.client.route("orders").queue_datas[0].perm == 6


def test_added_permissions_make_topics_writable_again() -> None:
    with world() as w:
        w.broker().register(["orders"])
        w.client.ok(WipeWritePerm(broker_name="broker-a"))
        added = w.client.ok(AddWritePerm(broker_name="broker-a")).header(WritePermAdded)
        assert added.add_topic_count == 3
        assert w.client.route("orders").queue_datas[0].perm == 6


def test_permissions_of_an_unknown_broker_are_those_of_no_topic() -> None:
    with world() as w:
        wiped = w.client.ok(WipeWritePerm(broker_name="nobody")).header(WritePermWiped)
        assert wiped.wipe_topic_count == 0


def test_a_route_carries_the_order_configuration_only_when_that_is_switched_on() -> None:
    with world() as w:
        w.broker().register(["orders"])
        put = PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4")
        w.client.ok(put)
        assert w.client.route("orders").order_topic_conf is None
        w.client.ok(UpdateNameServerConfig(), b"orderMessageEnable=true")
        assert w.client.route("orders").order_topic_conf == "broker-a:4"
        w.client.ok(PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:8"))
        assert w.client.route("orders").order_topic_conf == "broker-a:8"


def test_brokers_get_the_order_configuration_when_they_register() -> None:
    with world() as w:
        broker = w.broker()
        assert broker.ok(broker.header()).body == b""
        put = PutKvConfig(namespace="ORDER_TOPIC_CONFIG", key="orders", value="broker-a:4")
        w.client.ok(put)
        assert broker.ok(broker.header()).body == b'{"table":{"orders":"broker-a:4"}}'


def test_brokers_that_look_for_each_other_see_their_real_roles() -> None:
    with world(support_acting_master=True) as w:
        slave = w.broker(broker_id=2)
        members = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
        slave.register([members], enable_acting_master=True)
        assert w.client.route(members).broker_datas[0].broker_addrs == {2: slave.address}


def test_filter_servers_and_static_topics_of_apache_s_brokers_show_in_routes() -> None:
    with world() as w:
        broker = w.broker()
        part = TopicQueueMappingInfo(topic="static", total_queues=4, curr_id_map={0: 0, 2: 1})
        body = RegisterBrokerBody(
            topics=RegisteredTopics(
                topic_config_table={name: topic(name) for name in ("static", "TBW102")},
                topic_queue_mapping_info_map={"static": part},
            ),
            filter_server_list=("10.1.1.1:9000",),
        )
        broker.ok(broker.header(), body.to_json())
        route = w.client.route("static")
        assert route.filter_server_table == {broker.address: ("10.1.1.1:9000",)}
        assert route.topic_queue_mapping_by_broker == {"broker-a": part}
        assert w.client.route("TBW102").topic_queue_mapping_by_broker is None


def in_zone(w: World, zone: str, mode: str | None = "true") -> list[str]:
    """Broker names of the route that a client in a zone gets; queues are of the same."""
    header = GetTopicRoute(topic="orders", zone_name=zone, zone_mode=mode)
    route = TopicRoute.from_json(w.client.ok(header).body)
    names = [broker.broker_name for broker in route.broker_datas]
    assert names == [queues.broker_name for queues in route.queue_datas]
    return names


def test_a_client_that_asks_for_its_zone_gets_the_brokers_there() -> None:
    with world() as w:
        w.broker("broker-a").register(["orders", "TBW102"], zone_name="Zurich")
        w.broker("broker-b").register(["orders", "TBW102"], zone_name="Bern")
        w.broker("broker-c", broker_id=1).register(
            ["orders", "TBW102"], zone_name="Bern", enable_acting_master=True
        )
        everybody = ["broker-a", "broker-b", "broker-c"]
        assert in_zone(w, "Zurich", mode=None) == everybody
        assert in_zone(w, "Zurich", mode="false") == everybody
        assert in_zone(w, "") == everybody
        # The slaves of a master that is away are visible to every client.
        assert in_zone(w, "zurich") == ["broker-a", "broker-c"]
        assert in_zone(w, "BERN") == ["broker-b", "broker-c"]
        assert in_zone(w, "Zurich", mode=None) == everybody


def test_routes_may_be_refused_right_after_the_start() -> None:
    with world(need_wait_for_service=True, wait_seconds_for_service=45) as w:
        w.broker().register(["orders"])
        response = w.client.call(GetTopicRoute(topic="orders"))
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "waits for brokers" in response.remark
        w.sim.advance(45)
        assert w.client.has_route("orders")


@pytest.mark.parametrize(
    ("version", "standard_only", "quoted"),
    [(400, None, False), (400, "true", True), (401, None, True), (401, "false", True)],
)
def test_broker_ids_are_quoted_for_clients_that_can_read_it(
    version: int, standard_only: str | None, quoted: bool
) -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"], zone_name="zone-1")
        fields = {"topic": "orders"}
        if standard_only is not None:
            fields["acceptStandardJsonOnly"] = standard_only
        body = raw_answer(w, request(105, fields, version=version))
        bare, standard = f'{{0:"{broker.address}"}}', f'{{"0":"{broker.address}"}}'
        assert (bare in body, standard in body) == (not quoted, quoted)
        readable = json.loads(body.replace("{0:", '{"0":'))
        assert readable["brokerDatas"][0]["zoneName"] == "zone-1"


def test_old_clients_see_changes_as_well() -> None:
    with world() as w:
        broker = w.broker()
        ask = request(105, {"topic": "orders"}, version=400)
        for queues in (4, 8):
            broker.update([topic("orders", queues)])
            assert f'"readQueueNums":{queues}' in raw_answer(w, ask)


def raw_answer(w: World, frame: bytes) -> str:
    """The body of the answer to a hand-made request."""

    async def ask() -> Answer:
        wire = await Wire.open("ns", PORT)
        answer = await wire.ask(frame)
        wire.close()
        return answer

    answer = w.sim.run(ask(), on=w.sim.host("old-client"))
    assert answer.code == ResponseCode.SUCCESS
    return answer.body.decode()
