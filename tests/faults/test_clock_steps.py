"""The clock of a real broker is set while messages wait in it and members are connected.

In virtual time: tests/sim/test_clock_steps.py.
"""

import pytest

from tests.faults.clock_steps import Steps, Waiting, set_clock
from tests.faults.scorecard_clients import clock_steps


@pytest.mark.slow
def test_clock_steps_lose_nothing_deliver_nothing_early_and_expire_no_peer() -> None:
    scored = clock_steps(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


@pytest.mark.slow
def test_a_planted_broker_that_believes_its_clock_is_noticed() -> None:
    seen = set_clock(0, 4, module="tests.faults.planted_clock_broker")
    assert any("early by time that passed" in problem for problem in seen.problems())


def test_lost_early_and_silenced_are_noticed() -> None:
    seen = Steps(
        waiting={
            b"lost": Waiting(1.0, 1.0),
            b"soon": Waiting(1.0, 1.0),
            b"by the clock": Waiting(1.0, asked_ms=500),
            b"right": Waiting(1.0, 1.0, 500),
        },
        came={b"soon": [(1.9, 0)], b"by the clock": [(9.0, 499)], b"right": [(2.0, 500)]},
        silenced=1,
    )
    assert seen.problems() == [
        "1 members were taken for silent",
        "early by the clock: by the clock",
        "early by time that passed: soon",
        "lost: lost",
    ]
