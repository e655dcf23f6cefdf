"""Locks of ordered queues: one owner at a time, free when it is gone."""

from collections.abc import Collection

from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import LockBatch, NotifyConsumerIdsChanged, UnlockBatch
from sparrowmq.protocol.locks import LockBatchRequest, LockBatchResponse
from sparrowmq.protocol.message import MessageQueue
from tests.broker.world import TalkingClient, World, queue, subscribes, world_with

FIRST, SECOND = queue("orders", 0), queue("orders", 1)


def asked(client_id: str, *queues: MessageQueue, group: str = "billing") -> bytes:
    wanted = LockBatchRequest(consumer_group=group, client_id=client_id, mq_set=frozenset(queues))
    return wanted.to_json()


def lock(
    client: TalkingClient,
    *queues: MessageQueue,
    group: str = "billing",
    tells_freed: bool | None = None,
) -> set[MessageQueue]:
    header = LockBatch(tells_freed=tells_freed)
    answer = client.ask(header, asked(client.name, *queues, group=group))
    assert answer.code == ResponseCode.SUCCESS
    return set(LockBatchResponse.from_json(answer.body).lock_ok_mq_set)


def two_members(world: World) -> tuple[TalkingClient, TalkingClient]:
    a, b = world.client("a"), world.client("b")
    a.beat(subscribes("billing"))
    b.beat(subscribes("billing"))
    return a, b


def test_a_queue_has_one_owner_and_the_answer_lists_the_locked_queues(world: World) -> None:
    a, b = two_members(world)
    assert lock(a, FIRST) == {FIRST}
    assert lock(b, FIRST, SECOND) == {SECOND}
    assert lock(a, FIRST, SECOND) == {FIRST}


def test_groups_do_not_lock_each_other_out(world: World) -> None:
    a, b = two_members(world)
    assert lock(a, FIRST) == {FIRST}
    assert lock(b, FIRST, group="audit") == {FIRST}


def test_a_lock_that_is_renewed_stays_and_one_that_is_not_ends_after_60_s(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST, SECOND)
    for _ in range(3):
        world.sim.advance(30)
        assert lock(a, FIRST) == {FIRST}
    assert lock(b, FIRST, SECOND) == {SECOND}


class Notices:
    """Remembers which clients were notified."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, list[str]]] = []

    def queues_freed(self, group_name: str, client_ids: Collection[str]) -> None:
        self.sent.append((group_name, list(client_ids)))


def test_a_lock_is_held_for_60_s_and_free_a_millisecond_later() -> None:
    now_ms = 1_000
    locks = QueueLocks(Notices(), clock=lambda: now_ms, timeout_s=60)
    assert locks.lock("billing", "a", [FIRST]) == [FIRST]
    now_ms += 60_000
    assert locks.lock("billing", "b", [FIRST]) == []
    assert locks.owner("billing", FIRST) == "a"
    assert locks.owners("billing", "orders") == {0: "a"}
    now_ms += 1
    assert locks.owner("billing", FIRST) is None
    assert locks.owners("billing", "orders") == {}
    assert locks.lock("billing", "b", [FIRST]) == [FIRST]


def test_a_waiter_for_the_end_of_a_lock_resumes_when_another_client_takes_it_over() -> None:
    now_ms = 1_000
    locks = QueueLocks(Notices(), clock=lambda: now_ms, timeout_s=60)
    locks.lock("billing", "a", [FIRST])
    ended = locks.ended_event("billing", FIRST)
    assert locks.ended_event("billing", FIRST) is ended
    locks.lock("billing", "a", [FIRST])
    assert not ended.is_set()
    now_ms += 60_001
    locks.lock("billing", "b", [FIRST])
    assert ended.is_set()


def test_a_refused_client_is_notified_of_a_lock_that_another_took_over_meanwhile() -> None:
    now_ms = 0
    notices = Notices()
    locks = QueueLocks(notices, clock=lambda: now_ms, timeout_s=60)
    locks.lock("billing", "gone", [FIRST])
    for client_id in ("next", "other"):
        assert not locks.lock("billing", client_id, [FIRST], notify_when_freed=True)
    now_ms = 60_001
    assert locks.lock("billing", "next", [FIRST]) == [FIRST]
    locks.unlock("billing", "next", [FIRST])
    assert notices.sent == [("billing", ["other"])]


def test_owners_are_those_of_one_topic(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST, queue("refunds", 7))
    lock(b, SECOND)
    assert world.broker.locks.owners("billing", "orders") == {0: "a", 1: "b"}
    assert world.broker.locks.owners("audit", "orders") == {}


def test_only_the_owner_can_unlock(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST)
    b.ask(UnlockBatch(), asked("b", FIRST))
    assert lock(b, FIRST) == set()
    a.ask(UnlockBatch(), asked("a", FIRST))
    assert lock(b, FIRST) == {FIRST}


def test_locks_are_free_when_the_connection_closes(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST)
    a.disconnect()
    assert lock(b, FIRST) == {FIRST}


def test_locks_are_free_when_the_client_is_killed_or_unregisters(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST)
    a.leave("billing")
    assert lock(b, FIRST) == {FIRST}
    b.host.kill()
    world.sim.until_idle()
    a.beat(subscribes("billing"))
    assert lock(a, FIRST) == {FIRST}


def test_locks_of_a_client_that_has_another_connection_stay(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST)
    again = world.client("a again")
    again.beat(subscribes("billing"), client_id="a")
    a.disconnect()
    assert lock(b, FIRST) == set()


def test_locks_of_a_client_that_never_sent_a_heartbeat_end_by_time_only(world: World) -> None:
    stranger, b = world.client("stranger"), world.client("b")
    assert lock(stranger, FIRST) == {FIRST}
    stranger.disconnect()
    assert lock(b, FIRST) == set()
    world.sim.advance(61)
    assert lock(b, FIRST) == {FIRST}


def test_locks_have_a_limit_and_ended_ones_make_room() -> None:
    now_ms = 0
    locks = QueueLocks(Notices(), clock=lambda: now_ms, timeout_s=60, most=3)
    assert locks.lock("billing", "a", [FIRST, SECOND]) == [FIRST, SECOND]
    assert locks.lock("audit", "b", [FIRST, SECOND]) == [FIRST]
    assert locks.lock("audit", "b", [FIRST]) == [FIRST], "renewed"
    locks.unlock("billing", "a", [SECOND])
    assert locks.lock("audit", "c", [SECOND]) == [SECOND]
    now_ms = 50_000
    locks.lock("audit", "b", [FIRST])
    now_ms = 70_000
    for _ in locks.forgetting_free():
        pass
    assert (len(locks), locks.owner("audit", FIRST)) == (1, "b")
    assert locks.lock("billing", "a", [FIRST, SECOND]) == [FIRST, SECOND]
    assert locks.lock("more", "a", [FIRST]) == []
    locks.unlock_all("billing", "a")
    locks.unlock_all("audit", "b")
    assert len(locks) == 0


def test_an_expired_lock_that_others_wait_for_is_kept() -> None:
    now_ms = 0
    notices = Notices()
    locks = QueueLocks(notices, clock=lambda: now_ms, timeout_s=60)
    locks.lock("billing", "a", [FIRST])
    locks.lock("billing", "b", [FIRST], notify_when_freed=True)
    now_ms = 70_000
    for _ in locks.forgetting_free():
        pass
    locks.unlock_all("billing", "a")
    assert notices.sent == [("billing", ["b"])]


def test_a_broker_forgets_locks_that_are_not_renewed(world: World) -> None:
    lock(world.client("stranger"), FIRST, queue("no-such-topic", 7), group="nobody")
    assert len(world.broker.locks) == 2
    world.sim.advance(80)
    assert len(world.broker.locks) == 0


def test_a_lock_request_without_group_or_client_is_refused(world: World) -> None:
    for body in (asked("", FIRST), asked("a", FIRST, group="")):
        assert world.ask(LockBatch(), body).code == ResponseCode.INVALID_PARAMETER
        assert world.ask(UnlockBatch(), body).code == ResponseCode.INVALID_PARAMETER
    assert world.ask(LockBatch(), b"nonsense").code == ResponseCode.SYSTEM_ERROR


def unlock(client: TalkingClient, *queues: MessageQueue) -> None:
    client.ask(UnlockBatch(), asked(client.name, *queues))


def freed(world: World, client: TalkingClient) -> int:
    """How often it was notified that a queue is free."""
    world.sim.until_idle()
    calls = client.answered.of(NotifyConsumerIdsChanged)
    return sum(call.header.is_freed is True for call in calls)


def test_a_member_that_was_refused_is_notified_once_when_the_queue_is_free(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST, SECOND)
    assert lock(b, FIRST, SECOND, tells_freed=True) == set()
    unlock(b, FIRST)
    assert freed(world, b) == 0
    unlock(a, FIRST, SECOND)
    assert (freed(world, a), freed(world, b)) == (0, 1)
    lock(a, FIRST)
    unlock(a, FIRST)
    assert freed(world, b) == 1


def test_a_member_that_was_refused_is_notified_when_the_owner_is_gone(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST)
    lock(b, FIRST, tells_freed=True)
    a.host.kill()
    assert freed(world, b) == 1
    assert lock(b, FIRST) == {FIRST}


def test_a_renewed_lock_still_notifies_members_that_were_refused(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST)
    lock(b, FIRST, tells_freed=True)
    lock(a, FIRST)
    unlock(a, FIRST)
    assert freed(world, b) == 1


def test_members_that_do_not_ask_for_notices_get_none(world: World) -> None:
    a, b = two_members(world)
    lock(a, FIRST)
    lock(b, FIRST)
    unlock(a, FIRST)
    assert freed(world, b) == 0


def test_free_queues_are_not_announced_where_notices_are_switched_off() -> None:
    with world_with(notify_consumer_ids_changed=False) as world:
        a, b = two_members(world)
        lock(a, FIRST)
        lock(b, FIRST, tells_freed=True)
        unlock(a, FIRST)
        assert freed(world, b) == 0
