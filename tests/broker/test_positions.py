"""Positions of clients that know no epochs, after a power cut that made a queue shorter.

kept 0 … 3 | lost 4 … 9      power cut      kept 0 … 3 | new 4 …
           ^ the end                                   ^ positions past it are in doubt
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sparrowmq.broker.config import Flush
from sparrowmq.broker.positions import MAX_UNHANDLED, resume_offset
from sparrowmq.client.broker_calls import UNKNOWN_EPOCH
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.admin import DeleteExpiredLog
from sparrowmq.protocol.headers.offsets import (
    GetMaxOffset,
    OffsetFound,
    OffsetInEpoch,
    QueryConsumerOffset,
    SearchOffset,
    UpdateConsumerOffset,
)
from sparrowmq.protocol.headers.pull import Pulled, PulledInEpoch, PullMessage
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.protocol.sys_flag import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from sparrowmq.testing.sim_cluster import SMALL_STORE, SimCluster
from tests.broker.world import TalkingClient, World, subscribes

TOPIC, GROUP = "orders", "billing"
END = 4
NEVER_S = 3000.0


@pytest.fixture
def cut() -> Iterator[World]:
    """Four messages survived, six that consumers saw did not; `regrow` adds new ones."""
    with SimCluster(seed=2, flush_interval_s=NEVER_S).run() as sim:
        world = World(sim)
        world.topic(TOPIC, 1)
        world.group(GROUP)
        world.send(TOPIC, *(b"kept",) * END)
        node = sim.brokers["broker-a"]
        sim.wait(node.host.start(node.broker.durability.flush()))
        world.send(TOPIC, *(b"lost" * 1024,) * 6)  # many sectors: the first is torn
        node.lose_power()
        node.start()
        sim.clients.clear()  # it died with the power
        assert sim.broker.store.max_offset(TOPIC, 0) == END
        yield world


def regrow(world: World, count: int) -> None:
    sender = world.sim.clients.get("after") or world.sim.new_client("after")
    for _ in range(count):
        world.sim.wait(sender.send(TOPIC, b"new"))


def java(world: World, name: str = "java") -> TalkingClient:
    client = world.client(name)
    client.beat(subscribes(GROUP, TOPIC))
    return client


def pull(client: TalkingClient, offset: int, carried: int = -1, **more: object) -> tuple[int, int]:
    """The code and the next offset that a pull is answered with."""
    fields: dict[str, object] = {
        "consumer_group": GROUP,
        "topic": TOPIC,
        "queue_id": 0,
        "queue_offset": offset,
        "max_msg_nums": 1,
        "sys_flag": PULL_COMMIT_OFFSET if carried >= 0 else 0,
        "commit_offset": max(0, carried),
        "suspend_timeout_millis": 0,
        "sub_version": 0,
    }
    answer = client.ask(PullMessage(**(fields | more)))  # type: ignore[arg-type]
    return answer.code, answer.header(Pulled).next_begin_offset


def stored(client: TalkingClient) -> int:
    asked = QueryConsumerOffset(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, set_zero_if_not_found=False
    )
    answer = client.ask(asked)
    return answer.header(OffsetFound).offset if answer.code == 0 else -1


def commit(client: TalkingClient, offset: int, epoch: int | None = None) -> None:
    header = UpdateConsumerOffset(
        consumer_group=GROUP, topic=TOPIC, queue_id=0, commit_offset=offset, epoch=epoch
    )
    assert client.ask(header).code == ResponseCode.SUCCESS


FOUND, MOVED = ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED


@pytest.mark.parametrize("regrown", [1, 6, 20], ids=["shorter", "equal", "longer"])
@pytest.mark.parametrize("epoch", [None, UNKNOWN_EPOCH], ids=["Java", "ours, from Apache's"])
@pytest.mark.parametrize(
    ("position", "carried", "expected"),
    [
        (2, -1, (FOUND, 3)),  # what was kept is as it was
        (END, -1, (FOUND, END + 1)),
        (10, 10, (MOVED, END)),
        (10, 7, (MOVED, END)),
        (10, 3, (MOVED, 3)),  # pulled and not handled: it comes again
        (5, 2, (MOVED, 2)),
        (10, -1, (MOVED, 0)),  # broadcasting: the broker does not know what was handled
    ],
)
def test_a_position_that_counts_lost_messages_is_sent_back(
    cut: World,
    position: int,
    carried: int,
    expected: tuple[int, int],
    epoch: int | None,
    regrown: int,
) -> None:
    regrow(cut, regrown)
    assert pull(java(cut), position, carried, epoch=epoch) == expected


def test_a_client_of_ours_that_knows_no_epoch_stays_where_nothing_is_lost() -> None:
    """It has read from a broker of Apache's until now, whose log this one has."""
    with SimCluster(seed=3).run() as sim:
        world = World(sim)
        world.topic(TOPIC, 1)
        world.group(GROUP)
        world.send(TOPIC, *(b"kept",) * END)
        assert pull(java(world), END - 1, epoch=UNKNOWN_EPOCH) == (FOUND, END)
        commit(java(world), END, UNKNOWN_EPOCH)
        assert stored(java(world)) == END


def test_a_group_resumes_at_the_offset_it_stored_past_the_end_since_then(cut: World) -> None:
    regrow(cut, 8)
    owner = java(cut, "owner")
    for offset in range(END, END + 5):
        assert pull(owner, offset) == (FOUND, offset + 1)
    commit(owner, END + 3)
    assert pull(java(cut, "sleeper"), END + 6, END + 6) == (MOVED, END + 3)


def test_a_member_continues_only_up_to_what_its_connection_was_sent(cut: World) -> None:
    regrow(cut, 8)
    client = java(cut)
    assert pull(client, END) == (FOUND, END + 1)
    assert pull(client, END + 1) == (FOUND, END + 2)
    assert pull(client, END + 1) == (FOUND, END + 2)
    assert pull(client, END + 4)[0] == MOVED
    client.disconnect()  # and may have slept through anything
    client.beat(subscribes(GROUP, TOPIC))
    assert pull(client, END + 2)[0] == MOVED


def test_offsets_sent_to_one_group_do_not_count_for_another_on_the_same_connection(
    cut: World,
) -> None:
    regrow(cut, 8)
    client = java(cut)
    client.beat(subscribes(GROUP, TOPIC), subscribes("audit", TOPIC))
    assert pull(client, END) == (FOUND, END + 1)
    assert pull(client, END + 1, consumer_group="audit")[0] == MOVED


@pytest.mark.parametrize(
    "asked",
    [
        GetMaxOffset(topic=TOPIC, queue_id=0),
        SearchOffset(topic=TOPIC, queue_id=0, timestamp=1 << 60),
    ],
    ids=["the end", "by time"],
)
def test_a_member_may_use_an_offset_it_queried_but_none_before_it(
    cut: World, asked: GetMaxOffset | SearchOffset
) -> None:
    regrow(cut, 4)
    client = java(cut)
    end = client.ask(asked).header(OffsetFound).offset
    assert end == END + 4
    assert pull(client, end - 1)[0] == MOVED
    assert pull(client, end) == (ResponseCode.PULL_NOT_FOUND, end)


def test_a_member_may_use_a_stored_offset_it_queried(cut: World) -> None:
    regrow(cut, 8)
    owner = java(cut, "owner")
    for offset in range(END, END + 3):
        pull(owner, offset)
    commit(owner, END + 3)
    heir = java(cut, "heir")
    assert stored(heir) == END + 3
    assert pull(heir, END + 3) == (FOUND, END + 4)


@pytest.mark.parametrize("position", [5, 10])
def test_a_commit_that_counts_lost_messages_is_ignored(cut: World, position: int) -> None:
    regrow(cut, 8)
    client = java(cut)
    commit(client, position)
    assert stored(client) == -1
    commit(client, END)
    assert stored(client) == END


def test_tools_may_read_at_any_offset(cut: World) -> None:
    regrow(cut, 8)
    found = pull(
        java(cut),
        END + 3,
        consumer_group="TOOLS_CONSUMER",
        sys_flag=PULL_SUBSCRIPTION,
        subscription="*",
    )
    assert found[0] == FOUND


def test_positions_are_in_doubt_after_a_second_restart_too(cut: World) -> None:
    regrow(cut, 8)
    node = cut.sim.brokers["broker-a"]
    cut.sim.wait(node.host.start(node.broker.durability.flush()))
    node.kill()
    node.start()
    assert cut.broker.store.max_offset(TOPIC, 0) == END + 8
    assert pull(java(cut), END + 2, END + 2) == (MOVED, END)
    cut.sim.brokers["broker-a"].stop()
    node.start()
    assert pull(java(cut, "later"), END + 2, END + 2) == (MOVED, END)


def test_a_clean_restart_raises_no_doubts() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        world.topic(TOPIC, 1)
        world.group(GROUP)
        world.send(TOPIC, *(b"kept",) * 9)
        sim.brokers["broker-a"].stop()
        sim.brokers["broker-a"].start()
        assert not world.broker.store.epochs.has_doubts
        assert pull(java(world), 5) == (FOUND, 6)


def test_a_crash_raises_no_doubts_if_messages_are_seen_only_once_durable() -> None:
    with SimCluster(seed=1, flush=Flush.SYNC).run() as sim:
        world = World(sim)
        world.topic(TOPIC, 1)
        world.group(GROUP)
        world.send(TOPIC, *(b"kept",) * 9)
        sim.brokers["broker-a"].lose_power()
        sim.brokers["broker-a"].start()
        assert not world.broker.store.epochs.has_doubts


def test_a_pull_that_waited_while_its_topic_was_recreated_proves_no_position() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        world.topic(TOPIC, 1)
        world.group(GROUP)
        world.send(TOPIC, *(b"old",) * 5)
        client = java(world)
        assert pull(client, 4) == (FOUND, 5)
        waiting = client.asking(
            PullMessage(
                consumer_group=GROUP,
                topic=TOPIC,
                queue_id=0,
                queue_offset=5,
                max_msg_nums=32,
                sys_flag=PULL_SUSPEND,
                commit_offset=0,
                suspend_timeout_millis=15_000,
                sub_version=0,
            )
        )
        sim.until_idle()
        world.done(DeleteTopic(topic=TOPIC))
        assert sim.wait(waiting).code == ResponseCode.PULL_NOT_FOUND
        world.topic(TOPIC, 1)
        world.send(TOPIC, *(b"new",) * 9)
        commit(client, 5)
        assert stored(client) == -1
        assert pull(client, 5, 5) == (MOVED, 0)


def test_positions_older_than_two_deletions_are_in_doubt() -> None:
    with SimCluster(seed=1).run() as sim:
        world = World(sim)
        world.group(GROUP)
        world.topic(TOPIC, 1)
        world.send(TOPIC, *(b"old",) * 20)
        client = java(world)
        assert pull(client, 19) == (FOUND, 20)
        for count in (5, 30):  # while the member is busy with what it has
            world.done(DeleteTopic(topic=TOPIC))
            world.topic(TOPIC, 1)
            world.send(TOPIC, *(b"new",) * count)
        assert pull(client, 20, 20) == (MOVED, 0)


def test_positions_past_a_lost_end_are_in_doubt_when_the_topic_is_deleted_after_it() -> None:
    store = replace(SMALL_STORE, unsynced_window=10)
    with SimCluster(seed=1, flush_interval_s=NEVER_S, store=store).run() as sim:
        world = World(sim)
        world.topic(TOPIC, 1)
        world.group(GROUP)
        world.send(TOPIC, *(b"kept",) * 20)
        node = sim.brokers["broker-a"]
        sim.wait(node.host.start(node.broker.durability.flush()))
        node.lose_power()  # with up to 10 more, which members may have seen
        node.start()
        sim.clients.clear()
        world.done(DeleteTopic(topic=TOPIC))
        world.topic(TOPIC, 1)
        world.send(TOPIC, *(b"new",) * 35)
        sim.wait(node.host.start(node.broker.durability.flush()))
        assert pull(java(world), 30, 30) == (MOVED, 0)


def test_doubts_outlive_the_messages_that_came_next() -> None:
    """An epoch without losses follows; everything before it expires, and with it the epoch of the
    cut. What is left has offsets that members may have seen before the cut."""
    store = replace(SMALL_STORE, retention_ms=60_000)
    with SimCluster(seed=5, flush_interval_s=NEVER_S, store=store).run() as sim:
        world = World(sim)
        world.topic(TOPIC, 1)
        world.group(GROUP)
        node = sim.brokers["broker-a"]
        world.send(TOPIC, *(b"lost",) * 30)
        node.lose_power()
        node.start()
        sim.clients.clear()
        node.stop()
        node.start()
        for _ in range(2):
            world.send(TOPIC, *(b"new" * 30_000,) * 20)
            sim.wait(node.host.start(node.broker.durability.flush()))
            sim.advance(40)
        world.done(DeleteExpiredLog())
        low, high = world.broker.store.queue_range(TOPIC, 0)
        assert 0 < low < 30 < high
        assert pull(java(world), 30, 30) == (MOVED, low)


# ---- clients that say the epoch


def ours(client: TalkingClient, offset: int, epoch: int) -> PulledInEpoch:
    header = PullMessage(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=1,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        epoch=epoch,
    )
    return client.ask(header).header(PulledInEpoch)


def test_a_client_that_states_its_epoch_learns_where_its_messages_end(cut: World) -> None:
    regrow(cut, 8)
    client = java(cut)
    now = cut.broker.store.epochs.current
    assert ours(client, 10, now - 1).valid_end == END
    found = ours(client, END - 1, now - 1)
    assert (found.next_begin_offset, found.valid_end) == (END, END), "a range is good so far"
    found = ours(client, 10, now)
    assert (found.next_begin_offset, found.epoch, found.valid_end) == (11, now, None)


def test_progress_of_an_older_epoch_is_stored_only_up_to_its_end(cut: World) -> None:
    regrow(cut, 8)
    client = java(cut)
    now = cut.broker.store.epochs.current
    for offset, epoch, expected in ((10, now - 1, -1), (END, now - 1, END), (10, now, 10)):
        commit(client, offset, epoch)
        assert stored(client) == expected


def test_the_end_of_an_older_epoch_can_be_queried(cut: World) -> None:
    regrow(cut, 8)
    now = cut.broker.store.epochs.current
    client = java(cut)
    for epoch, end in ((now - 1, END), (now, None)):
        found = client.ask(GetMaxOffset(topic=TOPIC, queue_id=0, epoch=epoch)).header(OffsetInEpoch)
        assert (found.offset, found.epoch, found.valid_end) == (END + 8, now, end)


@pytest.mark.parametrize(
    ("end", "known", "carried", "expected"),
    [
        (100, 120, 150, 120),
        (100, 100, 150, 100),
        (100, 40, 60, 60),
        (100, 60, -1, 60),
        (100, -1, 40, 40),
        (100, -1, -1, 0),
        (5000, -1, -1, 5000 - MAX_UNHANDLED),
    ],
)
def test_a_member_without_epochs_continues_at_the_expected_offset(
    end: int, known: int, carried: int, expected: int
) -> None:
    assert resume_offset(end, known, carried) == expected
