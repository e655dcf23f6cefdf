"""Operators create, change, delete and list consumer groups."""

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import (
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupTable,
)
from sparrowmq.protocol.headers.groups import (
    CreateGroup,
    CreateGroups,
    DeleteGroup,
    GetAllGroupConfig,
    GetGroupConfig,
)
from tests.broker.world import World


def config(world: World, group: str = "billing") -> SubscriptionGroupConfig:
    return world.read(GetGroupConfig(group=group), SubscriptionGroupConfig)


def test_a_group_is_created_changed_and_read(world: World) -> None:
    world.group("billing", retry_max_times=3)
    assert config(world).retry_max_times == 3
    world.group("billing", consume_enable=False)
    changed = config(world)
    assert (changed.consume_enable, changed.retry_max_times) == (False, 16)


def test_asking_for_a_group_does_not_create_it(world: World) -> None:
    answer = world.ask(GetGroupConfig(group="billing"))
    assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert "billing" not in world.broker.groups


@pytest.mark.parametrize(
    "settings",
    [
        {"group_name": "no spaces"},
        {"group_name": "x" * 121},
        {"retry_queue_nums": -1},
        {"retry_queue_nums": 65},
        {"retry_max_times": -2},
        {"retry_max_times": 1001},
    ],
)
def test_a_group_that_cannot_be_is_refused(world: World, settings: dict[str, object]) -> None:
    wanted = SubscriptionGroupConfig(**({"group_name": "billing"} | settings))  # type: ignore[arg-type]
    answer = world.ask(CreateGroup(), wanted.to_json())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert wanted.group_name not in world.broker.groups


def test_several_groups_are_created_all_or_none(world: World) -> None:
    good = SubscriptionGroupConfig(group_name="billing")
    bad = SubscriptionGroupConfig(group_name="audit", retry_max_times=-9)
    both = SubscriptionGroupList(group_config_list=(good, bad)).to_json()
    assert world.ask(CreateGroups(), both).code == ResponseCode.INVALID_PARAMETER
    assert "billing" not in world.broker.groups
    world.done(CreateGroups(), SubscriptionGroupList(group_config_list=(good,)).to_json())
    assert "billing" in world.broker.groups
    assert world.ask(CreateGroups(), b"?").code == ResponseCode.SYSTEM_ERROR
    assert world.ask(CreateGroup(), b"?").code == ResponseCode.SYSTEM_ERROR


@pytest.mark.parametrize("in_bulk", [False, True])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            "+colour",
            "group billing: attribute 'colour': is unknown, allowed: sparrowmq.quota.messages",
        ),
        ("+lite.sub.model", "group billing: attribute 'lite.sub.model': is not served"),
        ("colour", "begins with"),
        ("-colour", "group billing: attribute 'colour': cannot be removed"),
    ],
)
def test_a_group_accepts_no_attributes_except_its_quota(
    world: World, change: str, reason: str, in_bulk: bool
) -> None:
    group = SubscriptionGroupConfig(group_name="billing", attributes={change: "red"})
    if in_bulk:
        body = SubscriptionGroupList(group_config_list=(group,)).to_json()
        answer = world.ask(CreateGroups(), body)
    else:
        answer = world.ask(CreateGroup(), group.to_json())
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert reason in answer.remark
    assert "billing" not in world.broker.groups


def test_a_group_with_odd_attributes_is_loaded_and_loses_them_when_asked(world: World) -> None:
    world.group("billing")
    node = world.sim.brokers["broker-a"]
    node.stop()
    path = "config/subscriptionGroup.json"
    whole = node.disk.files()[path]
    odd = whole.replace(b'{"attributes":{},', b'{"attributes":{"colour":"red"},')
    assert odd != whole
    node.disk.poke(path, odd)
    node.start()
    assert config(world).attributes == {"colour": "red"}
    world.group("billing", attributes={"-colour": ""})
    assert config(world).attributes == {}


def test_a_deleted_group_keeps_its_progress_unless_asked_otherwise(world: World) -> None:
    world.topic("orders")
    world.commit("billing", "orders", 0, 5)
    world.done(DeleteGroup(group_name="billing"))
    assert "billing" not in world.broker.groups
    assert world.broker.offsets.get("billing", "orders", 0) == 5
    world.done(DeleteGroup(group_name="billing", clean_offset=True))
    assert world.broker.offsets.get("billing", "orders", 0) == -1


def test_groups_are_listed_and_survive_a_crash(world: World) -> None:
    world.group("billing", retry_max_times=3)
    world.sim.brokers["broker-a"].restart()
    world.sim.client.disconnect()
    table = world.read(GetAllGroupConfig(), SubscriptionGroupTable).subscription_group_table
    assert table["billing"].retry_max_times == 3
    assert "TOOLS_CONSUMER" in table


def test_a_deleted_group_stays_deleted_after_a_crash(world: World) -> None:
    world.group("billing")
    world.done(DeleteGroup(group_name="billing"))
    world.sim.brokers["broker-a"].restart()
    assert "billing" not in world.broker.groups
