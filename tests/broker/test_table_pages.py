"""Tables of topics and groups in pages, asked for as Apache's slaves do."""

from collections.abc import Callable

import pytest

from sparrowmq.protocol.group_config import SubscriptionGroupTable
from sparrowmq.protocol.headers.groups import AllGroupConfig, GetAllGroupConfig
from sparrowmq.protocol.headers.topics import AllTopicConfig, GetAllTopicConfig
from sparrowmq.protocol.topic_config import RegisteredTopics
from tests.broker.world import World

Page = tuple[list[str], int]
"""Names of a page, and how many there are in all."""


def topics(world: World, first: int, most: int) -> Page:
    answer = world.done(GetAllTopicConfig(topic_seq=first, max_topic_num=most))
    table = RegisteredTopics.from_json(answer.body).topic_config_table
    return list(table), answer.header(AllTopicConfig).total_topic_num


def groups(world: World, first: int, most: int) -> Page:
    answer = world.done(GetAllGroupConfig(group_seq=first, max_group_num=most))
    table = SubscriptionGroupTable.from_json(answer.body).subscription_group_table
    return list(table), answer.header(AllGroupConfig).total_group_num


@pytest.mark.parametrize("ask", [topics, groups])
def test_apaches_slave_gets_every_row_with_any_page_size(
    world: World, ask: Callable[[World, int, int], Page]
) -> None:
    world.topic("orders")
    world.group("billing")
    _, total = ask(world, 0, 1)
    everything, _ = ask(world, 0, total)
    for most in range(1, total + 1):
        names: list[str] = []
        while not names or len(names) < total - 1:  # it takes one missing row for none
            names += ask(world, len(names), most)[0]
        assert names == sorted(everything)


def test_what_a_group_must_not_read_is_in_the_page_of_the_group(world: World) -> None:
    for group in ("A-group", "B-group"):
        world.group(group)
        world.broker.groups.set_readable(group, "orders", readable=False)
    everything, _ = groups(world, 0, 1000)
    at = sorted(everything).index("A-group")
    answer = world.done(GetAllGroupConfig(group_seq=at, max_group_num=1))
    assert list(SubscriptionGroupTable.from_json(answer.body).forbidden_table) == ["A-group"]
