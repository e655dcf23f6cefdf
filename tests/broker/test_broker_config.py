"""Settings are read by Apache's names; a few can be changed while the broker runs."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.broker.runtime_config import CHANGEABLE
from sparrowmq.cli.settings.servers import broker_config, read_file
from sparrowmq.net.calls import Response
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.broker_stats import GroupForbidden
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import DEFAULT_DELAY_LEVELS
from sparrowmq.protocol.headers.admin import (
    BrokerConfigFound,
    GetBrokerConfig,
    UpdateBrokerConfig,
    UpdateGroupForbidden,
)
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.wire import Refused
from tests.broker.world import World, subscribes, world_with


def settings(world: World) -> dict[str, str]:
    lines = world.done(GetBrokerConfig()).body.decode().splitlines()
    return dict(line.split("=", 1) for line in lines)


def change(world: World, **wanted: object) -> Response:
    body = "".join(f"{name}={value}\n" for name, value in wanted.items())
    return world.ask(UpdateBrokerConfig(), body.encode())


def test_settings_are_listed_by_apaches_names(world: World) -> None:
    found = settings(world)
    assert found["brokerName"] == "broker-a"
    assert found["flushDiskType"] == "ASYNC_FLUSH"
    assert found["fileReservedTime"] == "72"
    assert found["diskMaxUsedSpaceRatio"] == "75"
    assert found["autoCreateTopicEnable"] == "true"
    assert found["listenPort"] == "10911"
    assert found["messageDelayLevel"] == DEFAULT_DELAY_LEVELS


def test_the_number_of_processors_is_there_for_mqadmin_exportmetrics(world: World) -> None:
    assert int(settings(world)["clientCallbackExecutorThreads"]) >= 1


def test_every_setting_that_can_be_changed_takes_the_value_it_has(world: World) -> None:
    before = settings(world)
    for name in CHANGEABLE:
        assert change(world, **{name: before[name]}).code == ResponseCode.SUCCESS, name
    assert settings(world) == before


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxMessageSize", "2048"),
        ("fileReservedTime", "5"),
        ("deleteWhen", "23"),
        ("diskMaxUsedSpaceRatio", "60"),
        ("longPollingMillis", "1500"),
        ("maxTopics", "7"),
        ("haSlaveFallbehindMax", "1000"),
        ("haMaxGapNotInSync", "1000"),
    ],
)
def test_a_change_shows(world: World, name: str, value: str) -> None:
    assert change(world, **{name: value}).code == ResponseCode.SUCCESS
    assert settings(world)[name] == value


def test_the_other_thresholds_of_the_disk_follow_and_come_back(world: World) -> None:
    def thresholds() -> tuple[float, ...]:
        store = world.broker.config.store
        return store.clean_ratio, store.force_clean_ratio, store.refuse_ratio

    change(world, diskMaxUsedSpaceRatio=88)
    assert thresholds() == (0.88, 0.928, 0.952)
    change(world, diskMaxUsedSpaceRatio=75)
    assert thresholds() == (0.75, 0.85, 0.90)


def test_thresholds_that_an_operator_chose_stay(world: World) -> None:
    store = replace(world.broker.config.store, force_clean_ratio=0.8, refuse_ratio=0.85)
    world.broker.config = replace(world.broker.config, store=store)
    refused = change(world, diskMaxUsedSpaceRatio=82)
    assert refused.code == ResponseCode.INVALID_PARAMETER
    assert "must not fall" in refused.remark
    assert change(world, diskMaxUsedSpaceRatio=78).code == ResponseCode.SUCCESS
    assert world.broker.config.store.refuse_ratio == 0.85


def test_a_change_is_logged_with_the_address_of_the_operator(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        change(world, maxMessageSize=2048)
    assert "audit: 10.0.0." in caplog.text
    assert "set maxMessageSize=2048" in caplog.text


def test_every_change_counts_in_the_version(world: World) -> None:
    def version() -> int:
        text = world.done(GetBrokerConfig()).header(BrokerConfigFound).version
        return DataVersion.from_json(text.encode()).counter

    before = version()
    change(world, maxMessageSize=2048)
    change(world, maxMessageSize="bad")
    assert version() == before + 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxMessageSize", "0"),
        ("maxMessageSize", "999999999999"),
        ("maxMessageSize", "many"),
        ("maxMessageSize", ""),
        ("deleteWhen", "24"),
        ("diskMaxUsedSpaceRatio", "96"),
        ("autoCreateTopicEnable", "yes"),
        ("defaultTopicQueueNums", "0"),
    ],
)
def test_a_value_out_of_range_is_refused_with_the_allowed_range(
    world: World, name: str, value: str
) -> None:
    before = settings(world)
    answer = change(world, **{name: value})
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert answer.remark
    assert settings(world) == before


@pytest.mark.parametrize(
    "name",
    ["storePathRootDir", "namesrvAddr", "rocketmqHome", "brokerConfigPath", "flushDiskType", "x"],
)
def test_what_names_a_file_or_is_not_in_the_list_cannot_be_changed(world: World, name: str) -> None:
    answer = change(world, maxMessageSize=2048, **{name: "/etc/passwd"})
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "maxMessageSize" in answer.remark
    assert settings(world)["maxMessageSize"] == str(4 * 1024 * 1024), "nothing is half-done"


def test_lines_that_are_not_settings_are_refused(world: World) -> None:
    assert world.ask(UpdateBrokerConfig(), b"hello").code == ResponseCode.INVALID_PARAMETER
    assert world.ask(UpdateBrokerConfig(), b"#" * 70_000).code == ResponseCode.INVALID_PARAMETER
    comment = b"# a comment\n\nmaxMessageSize = 2048\n"
    assert world.ask(UpdateBrokerConfig(), comment).code == ResponseCode.SUCCESS
    assert settings(world)["maxMessageSize"] == "2048"


def test_topics_are_created_by_sends_only_while_that_is_switched_on(world: World) -> None:
    change(world, autoCreateTopicEnable="false")
    with pytest.raises(Refused) as refused:
        world.send("orders", b"1")
    assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST
    change(world, autoCreateTopicEnable="true", defaultTopicQueueNums=2)
    world.send("orders", b"1")
    topic = world.broker.topics.get("orders")
    assert topic is not None and topic.write_queue_nums == 2


def test_groups_are_created_by_heartbeats_only_while_that_is_switched_on(world: World) -> None:
    change(world, autoCreateSubscriptionGroup="false")
    world.client("a").beat(subscribes("billing"))
    assert "billing" not in world.broker.groups
    change(world, autoCreateSubscriptionGroup="true")
    world.client("b").beat(subscribes("billing"))
    assert "billing" in world.broker.groups


def test_a_change_ends_with_the_broker(world: World) -> None:
    change(world, maxMessageSize=2048)
    world.sim.brokers["broker-a"].restart()
    world.sim.client.disconnect()
    assert settings(world)["maxMessageSize"] == str(4 * 1024 * 1024)


def test_whether_a_group_may_read_a_topic_can_be_asked_and_set(world: World) -> None:
    def readable(**change: bool) -> bool:
        header = UpdateGroupForbidden(group="billing", topic="orders", **change)
        return world.read(header, GroupForbidden).readable

    assert readable()
    assert not readable(readable=False)
    assert not readable()
    assert readable(readable=True)
    bad = UpdateGroupForbidden(group="no spaces", topic="orders", readable=False)
    assert world.ask(bad).code == ResponseCode.INVALID_PARAMETER


def test_roles_and_copies_are_listed_by_apaches_names() -> None:
    with SimCluster(slaves=1, replication=ReplicationMode.SYNC, in_sync_replicas=3).run() as sim:
        found = {}
        for name, node in sim.brokers.items():
            body = sim.wait(sim.client.call(GetBrokerConfig(), address=node.address)).body.decode()
            found[name] = dict(line.split("=", 1) for line in body.splitlines())
    master, slave = found.values()
    assert (master["brokerRole"], master["brokerId"]) == ("SYNC_MASTER", "0")
    assert (slave["brokerRole"], slave["brokerId"]) == ("SLAVE", "1")
    assert (master["inSyncReplicas"], master["minInSyncReplicas"]) == ("3", "1")
    assert (master["slaveTimeout"], master["haListenPort"]) == ("3000", "10912")
    assert (master["haTransferBatchSize"], master["haMaxGapNotInSync"]) == ("131072", "268435456")


def test_an_operator_can_let_a_master_continue_without_its_slave() -> None:
    with SimCluster(replication=ReplicationMode.SYNC, min_in_sync_replicas=2).run() as sim:
        with pytest.raises(Refused, match="in-sync replicas not enough"):
            sim.wait(sim.client.send("orders", b"refused"))
        changed = sim.client.call(UpdateBrokerConfig(), b"minInSyncReplicas=1\n")
        assert sim.wait(changed).code == ResponseCode.SUCCESS
        with pytest.raises(Refused) as stored:
            sim.wait(sim.client.send("orders", b"stored"))
        assert stored.value.code == ResponseCode.SLAVE_NOT_AVAILABLE


def test_settings_name_their_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("deleteWhen=3\nfileReservedTime=48\n")
    monkeypatch.setenv("SPARROWMQ_MAX_TOPICS", "900")
    flags = {"advertise": "127.0.0.1", "flush": "sync"}
    config = broker_config(flags, read_file(conf))
    with world_with(origins=config.origins) as world:
        change(world, deleteWhen=5)
        header = world.done(GetBrokerConfig()).header(BrokerConfigFound)
    assert json.loads(header.origins or "") == {
        "brokerIP1": "flag --advertise",
        "brokerIP2": "flag --advertise",
        "flushDiskType": "flag --flush",
        "maxTopics": "environment variable SPARROWMQ_MAX_TOPICS",
        "fileReservedTime": f"{conf} line 2: fileReservedTime",
        "deleteWhen": "changed while it runs",
    }


def test_settings_of_a_broker_built_in_code_name_no_origin(world: World) -> None:
    assert world.done(GetBrokerConfig()).header(BrokerConfigFound).origins is None
