"""Delay levels and the retry delays that follow from them."""

import pytest

from sparrowmq.protocol.delay import (
    DEFAULT_DELAY_LEVELS,
    RETRY_DELAYS_MS,
    format_delay_levels,
    parse_delay_levels,
    schedule_queue_id,
)
from sparrowmq.protocol.group_config import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    RetryPolicyType,
)

S, M, H = 1_000, 60_000, 3_600_000


def test_the_default_table_has_eighteen_levels() -> None:
    assert parse_delay_levels(DEFAULT_DELAY_LEVELS) == RETRY_DELAYS_MS
    assert RETRY_DELAYS_MS[:4] == (S, 5 * S, 10 * S, 30 * S)
    assert RETRY_DELAYS_MS[4:14] == tuple(minutes * M for minutes in range(1, 11))
    assert RETRY_DELAYS_MS[14:] == (20 * M, 30 * M, H, 2 * H)


@pytest.mark.parametrize(
    ("levels_ms", "text"),
    [
        (RETRY_DELAYS_MS, DEFAULT_DELAY_LEVELS),
        ((90 * S, 90 * M, 24 * H), "90s 90m 24h"),
        ((1, S + 1), "1s 2s"),
    ],
)
def test_levels_are_written_in_the_largest_unit_that_fits(
    levels_ms: tuple[int, ...], text: str
) -> None:
    assert format_delay_levels(levels_ms) == text


def test_days_and_any_blanks_are_understood() -> None:
    assert parse_delay_levels("  1d   2s ") == (86_400_000, 2_000)


@pytest.mark.parametrize("text", ["1x", "s", "1", "-1s", "1.5s", "1s,5s", "²s"])
def test_a_level_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number followed by s, m, h or d"):
        parse_delay_levels(f"1s {text}")


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no delay level"):
        parse_delay_levels(" ")


def test_level_n_is_stored_in_queue_n_minus_1() -> None:
    assert [schedule_queue_id(level) for level in (1, 18)] == [0, 17]


def test_retries_begin_with_level_three_and_end_at_two_hours() -> None:
    policy = GroupRetryPolicy()
    delays = [policy.delay_ms(times) for times in range(17)]
    assert delays == [*RETRY_DELAYS_MS[2:], 2 * H]
    assert policy.delay_ms(-1) == 10 * S


def test_an_exponential_policy_doubles_up_to_its_maximum() -> None:
    policy = GroupRetryPolicy(
        type=RetryPolicyType.EXPONENTIAL, exponential_retry_policy=ExponentialRetryPolicy()
    )
    assert [policy.delay_ms(times) for times in (-1, 0, 1, 2)] == [5 * S, 5 * S, 10 * S, 20 * S]
    assert policy.delay_ms(1_000_000) == 2 * H


def test_a_policy_that_lacks_its_table_falls_back_to_the_default() -> None:
    assert GroupRetryPolicy(type=RetryPolicyType.EXPONENTIAL).delay_ms(0) == 10 * S
    short = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=(1, 2)))
    assert short.delay_ms(0) == 2
