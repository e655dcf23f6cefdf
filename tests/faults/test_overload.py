"""An overloaded broker serves what it can, refuses the rest, and recovers afterwards."""

import pytest

from tests.faults.honest_load import Answered, Kind, Phase
from tests.faults.overload import (
    OVERLOADS,
    OverloadResult,
    judge_times,
    overload_broker,
    recovery_s,
)
from tests.seeds import in_part

SLOW_DISK = "slow disk, synchronous flush"


@pytest.mark.parametrize("name", in_part(OVERLOADS, few=1))
def test_an_overloaded_broker_keeps_accepted_messages_and_keeps_serving(name: str) -> None:
    result = overload_broker(name, small=True)
    assert result, str(result)


@pytest.mark.slow
def test_a_planted_broker_that_syncs_in_its_loop_is_noticed() -> None:
    result = overload_broker(SLOW_DISK, small=True, is_planted=True)
    assert "waits for ever" in str(result)


@pytest.mark.parametrize(
    ("name", "busy", "problems"),
    [
        (SLOW_DISK, 0, ["no send was refused, so no busy answer was measured"]),
        ("no descriptors", 0, ["no send was refused, so no busy answer was measured"]),
        (SLOW_DISK, 1, []),
        ("slow disk, asynchronous flush", 0, []),
    ],
)
def test_times_of_busy_answers_that_never_came_do_not_count_as_met(
    name: str, busy: int, problems: list[str]
) -> None:
    result = OverloadResult(name, size=500, busy=busy)
    judge_times(OVERLOADS[name], result)
    assert result.problems == problems


@pytest.mark.parametrize(
    ("moments", "expected_s"),
    [
        ([at / 10 for at in range(40)], 0.0),
        ([2 + at / 10 for at in range(20)], 1.9),
        ([at / 4 for at in range(16)], 4.0),
    ],
    ids=["at once", "after a while", "never"],
)
def test_recovery_lasts_until_the_first_second_at_the_earlier_rate(
    moments: list[float], expected_s: float
) -> None:
    answers = [Answered(Kind.SEND, 0, at_s, 0.0) for at_s in moments]
    after = Phase(0.0, 4.0, answers)
    assert recovery_s(after, least_per_s=9.0) == pytest.approx(expected_s, abs=0.11)
