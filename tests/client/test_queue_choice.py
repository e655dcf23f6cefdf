"""Which queue the next message goes to."""

from sparrowmq.client.sending.queue_choice import RoundRobin, queue_for_key
from sparrowmq.protocol.message import MessageQueue

A1, A2, B1, B2, C1, C2 = (
    MessageQueue("t", f"broker-{broker}", queue) for broker in "abc" for queue in (1, 2)
)
QUEUES = [A1, A2, B1, B2, C1, C2]


def test_queues_are_used_in_turn() -> None:
    choice = RoundRobin()
    assert [choice.next(QUEUES) for _ in range(8)] == [A1, A2, B1, B2, C1, C2, A1, A2]


def test_after_a_failure_on_one_broker_the_next_attempt_skips_it() -> None:
    choice = RoundRobin()
    assert choice.next(QUEUES) == A1
    assert choice.next(QUEUES, avoid=A1.broker_name) == B1


def test_the_index_advances_over_skipped_queues() -> None:
    choice = RoundRobin()
    choice.next(QUEUES)
    choice.next(QUEUES, avoid=A1.broker_name)
    assert [choice.next(QUEUES) for _ in range(3)] == [B2, C1, C2]


def test_with_one_broker_only_the_retry_uses_it_again() -> None:
    choice = RoundRobin()
    assert choice.next([A1, A2]) == A1
    assert choice.next([A1, A2], avoid=A1.broker_name) == A2


def test_the_same_key_always_lands_in_the_same_queue() -> None:
    keys = [f"order-{number}" for number in range(100)]
    first = [queue_for_key(QUEUES, key) for key in keys]
    assert [queue_for_key(QUEUES, key) for key in keys] == first
    assert set(first) == set(QUEUES)


def test_a_key_lands_where_javas_hash_selector_puts_it() -> None:
    assert [QUEUES.index(queue_for_key(QUEUES, key)) for key in ("a", "b", "ä")] == [1, 2, 0]
