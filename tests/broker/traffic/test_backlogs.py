"""A largest backlog: sends are refused or slowed while a group named is too far behind."""

import gc
import logging
from typing import Any

import pytest

from sparrowmq.broker.broker import BrokerState
from sparrowmq.broker.config import Flush
from sparrowmq.broker.traffic.backlog import hold_s, is_over
from sparrowmq.broker.traffic.slowing import MOST_HELD
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.net.routes import Request
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.traffic.limits_world import (
    BACKLOG,
    CLIENT,
    MESSAGES,
    admitted,
    limit_broker,
    limit_topic,
    refusal,
    report,
    send_header,
    sending,
)
from tests.broker.world import World, broadcasts, subscribes, world_with


@pytest.mark.parametrize(
    ("most", "lag", "was_over", "now_over"),
    [
        (10, 9, False, False),
        (10, 10, False, True),
        (10, 9, True, True),
        (10, 8, True, False),
        (1, 1, False, True),
        (1, 1, True, True),
        (1, 0, True, False),
    ],
)
def test_over_from_the_limit_on_until_80_percent(
    most: int, lag: int, was_over: bool, now_over: bool
) -> None:
    assert is_over(most, lag, was_over=was_over) is now_over


@pytest.mark.parametrize(("lag", "expected"), [(80, 0.1), (90, 0.5), (100, 1.0), (10_000, 1.0)])
def test_answers_are_held_longer_the_further_a_group_lags(lag: int, expected: float) -> None:
    assert hold_s(100, lag) == pytest.approx(expected)


@pytest.fixture
def limited(world: World) -> World:
    """`billing` has a member, stands at the beginning of `orders`, and may be 10 behind."""
    backed(world, "10:refuse:billing")
    return world


def backed(world: World, limit: str, *groups: str) -> None:
    assert limit_topic(world, {BACKLOG: limit}).code == ResponseCode.SUCCESS
    for group in groups or ("billing",):
        world.client(f"member-{group}").beat(subscribes(group))
        world.commit(group, "orders", 0, 0)


def slowed(world: World) -> None:
    """Answers to sends are held for a second."""
    backed(world, "10:slow:billing")
    admitted(world, 12)
    world.sim.advance(2)


def test_sends_are_refused_from_the_limit_on_until_80_percent_of_it(
    limited: World, caplog: pytest.LogCaptureFixture
) -> None:
    assert admitted(limited, 9) == 9
    limited.sim.advance(2)
    assert admitted(limited, 1) == 1
    limited.sim.advance(2)
    assert admitted(limited, 5) == 0
    limited.commit("billing", "orders", 0, 1)
    limited.sim.advance(2)
    assert admitted(limited, 1) == 0
    with caplog.at_level(logging.WARNING):
        limited.commit("billing", "orders", 0, 2)
        limited.sim.advance(2)
    assert admitted(limited, 1) == 1
    assert "topic orders: sends are unrestricted again" in caplog.text


def test_a_refusal_names_group_lag_and_limit(limited: World) -> None:
    admitted(limited, 12)
    limited.sim.advance(2)
    text, wait_ms = refusal(limited)
    assert wait_ms == 1000
    assert text == (
        "group billing is 12 messages behind in topic orders, at most 10 messages are allowed:"
        " sends are refused until it is at 8 messages; come back in 1,000 ms"
    )


def test_a_limit_in_seconds_counts_from_the_oldest_message(world: World) -> None:
    backed(world, "60s:refuse:billing")
    admitted(world, 3)
    world.sim.advance(58)
    assert admitted(world, 1) == 1
    world.sim.advance(4)
    text, _ = refusal(world)
    assert "group billing is 6" in text and "s behind in topic orders, at most 60 s" in text
    world.commit("billing", "orders", 0, 4)
    world.sim.advance(2)
    assert admitted(world, 1) == 1


@pytest.mark.parametrize("by_ms", [-3_600_000, 3_600_000])
def test_setting_the_clock_makes_no_group_late(world: World, by_ms: int) -> None:
    backed(world, "60s:refuse:billing")
    admitted(world, 3)
    world.sim.set_clock(by_ms)
    world.sim.advance(3)
    assert admitted(world, 1) == 1
    world.sim.advance(60)
    assert admitted(world, 1) == 0


def test_the_group_with_the_longest_lag_is_named(world: World) -> None:
    backed(world, "10:refuse:billing:audit", "billing", "audit")
    admitted(world, 12)
    world.commit("billing", "orders", 0, 5)
    world.sim.advance(2)
    assert refusal(world)[0].startswith("group audit is 12 messages behind")


def test_groups_that_are_not_named_do_not_count(limited: World) -> None:
    limited.client("b").beat(subscribes("forgotten"))
    limited.commit("forgotten", "orders", 0, 0)
    admitted(limited, 20)
    limited.commit("billing", "orders", 0, 20)
    limited.sim.advance(2)
    assert admitted(limited, 1) == 1


def test_a_paused_group_does_not_count(limited: World) -> None:
    admitted(limited, 20)
    limited.sim.advance(2)
    assert admitted(limited, 1) == 0
    limited.group("billing", consume_enable=False)
    limited.sim.advance(2)
    assert admitted(limited, 1) == 1
    assert report(limited)["backlog", "orders"].uncounted == {"billing": "it is paused"}


def test_a_broadcasting_group_does_not_count(world: World) -> None:
    limit_topic(world, {BACKLOG: "10:refuse:news"})
    world.client("a").beat(broadcasts("news"))
    world.commit("news", "orders", 0, 0)
    admitted(world, 20)
    world.sim.advance(2)
    assert admitted(world, 1) == 1
    assert report(world)["backlog", "orders"].uncounted == {"news": "it is broadcasting"}


def test_a_group_that_was_not_seen_yet_does_not_count(world: World) -> None:
    limit_topic(world, {BACKLOG: "10:refuse:billing"})
    member = world.client("a")
    member.beat(subscribes("billing"))
    world.commit("billing", "orders", 0, 0)
    member.disconnect()
    admitted(world, 20)
    world.sim.advance(2)
    assert admitted(world, 1) == 1
    found = report(world)["backlog", "orders"]
    assert found.uncounted == {
        "billing": "no member was seen since this broker began to watch the limit"
    }


def test_a_group_without_a_member_for_ten_minutes_does_not_count(world: World) -> None:
    limit_topic(world, {BACKLOG: "10:refuse:billing"})
    member = world.client("a")
    member.beat(subscribes("billing"))
    world.commit("billing", "orders", 0, 0)
    admitted(world, 20)
    world.sim.advance(2)
    member.disconnect()
    world.sim.advance(590)
    assert admitted(world, 1) == 0
    world.sim.advance(15)
    assert admitted(world, 1) == 1
    found = report(world)["backlog", "orders"]
    assert found.uncounted == {"billing": "it had no member for 10 minutes"}


def test_a_group_that_does_not_exist_or_never_committed_does_not_count(world: World) -> None:
    limit_topic(world, {BACKLOG: "1:refuse:nobody:new"})
    world.client("a").beat(subscribes("new"))
    admitted(world, 20)
    world.sim.advance(2)
    assert admitted(world, 5) == 5


def test_slow_holds_answers_and_stores_at_once(world: World) -> None:
    slowed(world)
    tasks = sending(world, 3)
    began_s = world.sim.now_s
    world.sim.until(lambda: world.broker.store.max_offset("orders", 0) == 15)
    assert world.sim.now_s - began_s < 0.1
    assert [world.sim.wait(task).code for task in tasks] == [ResponseCode.SUCCESS] * 3
    assert 1.0 <= world.sim.now_s - began_s < 1.2
    assert report(world)["backlog", "orders"].refused == 3


@pytest.mark.parametrize("flush", list(Flush))
def test_slow_holds_answers_that_wait_for_the_disk_as_well(flush: Flush) -> None:
    with world_with(flush=flush) as world:
        slowed(world)
        began_s = world.sim.now_s
        assert admitted(world, 3) == 3
        assert 1.0 <= world.sim.now_s - began_s < 1.5
        assert world.broker.traffic.slowing.held == 0


@pytest.mark.parametrize("flush", list(Flush))
def test_only_so_many_answers_are_held(flush: Flush) -> None:
    with world_with(flush=flush) as world:
        slowed(world)
        tasks = sending(world, MOST_HELD + 50)
        world.sim.advance(0.5)
        assert sum(task.done() for task in tasks) == 50
        world.sim.advance(1)
        assert all(task.done() for task in tasks)
        assert report(world)["backlog", "orders"].refused == MOST_HELD


def test_sends_that_get_no_answer_are_not_counted_as_slowed(world: World) -> None:
    slowed(world)
    client = world.client("one-way")
    world.sim.wait(client.host.start(client.send_oneway(send_header(), b"x")))
    world.sim.until(lambda: world.broker.store.max_offset("orders", 0) == 13)
    assert report(world)["backlog", "orders"].refused == 0


@pytest.mark.parametrize("flush", list(Flush))
def test_a_stop_writes_the_answers_that_are_held(flush: Flush) -> None:
    with world_with(flush=flush) as world:
        slowed(world)
        tasks = sending(world, 3)
        world.sim.until(lambda: world.broker.traffic.slowing.held == 3)
        world.sim.brokers["broker-a"].stop()
        assert [world.sim.wait(task).code for task in tasks] == [ResponseCode.SUCCESS] * 3


def test_a_broker_that_stops_holds_no_more_answers(world: World) -> None:
    slowed(world)
    node = world.sim.brokers["broker-a"]
    node.begin_stop()
    world.sim.until(lambda: world.broker.state is BrokerState.DRAINING)
    assert admitted(world, 3) == 3
    node.wait_for_end()


@pytest.mark.parametrize("flush", list(Flush))
def test_answers_are_held_without_the_bodies_of_their_messages(flush: Flush) -> None:
    with world_with(flush=flush) as world:
        slowed(world)
        body = b"a large body, " + flush.value.encode()
        sending(world, 3, body)
        world.sim.until(lambda: world.broker.traffic.slowing.held == 3)
        alive: list[Request[Any]] = [each for each in gc.get_objects() if isinstance(each, Request)]
        assert not any(each.body == body for each in alive)


def test_a_client_keeps_its_quota_while_it_is_slowed(world: World) -> None:
    slowed(world)
    limit_broker(world, {CLIENT: 2})
    shop = world.client("shop-1")
    shop.beat(producers=("shop",))
    for _ in range(2):
        shop.asking(send_header(), b"x")
    world.sim.until(lambda: world.broker.traffic.slowing.held == 2)
    answer = shop.ask(send_header(), b"x")
    assert answer.code == ResponseCode.FLOW_CONTROL
    assert answer.remark.startswith("client shop-1 may send 2 messages/s")


def test_a_held_answer_ends_with_its_connection(world: World) -> None:
    slowed(world)
    gone = world.client("gone")
    task = gone.asking(send_header(), b"x")
    world.sim.until(lambda: world.broker.traffic.slowing.held == 1)
    gone.disconnect()
    world.sim.advance(2)
    with pytest.raises(ConnectionLost):
        world.sim.wait(task)
    assert world.broker.traffic.slowing.held == 0


@pytest.mark.parametrize(
    ("action", "behind", "more"),
    [("refuse", 9, {}), ("slow", 12, {}), ("slow", 12, {"sparrowmq.dedup": "on"})],
    ids=["refuse", "slow", "slow and de-duplicated"],
)
def test_a_quota_applies_along_with_a_backlog_limit(
    world: World, action: str, behind: int, more: dict[str, object]
) -> None:
    backed(world, f"10:{action}:billing")
    admitted(world, behind)
    world.sim.advance(2)
    limit_topic(world, {MESSAGES: 5} | more)
    began_s = world.sim.now_s
    tasks = sending(world, 20)
    world.sim.advance(0.1)
    refused = [task for task in tasks if task.done() and task.result().code != ResponseCode.SUCCESS]
    assert len(refused) == 15  # at once
    codes = [world.sim.wait(task).code for task in tasks]
    assert codes.count(ResponseCode.FLOW_CONTROL) == 15
    assert codes.count(ResponseCode.SUCCESS) == 5
    assert (world.sim.now_s - began_s >= 1.0) is (action == "slow")


def test_a_report_shows_where_groups_stand(limited: World) -> None:
    admitted(limited, 12)
    limited.sim.advance(2)
    admitted(limited, 4)
    found = report(limited)["backlog", "orders"]
    assert found.backlog == "10:refuse:billing"
    assert found.lags == {"billing": 12}
    assert (found.refused, found.refused_last_minute) == (4, 4)
    assert found.lasting_ms is not None and found.lasting_ms > 500


def test_a_backlog_is_removed_while_sends_are_refused(limited: World) -> None:
    admitted(limited, 12)
    limited.sim.advance(2)
    assert admitted(limited, 1) == 0
    limit_topic(limited, {BACKLOG: None})
    assert admitted(limited, 1) == 1


def test_a_backlog_survives_a_restart_and_counts_when_a_member_is_back() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        backed(world, "10:refuse:billing")
        admitted(world, 12)
        sim.advance(10)  # everything is on the disk
        sim.brokers["broker-a"].restart()
        assert admitted(world, 1) == 1  # in doubt sends continue
        sim.advance(2)
        assert admitted(world, 1) == 1
        world.client("back").beat(subscribes("billing"))
        sim.advance(2)
        assert admitted(world, 1) == 0
