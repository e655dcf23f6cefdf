"""Pulls that wait at the broker (more of it in tests/sim/test_waiting_pulls.py)."""

import asyncio
from dataclasses import replace

import pytest

from sparrowmq.broker.handlers.pull import ParkedPull
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import SendBatchMessage
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC
from sparrowmq.protocol.properties import encode_properties
from sparrowmq.protocol.sys_flag import PULL_SUSPEND
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.messages import PutMessage
from sparrowmq.testing.sim_cluster import SMALL_STORE
from tests.broker.world import World, subscribes, world_with

AT_ONCE_S = 0.1
"""Less than any timer: the pull was woken."""
CROWD = 1_000
IN_ONE_TURN = 256
"""More answers take longer than others should wait for their turn."""
BATCH = SendBatchMessage(
    producer_group="shop",
    topic="orders",
    default_topic=AUTO_CREATE_TOPIC,
    default_topic_queue_nums=4,
    queue_id=0,
    sys_flag=0,
    born_timestamp=1,
    flag=0,
    batch=True,
)


def test_a_waiting_pull_is_not_kept_longer_than_the_broker_allows() -> None:
    with world_with(long_poll_s=2.0) as world:
        world.topic("orders")
        world.client("a").beat(subscribes("billing"))
        began_s = world.sim.now_s
        answer = world.pull("orders", sys_flag=PULL_SUSPEND, suspend_timeout_millis=20_000)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert 2 <= world.sim.now_s - began_s < 2.3


def test_a_pull_that_names_no_time_waits_a_second(live: World) -> None:
    began_s = live.sim.now_s
    live.pull("orders", queue_offset=3, sys_flag=PULL_SUSPEND)
    assert 1 <= live.sim.now_s - began_s < 1.3


def test_a_pull_that_may_not_wait_is_answered_at_once_when_too_many_wait() -> None:
    with world_with(max_waiting_pulls=1) as world:
        world.topic("orders")
        parked = world.sim.client.pull("orders", wait_s=10)
        world.sim.until_idle()
        began_s = world.sim.now_s
        second = world.sim.wait(world.sim.client.pull("orders", wait_s=10))
        assert second.code == ResponseCode.PULL_NOT_FOUND
        assert world.sim.now_s - began_s < 1
        assert not parked.done()


def test_what_a_waiting_filter_skipped_need_not_be_skipped_again(live: World) -> None:
    pull = live.sim.client.pull("orders", offset=3, wait_s=5, tags="cancelled")
    live.sim.until_idle()
    live.send("orders", b"more", TAGS="paid")
    result = live.sim.wait(pull)
    assert result.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert result.next_offset == 4


@pytest.mark.parametrize(
    "store",
    [replace(SMALL_STORE, unsynced_window=2), replace(SMALL_STORE, scan_units=2)],
    ids=["unsynced", "many"],
)
@pytest.mark.parametrize("come", ["one by one", "together"])
def test_a_waiting_pull_whose_filter_rejects_all_visible_messages_gets_the_next_match_at_once(
    store: StoreConfig, come: str
) -> None:
    with world_with(store=store, flush_interval_s=3_000.0) as world:
        world.topic("orders", 1)
        pull = world.sim.client.pull("orders", wait_s=15, tags="paid")
        world.sim.until_idle()
        tags = [*["new"] * 70, "paid"]
        if come == "one by one":
            for tag in tags:
                world.send("orders", b"more", TAGS=tag)
        else:
            batch = [(0, b"more", encode_properties({"TAGS": tag})) for tag in tags]
            world.done(BATCH, encode_batch(batch))
        sent_s = world.sim.now_s
        assert world.sim.wait(pull).code == ResponseCode.SUCCESS
        assert world.sim.now_s - sent_s < AT_ONCE_S


def test_a_message_that_was_not_announced_is_found_within_five_seconds(live: World) -> None:
    pull = live.sim.client.pull("orders", offset=3, wait_s=15)
    live.sim.until_idle()
    began_s = live.sim.now_s
    put = PutMessage("orders", 0, 0, 0, 0, b"\x7f\0\0\1\0\0\0\1", 0, b"quiet", b"", 0, "", "")
    live.broker.store.append(put, live.sim.clock())
    assert live.sim.wait(pull).bodies == [b"quiet"]
    assert live.sim.now_s - began_s < 5.5


def test_one_message_wakes_every_waiting_group(live: World) -> None:
    pulls = [
        live.sim.client.pull("orders", offset=3, wait_s=10, group=group) for group in ("x", "y")
    ]
    live.sim.until_idle()
    began_s = live.sim.now_s
    live.send("orders", b"more")
    assert [live.sim.wait(pull).bodies for pull in pulls] == [[b"more"], [b"more"]]
    assert live.sim.now_s - began_s < AT_ONCE_S


def test_messages_that_arrive_while_many_pulls_wake_reach_them_too(live: World) -> None:
    pulls = [live.sim.client.pull("orders", offset=3, wait_s=10) for _ in range(100)]
    picky = [live.sim.client.pull("orders", offset=3, wait_s=10, tags="late") for _ in range(100)]
    live.sim.until_idle()
    began_s = live.sim.now_s
    live.send("orders", b"more")
    live.send("orders", b"last", TAGS="late")  # while the crowd is being woken
    assert all(live.sim.wait(pull).bodies[0] == b"more" for pull in pulls)
    assert all(live.sim.wait(pull).bodies == [b"last"] for pull in picky)
    assert live.sim.now_s - began_s < AT_ONCE_S
    assert live.broker.arrivals.waiting == 0


def test_a_batch_wakes_a_waiting_pull_once_with_all_of_it(live: World) -> None:
    pull = live.sim.client.pull("orders", offset=3, wait_s=10)
    live.sim.until_idle()
    wanted = [b"0", b"1", b"2", b"3", b"4"]
    began_s = live.sim.now_s
    live.done(BATCH, encode_batch([(0, body, b"") for body in wanted]))
    assert live.sim.wait(pull).bodies == wanted
    assert live.sim.now_s - began_s < AT_ONCE_S


def test_pulls_are_answered_at_their_own_deadlines_and_removed(
    live: World,
) -> None:
    began_s = live.sim.now_s
    pulls = [live.sim.client.pull("orders", offset=3, wait_s=wait_s) for wait_s in (9, 3, 6)]
    live.sim.until_idle()
    assert live.broker.arrivals.waiting == 3
    for left, wait_s, pull in ((2, 3, pulls[1]), (1, 6, pulls[2]), (0, 9, pulls[0])):
        assert live.sim.wait(pull).code == ResponseCode.PULL_NOT_FOUND
        assert wait_s <= live.sim.now_s - began_s < wait_s + 0.3
        assert live.broker.arrivals.waiting == left


def test_a_pull_that_was_answered_waits_no_more(live: World) -> None:
    pull = live.sim.client.pull("orders", offset=3, wait_s=10)
    other = live.sim.client.pull("orders", queue_id=1, offset=0, wait_s=10)
    live.sim.until_idle()
    live.send("orders", b"more")
    live.sim.wait(pull)
    assert live.broker.arrivals.waiting == 1
    live.sim.client.disconnect()
    live.sim.until_idle()
    assert live.broker.arrivals.waiting == 0
    with pytest.raises(ConnectionLost):
        live.sim.wait(other)


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[list[ParkedPull]]:
    """The pulls that were abandoned, by iterations of the loop."""
    turns: list[list[ParkedPull]] = [[]]
    give_up = ParkedPull.give_up

    def noted(pull: ParkedPull) -> None:
        if not turns[-1]:
            asyncio.get_running_loop().call_soon(turns.append, [])
        turns[-1].append(pull)
        give_up(pull)

    monkeypatch.setattr(ParkedPull, "give_up", noted)
    return turns


def test_many_pulls_that_expire_together_do_not_delay_others(
    live: World, given_up: list[list[ParkedPull]]
) -> None:
    began_s = live.sim.now_s
    pulls = [live.sim.client.pull("orders", offset=3, wait_s=10) for _ in range(CROWD)]
    assert {live.sim.wait(pull).code for pull in pulls} == {ResponseCode.PULL_NOT_FOUND}
    assert 10 <= live.sim.now_s - began_s < 10.3
    assert (sum(map(len, given_up)), live.broker.arrivals.waiting) == (CROWD, 0)
    assert max(map(len, given_up)) <= IN_ONE_TURN


def test_many_pulls_of_a_deleted_topic_do_not_delay_others(
    live: World, given_up: list[list[ParkedPull]]
) -> None:
    pulls = [live.sim.client.pull("orders", offset=3, wait_s=10) for _ in range(CROWD)]
    live.sim.until_idle()
    began_s = live.sim.now_s
    live.done(DeleteTopic(topic="orders"))
    assert {live.sim.wait(pull).code for pull in pulls} == {ResponseCode.PULL_NOT_FOUND}
    assert live.sim.now_s - began_s < AT_ONCE_S
    assert (sum(map(len, given_up)), live.broker.arrivals.waiting) == (CROWD, 0)
    assert max(map(len, given_up)) <= IN_ONE_TURN


def test_pulls_of_a_deleted_topic_get_nothing_of_its_successor_and_end_on_disconnect(
    live: World, given_up: list[list[ParkedPull]]
) -> None:
    for _ in range(CROWD):
        live.sim.client.pull("orders", offset=3, wait_s=10)
    live.sim.until_idle()
    arrivals = live.broker.arrivals

    async def end_one_after_the_other() -> None:
        arrivals.end_topic("orders")
        arrivals.announce("orders", 0)
        await asyncio.sleep(0)
        assert 0 < arrivals.waiting == CROWD - sum(map(len, given_up))
        arrivals.forget(given_up[0][0].request.connection)
        assert arrivals.waiting == 0

    live.sim.wait(live.sim.client.host.start(end_one_after_the_other()))
    live.sim.until_idle()
    assert sum(map(len, given_up)) < CROWD
    assert arrivals.waiting == 0
