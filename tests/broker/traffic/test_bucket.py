"""A bucket of one second, in virtual time."""

from copy import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.broker.traffic.bucket import Bucket


def passed(bucket: Bucket, until_ms: int, *, tokens: int = 1, step_ms: int = 1) -> int:
    """How many things pass by then, each tried as often as possible."""
    count = 0
    for now_ms in range(0, until_ms + 1, step_ms):
        while not bucket.wait_ms(now_ms):
            bucket.take(tokens)
            count += 1
    return count


@pytest.mark.parametrize("rate", [1, 3, 7, 100, 999, 5000])
def test_one_second_of_messages_passes_at_once_and_then_exactly_the_rate(rate: int) -> None:
    assert passed(Bucket(rate, 0), 0) == rate
    assert passed(Bucket(rate, 0), 10_000) == 11 * rate


def test_a_message_passes_after_the_wait_it_was_given() -> None:
    bucket = Bucket(3, 0)
    bucket.take(3)
    assert bucket.wait_ms(0) == 334
    assert bucket.wait_ms(333) == 1
    assert bucket.wait_ms(334) == 0


def test_a_batch_overdraws_once_and_is_paid_for() -> None:
    bucket = Bucket(10, 0)
    bucket.take(9)
    assert bucket.wait_ms(0) == 0
    bucket.take(32)
    assert (bucket.tokens(0), bucket.used(0)) == (-31, 41)
    assert bucket.wait_ms(0) == 3200


def test_a_pause_saves_one_second_and_no_more() -> None:
    bucket = Bucket(10, 0)
    bucket.take(10)
    assert bucket.tokens(3_600_000) == 10


def test_a_clock_that_goes_back_adds_and_removes_no_tokens() -> None:
    bucket = Bucket(10, 5000)
    bucket.take(10)
    assert bucket.wait_ms(1000) == 100
    assert bucket.wait_ms(1100) == 0


@pytest.mark.parametrize(
    ("before", "taken", "after", "left"),
    [
        (100, 0, 1000, 100),  # a higher limit must not allow a burst
        (100, 0, 10, 10),
        (100, 50, 10, 5),
        (1000, 5000, 10, -40),  # four seconds stay four seconds
        (10, 4010, 1000, -4000),  # and are paid off faster
    ],
)
def test_a_new_rate_keeps_the_tokens_left_or_owed(
    before: int, taken: int, after: int, left: int
) -> None:
    bucket = Bucket(before, 0)
    bucket.take(taken)
    bucket.change_rate(after, 0)
    assert bucket.tokens(0) == left


@given(
    rate=st.integers(1, 10**12),
    steps=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 10**6)), max_size=50),
)
def test_no_more_passes_than_the_rate_allows(rate: int, steps: list[tuple[int, int]]) -> None:
    bucket, now_ms, taken, largest = Bucket(rate, 0), 0, 0, 0
    for passed_ms, tokens in steps:
        now_ms += passed_ms
        wait_ms = bucket.wait_ms(now_ms)
        if wait_ms == 0:
            bucket.take(tokens)
            taken, largest = taken + tokens, max(largest, tokens)
        else:
            assert copy(bucket).wait_ms(now_ms + wait_ms) == 0
    assert taken * 1000 < (now_ms + 1000) * rate + largest * 1000
