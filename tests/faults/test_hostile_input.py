"""Hostile input is refused with a clear error, affects only its own connection, and is cheap."""

import pytest

from tests.faults.hostile_input import in_process, over_tcp


@pytest.mark.parametrize("seed", range(4))
def test_spoilt_frames_are_decoded_or_refused(seed: int) -> None:
    result = in_process(seed, 4_000)
    assert result.problems == []
    assert 0 < result.refused < result.frames


@pytest.mark.parametrize(
    ("seed", "count"), [(0, 600), *(pytest.param(n, 6_000, marks=pytest.mark.slow) for n in (0, 1))]
)
def test_a_broker_under_attack_stays_up_uses_little_memory_and_answers_with_errors(
    seed: int, count: int
) -> None:
    result = over_tcp(seed, count)
    assert result.problems == []


def test_planted_a_decoder_that_trips_is_noticed() -> None:
    def trips(data: bytes) -> None:
        if data[8:9] != b"{":
            raise IndexError("planted")

    assert in_process(0, 2_000, trips).problems


@pytest.mark.slow
def test_planted_a_traceback_on_the_wire_is_noticed() -> None:
    result = over_tcp(0, 1_500, module="tests.faults.planted_talkative_broker")
    assert any("on the wire" in problem for problem in result.problems)
