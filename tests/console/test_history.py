"""Figures over time: bounded, with gaps as gaps, kept across restarts; and charts of them."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sparrowmq.console.charts import chart
from sparrowmq.console.history import DAY, HOUR, MOST_SERIES, History, write_file
from sparrowmq.console.sampler import Turns

START_MS = 1_760_000_000_000


class Clock:
    """Time that a test moves."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def filled(clock: Clock, values: list[float | None], step_ms: int = 10_000) -> History:
    history = History(clock)
    for value in values:
        history.add("lag/billing", value)
        clock.now_ms += step_ms
    return history


def fine(history: History, clock: Clock) -> list[float]:
    series = history.series("lag/billing")
    assert series is not None
    return [value for _, value in series.fine.points(clock.now_ms) if not math.isnan(value)]


def test_a_time_without_a_sample_is_a_gap() -> None:
    clock = Clock()
    history = filled(clock, [1, 2, None, None, 5])
    assert fine(history, clock) == [1, 2, 5]


def test_samples_older_than_an_hour_are_kept_as_mean_and_maximum() -> None:
    clock = Clock()
    history = filled(clock, [10, 20] * 400)
    assert len(fine(history, clock)) == 359, "the step of now has no sample yet"
    series = history.series("lag/billing")
    assert series is not None
    means = [value for _, value in series.mean.points(clock.now_ms) if not math.isnan(value)]
    most = [value for _, value in series.most.points(clock.now_ms) if not math.isnan(value)]
    assert len(means) == pytest.approx(8_000 / 120, abs=2)
    assert set(most) == {20}
    assert means[5] == 15


def test_a_value_that_is_old_is_not_the_newest_one() -> None:
    clock = Clock()
    history = filled(clock, [7])
    assert history.newest("lag/billing") == 7
    clock.now_ms += 600_000
    assert history.newest("lag/billing") is None
    assert history.newest("lag/other") is None


def test_the_series_that_was_not_seen_for_longest_makes_room() -> None:
    history = History(Clock())
    for number in range(MOST_SERIES):
        history.add(f"lag/{number}", 1)
    history.series("lag/0")
    history.add("lag/new", 1)
    assert len(history) == MOST_SERIES
    assert history.series("lag/0") is not None
    assert history.series("lag/1") is None


def test_a_history_continues_after_a_restart_with_a_gap(tmp_path: Path) -> None:
    clock = Clock()
    history = filled(clock, [1, 2, 3])
    write_file(tmp_path / "history.bin", history.encoded("a:1"))
    clock.now_ms += 300_000
    again = History(clock)
    assert again.load(tmp_path / "history.bin", "a:1") == ""
    again.add("lag/billing", 9)
    assert fine(again, clock) == [1, 2, 3, 9]


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01garbage", None], ids=["empty", "garbage", "foreign"]
)
def test_a_broken_or_foreign_file_is_moved_aside(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "history.bin"
    clock = Clock()
    write_file(path, filled(clock, [1]).encoded("other:1") if content is None else content)
    history = History(clock)
    assert "was put aside as history.aside" in history.load(path, "a:1")
    assert not path.exists()
    assert (tmp_path / "history.aside").exists()
    assert len(history) == 0


def test_a_chart_joins_samples_and_leaves_gaps() -> None:
    clock = Clock()
    history = filled(clock, [10, None, None, 20, *[None] * 30, 30])
    found = chart(history, "lag", "Unread", "messages", [("unread", "lag/billing")], HOUR, clock())
    (line,) = found.lines
    assert line.path.count("M") == 2, "one gap"
    assert line.path.count("L") == 1
    assert (line.newest, line.largest, found.heights[0]) == (30, 30, 50)
    assert "unread: 30 messages now, at most 30" in found.description
    assert found.rows


@pytest.mark.parametrize(
    ("samples", "begins"),
    [(2, "12:55Z"), (60, "12:50Z"), (360, "12:00Z")],
    ids=["at least five minutes", "ten minutes", "an hour"],
)
def test_the_axis_of_a_short_history_begins_at_the_first_sample(samples: int, begins: str) -> None:
    now_ms = int(datetime(2026, 11, 19, 13, tzinfo=UTC).timestamp() * 1000)
    clock = Clock(now_ms - (samples - 1) * 10_000)
    history = filled(clock, [1.0] * samples)
    found = chart(history, "lag", "Unread", "messages", [("unread", "lag/billing")], HOUR, now_ms)
    assert (found.times[0], found.times[-1]) == (begins, "13:00Z")


def test_a_chart_without_samples_shows_a_notice() -> None:
    found = chart(History(Clock()), "lag", "Unread", "messages", [("unread", "x")], DAY, START_MS)
    assert found.is_empty
    assert found.rows == ()
    assert "unread: ? messages now" in found.description


def test_rounds_of_the_sampler_are_bounded_and_reach_everything() -> None:
    names = [f"group-{number:03}" for number in range(150)]
    turns = Turns()
    rounds = [turns.next(names, {"group-149"}) for _ in range(3)]
    assert all(len(each) == 60 and each[0] == "group-149" for each in rounds)
    assert {name for each in rounds for name in each} == set(names)
