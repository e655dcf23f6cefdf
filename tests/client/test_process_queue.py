"""Messages between pull and commit: progress never passes one that is not consumed."""

from collections.abc import Iterable

import hypothesis.strategies as st
from hypothesis import given

from sparrowmq.client.consuming.concurrent_consumption import work_items
from sparrowmq.client.consuming.pull_loop import FlowLimits, reason_to_wait
from sparrowmq.client.group.process_queue import ProcessQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.record import decode_record, encode_record, topic_part

HOST = bytes((127, 0, 0, 1, 0, 0, 0, 1))


def message(offset: int, body: bytes = b"x") -> MessageExt:
    record = encode_record(
        topic_part("t"), 0, 0, offset, offset * 100, 0, 1, HOST, 2, HOST, 0, 0, body, b""
    )
    return MessageExt(decode_record(record), "broker-a")


def pulled(offsets: Iterable[int]) -> tuple[ProcessQueue, dict[int, MessageExt]]:
    messages = {offset: message(offset) for offset in offsets}
    queue = ProcessQueue()
    queue.put(list(messages.values()))
    return queue, messages


def test_when_1001_to_1010_are_all_done_progress_is_1011() -> None:
    queue, messages = pulled(range(1001, 1011))
    assert queue.remove(messages.values()) == 1011


def test_with_1009_and_1010_left_progress_is_1009() -> None:
    queue, messages = pulled(range(1001, 1011))
    assert queue.remove(messages[offset] for offset in range(1001, 1009)) == 1009


def test_with_only_1001_left_progress_is_1001_and_1011_at_once_when_it_finishes() -> None:
    queue, messages = pulled(range(1001, 1011))
    assert queue.remove(messages[offset] for offset in range(1002, 1011)) == 1001
    assert queue.remove([messages[1001]]) == 1011


def test_ten_messages_with_batch_size_4_are_three_work_items() -> None:
    _, messages = pulled(range(10))
    assert [len(item) for item in work_items(list(messages.values()), 4)] == [4, 4, 2]


def test_nothing_pulled_means_no_progress() -> None:
    assert ProcessQueue().progress == -1


def test_a_message_removed_twice_counts_once() -> None:
    queue, messages = pulled([5, 6])
    queue.remove([messages[5]])
    queue.remove([messages[5]])
    assert (len(queue), queue.size_bytes, queue.progress) == (1, 1, 6)


@given(st.lists(st.integers(0, 30), unique=True), st.randoms(use_true_random=False))
def test_progress_is_always_the_smallest_unconsumed_offset(offsets: list[int], rng: object) -> None:
    queue, messages = pulled(sorted(offsets))
    left = set(offsets)
    order = list(offsets)
    rng.shuffle(order)  # type: ignore[attr-defined]  # hypothesis hands a random.Random over
    for offset in order:
        left.discard(offset)
        expected = min(left) if left else max(offsets) + 1
        assert queue.remove([messages[offset]]) == expected


def test_flow_control_says_which_limit_is_reached() -> None:
    queue, messages = pulled(range(10))
    assert reason_to_wait(queue, FlowLimits()) == ""
    assert "10 messages wait" in reason_to_wait(queue, FlowLimits(messages=9))
    assert "10 bytes wait" in reason_to_wait(queue, FlowLimits(size_bytes=9))
    queue.remove(messages[offset] for offset in range(1, 9))
    assert "span 9" in reason_to_wait(queue, FlowLimits(span=8))
    assert reason_to_wait(queue, FlowLimits(span=8), is_orderly=True) == ""
