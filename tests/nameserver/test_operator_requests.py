"""Operators query and change clusters, topic lists, topics and settings."""

import logging
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.nameserver import ConfigError, NameServerConfig
from sparrowmq.protocol.body import BrokerMemberGroupAnswer
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import (
    DeleteTopicRoute,
    GetAllTopics,
    GetBrokerMemberGroup,
    GetClusterInfo,
    GetNameServerConfig,
    GetSystemTopics,
    GetTopicsByCluster,
    GetUnitSubNonUnitTopics,
    GetUnitSubTopics,
    GetUnitTopics,
    RegisterTopic,
    UpdateNameServerConfig,
    WipeWritePerm,
)
from sparrowmq.protocol.route import ClusterInfo, QueueData, TopicList, TopicRoute
from tests.nameserver.world import EVERYWHERE, Caller, topic, world


def listed(caller: Caller, header: RequestHeader) -> frozenset[str]:
    return TopicList.from_json(caller.ok(header).body).topic_list


def test_cluster_info_shows_every_cluster_broker_name_and_address() -> None:
    with world() as w:
        master, slave = w.broker("broker-a"), w.broker("broker-a", 1)
        other = w.broker("broker-b", cluster="east")
        for broker in (master, slave, other):
            broker.register()
        info = ClusterInfo.from_json(w.client.ok(GetClusterInfo()).body)
        assert info.cluster_addr_table == {
            "DefaultCluster": frozenset({"broker-a"}),
            "east": frozenset({"broker-b"}),
        }
        assert info.broker_addr_table["broker-a"].broker_addrs == {
            0: master.address,
            1: slave.address,
        }
        other.unregister()
        info = ClusterInfo.from_json(w.client.ok(GetClusterInfo()).body)
        assert set(info.cluster_addr_table) == {"DefaultCluster"}


def test_a_member_group_lists_master_and_slaves_of_a_broker_name() -> None:
    with world() as w:
        master, slave = w.broker(broker_id=0), w.broker(broker_id=3)
        master.register()
        slave.register()
        ask = GetBrokerMemberGroup(cluster_name="DefaultCluster", broker_name="broker-a")
        group = BrokerMemberGroupAnswer.from_json(w.client.ok(ask).body).broker_member_group
        assert group.broker_addrs == {0: master.address, 3: slave.address}
        ask = GetBrokerMemberGroup(cluster_name="DefaultCluster", broker_name="nobody")
        group = BrokerMemberGroupAnswer.from_json(w.client.ok(ask).body).broker_member_group
        assert group.broker_addrs == {}


def test_topics_are_listed_all_by_cluster_and_as_system_topics() -> None:
    with world() as w:
        west, east = w.broker("broker-w", cluster="west"), w.broker("broker-e", cluster="east")
        west.register(["orders"])
        east.register(["invoices"])
        assert listed(w.client, GetAllTopics()) == {"orders", "invoices", *EVERYWHERE}
        assert listed(w.client, GetTopicsByCluster(cluster="east")) == {"invoices", *EVERYWHERE}
        assert listed(w.client, GetTopicsByCluster(cluster="nowhere")) == frozenset()
        system = TopicList.from_json(w.client.ok(GetSystemTopics()).body)
        assert system.topic_list == {"west", "east", "broker-w", "broker-e"}
        assert system.broker_addr == west.address


def test_an_empty_name_server_lists_nothing() -> None:
    with world() as w:
        assert listed(w.client, GetAllTopics()) == frozenset()
        assert listed(w.client, GetSystemTopics()) == frozenset()
        assert ClusterInfo.from_json(w.client.ok(GetClusterInfo()).body) == ClusterInfo()


def test_unit_topics_are_listed_by_their_flags() -> None:
    with world() as w:
        w.broker().register([topic("unit", flag=1), topic("sub", flag=2), topic("both", flag=3)])
        assert listed(w.client, GetUnitTopics()) == {"unit", "both"}
        assert listed(w.client, GetUnitSubTopics()) == {"sub", "both"}
        assert listed(w.client, GetUnitSubNonUnitTopics()) == {"sub"}


@pytest.mark.parametrize(
    ("setting", "header"),
    [
        ("enable_all_topic_list", GetAllTopics()),
        ("enable_topic_list", GetTopicsByCluster(cluster="DefaultCluster")),
        ("enable_topic_list", GetUnitTopics()),
        ("enable_topic_list", GetUnitSubTopics()),
        ("enable_topic_list", GetUnitSubNonUnitTopics()),
    ],
)
def test_topic_lists_can_be_switched_off(setting: str, header: RequestHeader) -> None:
    settings: dict[str, Any] = {setting: False}
    with world(**settings) as w:
        response = w.client.call(header)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "switched off" in response.remark


def test_a_deleted_topic_is_gone_everywhere_or_in_one_cluster() -> None:
    with world() as w:
        w.broker("broker-w", cluster="west").register(["orders"])
        w.broker("broker-e", cluster="east").register(["orders"])
        assert len(w.client.route("orders").queue_datas) == 2
        w.client.ok(DeleteTopicRoute(topic="orders", cluster_name="east"))
        assert [data.broker_name for data in w.client.route("orders").queue_datas] == ["broker-w"]
        w.client.ok(DeleteTopicRoute(topic="orders", cluster_name=""))
        assert not w.client.has_route("orders")
        w.client.ok(DeleteTopicRoute(topic="orders"))


def test_a_broker_takes_the_rest_of_its_topics_along_after_one_was_deleted() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders", "refunds"])
        w.client.ok(DeleteTopicRoute(topic="orders"))
        assert w.client.has_route("refunds")
        broker.disconnect()
        assert not w.client.has_route("refunds")


def test_a_deleted_topic_comes_back_while_its_broker_has_it() -> None:
    with world() as w:
        broker = w.broker()
        broker.register(["orders"])
        w.client.ok(DeleteTopicRoute(topic="orders"))
        broker.register(["orders"])
        assert w.client.has_route("orders")


@pytest.mark.parametrize("forget", [True, False])
def test_topics_that_a_registration_leaves_out_are_forgotten_only_when_configured_so(
    forget: bool,
) -> None:
    with world(delete_topic_with_broker_registration=forget) as w:
        broker = w.broker()
        broker.register(["orders", "old"])
        broker.update(["orders"])
        assert w.client.has_route("orders")
        assert w.client.has_route("old") is not forget


def test_a_single_new_topic_shows_at_once() -> None:
    with world() as w:
        broker = w.broker()
        broker.register()
        queues = QueueData(broker_name="broker-a", read_queue_nums=2, write_queue_nums=2)
        broker.ok(RegisterTopic(topic="new"), TopicRoute(queue_datas=(queues,)).to_json())
        assert w.client.route("new").queue_datas == (queues,)


def test_a_single_topic_of_an_unknown_broker_is_refused_as_a_whole() -> None:
    with world() as w:
        broker = w.broker()
        broker.register()
        datas = tuple(
            QueueData(broker_name=name, read_queue_nums=2, write_queue_nums=2)
            for name in ("broker-a", "broker-x")
        )
        body = TopicRoute(queue_datas=datas).to_json()
        response = broker.call(RegisterTopic(topic="new"), body)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "broker-x" in response.remark
        assert not w.client.has_route("new")


def test_settings_are_shown_by_apaches_names(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    with world(kv_config_path=path) as w:
        text = w.client.ok(GetNameServerConfig()).body.decode()
        assert "orderMessageEnable=false\n" in text
        assert "scanNotActiveBrokerInterval=5000\n" in text
        assert "listenPort=9876\n" in text
        assert f"kvConfigPath={path}\n" in text


def test_the_path_of_a_configuration_in_memory_is_empty() -> None:
    with world() as w:
        assert "kvConfigPath=\n" in w.client.ok(GetNameServerConfig()).body.decode()


def test_settings_change_all_together_or_not_at_all() -> None:
    with world() as w:
        text = b"# from mqadmin\nsupportActingMaster = true\nscanNotActiveBrokerInterval=1500\n"
        w.client.ok(UpdateNameServerConfig(), text)
        assert w.server.config.support_acting_master
        assert w.server.config.scan_interval_s == 1.5
        text = b"supportActingMaster=false\nscanNotActiveBrokerInterval=0"
        response = w.client.call(UpdateNameServerConfig(), text)
        assert response.code == ResponseCode.INVALID_PARAMETER
        assert "scan_interval_s is 0.0, must be 0.1 to 3600" in response.remark
        assert w.server.config.support_acting_master


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        (b"kvConfigPath=/etc/passwd", ResponseCode.NO_PERMISSION, "'kvConfigPath'"),
        (b"listenPort=1", ResponseCode.NO_PERMISSION, "orderMessageEnable"),
        (b"orderMessageEnable=yes", ResponseCode.INVALID_PARAMETER, "true or false"),
        (b"brokerTimeoutMillis=-1", ResponseCode.INVALID_PARAMETER, "whole number"),
        (b"brokerTimeoutMillis=" + b"9" * 5000, ResponseCode.INVALID_PARAMETER, "whole number"),
        (b"orderMessageEnable", ResponseCode.SYSTEM_ERROR, "name=value"),
        (b"\xff\xfe", ResponseCode.SYSTEM_ERROR, "UTF-8"),
        (b"a=b\n" * 20_000, ResponseCode.SYSTEM_ERROR, "at most 65536"),
    ],
)
def test_a_setting_that_cannot_be_changed_is_refused_with_the_reason(
    text: bytes, code: ResponseCode, says: str
) -> None:
    with world() as w:
        before = w.server.config
        response = w.client.call(UpdateNameServerConfig(), text)
        assert response.code == code
        assert says in response.remark
        assert len(response.remark) < 600
        assert w.server.config == before


def test_operators_leave_an_audit_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sparrowmq.audit"), world() as w:
        w.client.ok(WipeWritePerm(broker_name="broker-a\nforged line"))
        (line,) = [r.getMessage() for r in caplog.records if r.name == "sparrowmq.audit"]
        assert "wiped the write permission" in line
        assert "\n" not in line


def test_a_configuration_that_cannot_be_is_refused_when_it_is_built() -> None:
    with pytest.raises(ConfigError, match="listen_port is 70000, must be 0 to 65535"):
        NameServerConfig(listen_port=70_000)
    with pytest.raises(ConfigError, match="broker_timeout_s"):
        NameServerConfig(broker_timeout_s=0)
    given: Any = "kvConfig.json"
    with pytest.raises(ConfigError, match=r"is 'kvConfig\.json', must be a Path or None"):
        NameServerConfig(kv_config_path=given)
