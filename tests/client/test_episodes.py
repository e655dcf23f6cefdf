"""Which occurrences of something that lasts are logged."""

import math

import pytest

from sparrowmq.episodes import Episode


@pytest.mark.parametrize(
    ("shown", "every_s", "logged_at_s"),
    [
        (1, 60.0, [0, 60, 120]),
        (1, 1.0, list(range(131))),
        (3, 60.0, [0, 1, 2, 62, 122]),
        (5, math.inf, [0, 1, 2, 3, 4]),
    ],
)
def test_the_first_occurrences_are_logged_and_then_one_at_each_interval(
    shown: int, every_s: float, logged_at_s: list[int]
) -> None:
    episode = Episode(0.0, every_s=every_s, shown=shown)
    assert [second for second in range(131) if episode.occurs(second)] == logged_at_s
    assert episode.count == 131
    assert episode.unlogged == 130 - logged_at_s[-1]
    assert episode.lasted_s(131) == 131


def test_an_episode_is_new_until_it_occurs_a_second_time() -> None:
    episode = Episode(5.0)
    episode.occurs(5.0)
    assert episode.is_new
    episode.occurs(5.0)
    assert not episode.is_new
