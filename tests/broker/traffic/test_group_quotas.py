"""Quotas of consumer groups: pulls are held like empty ones, never refused."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from sparrowmq.broker.traffic.group_quota import PACE_MS
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import ConnectionLost
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.groups import DeleteGroup
from sparrowmq.protocol.headers.pull import Pulled, PullMessage
from sparrowmq.protocol.message_ext import decode_messages
from sparrowmq.protocol.sys_flag import PULL_SUBSCRIPTION, PULL_SUSPEND
from sparrowmq.testing.sim_cluster import SimCluster
from sparrowmq.testing.virtual_tasks import SimTask
from tests.broker.traffic.limits_world import BYTES, MESSAGES, limit_group, report
from tests.broker.world import World, subscribes

WAIT_S = 5.0
LATE_S = 0.03
"""What a pull and its answer take on their way: less than the time between two messages here, so
that what is in time by it is exact to the message."""


@pytest.fixture
def limited(world: World) -> World:
    """A hundred messages in each queue of `orders`; `billing` may get ten a second."""
    world.topic("orders", 2)
    for queue_id in (0, 1):
        world.send("orders", *[b"%03d" % each for each in range(100)], queue_id=queue_id)
    assert limit_group(world, {MESSAGES: 10}).code == ResponseCode.SUCCESS
    return world


def pull(world: World, offset: int = 0, queue_id: int = 0, **more: Any) -> SimTask[Response]:
    fields: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "queue_id": queue_id,
        "queue_offset": offset,
        "max_msg_nums": 32,
        "sys_flag": PULL_SUSPEND | PULL_SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_millis": int(WAIT_S * 1000),
        "sub_version": 0,
        "subscription": "*",
    }
    header = PullMessage(**(fields | more))
    return world.sim.client.call(header, timeout_s=30)


class Reader:
    """A member that pulls one queue as fast as the broker allows."""

    def __init__(self, world: World, queue_id: int, **more: Any) -> None:
        self.got: list[bytes] = []
        self.times: list[float] = []
        """When each of them came."""
        self.record_bytes = 0
        self.codes: Counter[int] = Counter()
        self._world, self._queue_id, self._more = world, queue_id, more
        self._next = 0
        self._ask()

    def _ask(self) -> None:
        task = pull(self._world, self._next, self._queue_id, **self._more)
        task.add_done_callback(self._done)

    def _done(self, task: Any) -> None:
        if task.cancelled() or task.exception() is not None:
            return
        answer = task.result()
        self.codes[answer.code] += 1
        self._next = answer.header(Pulled).next_begin_offset
        if answer.code == ResponseCode.SUCCESS:
            bodies = [each.body for each in decode_messages(answer.body)]
            self.got += bodies
            self.times += [self._world.sim.now_s] * len(bodies)
            self.record_bytes += len(answer.body)
        self._ask()


def assert_in_time(times: Sequence[float], due: Sequence[float], late_s: float = LATE_S) -> None:
    """Each message came when the quota had room for it, none before and none later."""
    assert len(times) == len(due)
    early_or_late = [
        (number, at_s - due_s)
        for number, (at_s, due_s) in enumerate(zip(times, due, strict=True))
        if not due_s <= at_s < due_s + late_s
    ]
    assert not early_or_late


def test_a_group_gets_its_quota_and_not_one_message_more(limited: World) -> None:
    began_s = limited.sim.now_s
    reader = Reader(limited, 0)
    limited.sim.advance(10)
    assert reader.got == [b"%03d" % each for each in range(100)]
    due = [began_s + max(0, count - 10) / 10 for count in range(1, 101)]
    assert_in_time(reader.times, due)
    assert ResponseCode.FLOW_CONTROL not in reader.codes


def test_a_held_pull_is_answered_like_an_empty_one_when_its_time_is_up(limited: World) -> None:
    limit_group(limited, {MESSAGES: 1})
    first = limited.sim.wait(pull(limited))
    assert len(decode_messages(first.body)) == 1
    limited.broker.watched.quotas["billing"].take(100, 0)
    began_s = limited.sim.now_s
    held = limited.sim.wait(pull(limited, 1))
    assert held.code == ResponseCode.PULL_NOT_FOUND
    assert held.header(Pulled).next_begin_offset == 1
    assert WAIT_S <= limited.sim.now_s - began_s < WAIT_S + 0.3


def test_a_pull_that_does_not_wait_is_answered_as_not_found(limited: World) -> None:
    limited.sim.wait(pull(limited))
    answer = limited.sim.wait(pull(limited, 10, sys_flag=PULL_SUBSCRIPTION))
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.header(Pulled).next_begin_offset == 10


def test_bytes_count_as_they_are_stored(limited: World) -> None:
    limit_group(limited, {MESSAGES: None, BYTES: 1000})
    began_s = limited.sim.now_s
    reader = Reader(limited, 0, max_msg_nums=1)
    limited.sim.advance(10.1)
    (unit,) = limited.broker.store.units("orders", 0, 0, 1)
    size = unit[1]
    assert reader.record_bytes == size * len(reader.got)
    # A second's worth at once, then a second's worth a second, and one record overdraws it.
    assert 0 <= reader.record_bytes - 1000 * (10.1 + 1) < size
    # The next record passes when all others are paid for and a byte is left.
    due = [began_s + max(0, size * before + 1 - 1000) / 1000 for before in range(len(reader.got))]
    assert_in_time(reader.times, due)


def test_queues_are_served_in_turn(limited: World) -> None:
    readers = [Reader(limited, queue_id) for queue_id in (0, 1)]
    limited.sim.advance(12 + LATE_S)
    # The first pull found a second's worth.
    assert [len(reader.got) for reader in readers] == [10 + 60, 60]


def test_members_of_many_queues_get_the_same_of_a_small_quota(world: World) -> None:
    world.topic("orders", 8)
    for queue_id in range(8):
        world.send("orders", *[b"x"] * 20, queue_id=queue_id)
    limit_group(world, {MESSAGES: 1})
    readers = [Reader(world, queue_id) for queue_id in range(8)]
    world.sim.advance(79 + LATE_S)
    assert [len(reader.got) for reader in readers] == [10] * 8


def test_a_pull_that_went_away_does_not_keep_others_waiting(limited: World) -> None:
    limit_group(limited, {MESSAGES: 1})
    gone = limited.client("gone")
    limited.sim.wait(pull(limited))
    held = gone.asking(
        PullMessage(
            consumer_group="billing",
            topic="orders",
            queue_id=1,
            queue_offset=0,
            max_msg_nums=32,
            sys_flag=PULL_SUSPEND | PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=5000,
            sub_version=0,
            subscription="*",
        )
    )
    limited.sim.until_idle()
    reader = Reader(limited, 0)
    gone.disconnect()
    limited.sim.advance(3)
    with pytest.raises(ConnectionLost):
        limited.sim.wait(held)
    assert len(reader.got) >= 2


def test_other_groups_are_not_concerned(limited: World) -> None:
    limited.group("audit")
    reader = Reader(limited, 0, consumer_group="audit")
    limited.sim.advance(0.1)
    assert len(reader.got) == 100


def test_a_new_or_removed_limit_applies_at_once_to_held_pulls(limited: World) -> None:
    limit_group(limited, {MESSAGES: 1})
    began_s = limited.sim.now_s
    reader = Reader(limited, 0)
    limited.sim.advance(0.5)
    assert len(reader.got) == 1
    changed_s = limited.sim.now_s
    limit_group(limited, {MESSAGES: 50})
    limited.sim.advance(1)
    issued = changed_s - began_s  # at the old limit
    due = [changed_s + (count - issued) / 50 for count in range(1, len(reader.got))]
    assert_in_time(reader.times[1:], due, PACE_MS / 1000 + LATE_S)
    assert len(due) >= 50 * (1 - PACE_MS / 1000 - LATE_S)
    limit_group(limited, {MESSAGES: None})
    limited.sim.advance(0.1)
    assert len(reader.got) == 100
    assert "billing" not in limited.broker.watched.names


def test_a_deleted_group_leaves_no_quota(limited: World) -> None:
    limited.done(DeleteGroup(group_name="billing"))
    assert not limited.broker.watched.quotas
    limited.group("billing")
    reader = Reader(limited, 0)
    limited.sim.advance(0.1)
    assert len(reader.got) == 100


def test_what_is_not_there_is_not_held(limited: World) -> None:
    """Offsets out of range are corrected, and queues without news wait for messages."""
    limited.sim.wait(pull(limited))
    moved = limited.sim.wait(pull(limited, 10_000))
    assert moved.code == ResponseCode.PULL_OFFSET_MOVED


def test_a_quota_counts_only_messages_that_pass_the_filter(world: World) -> None:
    world.topic("orders", 1)
    for number in range(40):
        world.send("orders", b"x", TAGS="paid" if number % 2 else "new")
    limit_group(world, {MESSAGES: 5})
    answer = world.sim.wait(pull(world, subscription="paid"))
    assert len(decode_messages(answer.body)) == 5


def test_a_report_counts_deliveries_and_held_pulls(limited: World) -> None:
    Reader(limited, 0)
    limited.sim.advance(5)
    found = report(limited)["consumer-group", "billing"]
    assert 9 <= found.used_messages <= 12
    assert found.refused_last_minute > 10
    assert found.lasting_ms is not None


def test_the_quota_of_a_group_survives_a_restart() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        world.topic("orders", 1)
        world.send("orders", *[b"x"] * 50)
        limit_group(world, {MESSAGES: 10})
        sim.brokers["broker-a"].restart()
        reader = Reader(world, 0)
        sim.advance(0.01)
        assert len(reader.got) == 10


def test_a_group_that_rebalances_is_watched_only_until_that_is_over(world: World) -> None:
    world.topic("orders")
    world.client("a").beat(subscribes("billing"))
    assert "billing" in world.broker.watched.names
    limit_group(world, {MESSAGES: 10})
    world.sim.advance(20)
    world.pull("orders")
    assert "billing" not in world.broker.watched.rebalancing
    assert "billing" in world.broker.watched.names
    limit_group(world, {MESSAGES: None})
    assert not world.broker.watched.names
