"""When the benchmark reports a target as met, missed or unknown."""

import pytest

from bench.figures import Figure, Target, at_least, at_most, no_more, times_less, times_more
from bench.report import cells, summary


def figure(ours: float, peer: float | None, target: Target | None) -> Figure:
    return Figure("send", "throughput", "msg/s", ours, peer, target)


@pytest.mark.parametrize(
    ("ours", "peer", "target", "is_met"),
    [
        (200, 100, times_more(2), True),
        (199, 100, times_more(2), False),
        (10, 30, times_less(3), True),
        (11, 30, times_less(3), False),
        (110, 100, no_more(1.1), True),
        (111, 100, no_more(1.1), False),
        (111, None, no_more(1.1), None),
        (120, 1500, at_most(120), True),
        (121, 1500, at_most(120), False),
        (50_000, None, at_least(50_000), True),
        (49_999, None, at_least(50_000), False),
        (200, 100, None, None),
        (200, None, times_more(2), None),
        (200, 0, times_more(2), None),
    ],
)
def test_a_target_is_met_missed_or_cannot_be_judged(
    ours: float, peer: float | None, target: Target | None, is_met: bool | None
) -> None:
    assert figure(ours, peer, target).is_met is is_met


def test_a_ratio_above_one_is_better_where_the_target_is_a_multiple() -> None:
    assert figure(200, 100, times_more(2)).ratio == 2
    assert figure(10, 30, times_less(3)).ratio == 3


def test_a_figure_with_an_upper_limit_shows_its_ratio_to_the_peer() -> None:
    assert figure(30, 10, no_more(1.1)).ratio == 3


def test_only_figures_with_a_target_are_counted() -> None:
    figures = [
        figure(200, 100, times_more(2)),
        figure(1, 100, times_more(2)),
        figure(1, 100, None),
    ]
    assert summary(figures) == "1 of 2 targets met"
    assert [cells(one)[-1] for one in figures] == ["met", "MISSED", ""]
