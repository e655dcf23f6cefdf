"""Charts as values that a template draws as SVG: no script, no style attributes.

The drawing is stretched to the width of its panel, and the labels are text beside it, so that they
stay readable on a phone. Every chart can be read as a table as well.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sparrowmq.console.history import DAY, ChartSpan, History

WIDTH, HEIGHT = 720, 160
_TABLE_ROWS = 12
_LEAST = 30
"""Points of the shortest axis: five minutes of the last hour, one hour of the last day."""
_JOINED = 6
"""Points at most this many steps apart are joined: some figures are sampled only every 30 s, and
slow rounds are further apart. Longer stretches are gaps."""


@dataclass(frozen=True, slots=True)
class Line:
    """One series in a chart."""

    label: str
    path: str
    """The `d` of an SVG path; empty if there is no point."""
    newest: float | None
    largest: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """Ready to be drawn."""

    name: str
    title: str
    unit: str
    description: str
    lines: tuple[Line, ...]
    heights: tuple[float, ...]
    """Values of the grid lines, from the top."""
    times: tuple[str, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]
    """For "show as table": time and one value per line."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw yet."""
        return not any(line.path for line in self.lines)


def chart(
    history: History,
    name: str,
    title: str,
    unit: str,
    series: Sequence[tuple[str, str]],
    span: ChartSpan,
    now_ms: int,
) -> Chart:
    """A chart of series, each given as its label and its name in the history."""
    points = _since_first([(label, _points(history, key, span, now_ms)) for label, key in series])
    values = [value for _, found in points for _, value in found if not math.isnan(value)]
    top = _round_up(max(values, default=0.0))
    lines = tuple(_line(label, found, top) for label, found in points)
    words = "; ".join(
        f"{line.label}: {_text(line.newest)} {unit} now, at most {_text(line.largest)}"
        for line in lines
    )
    return Chart(
        name=name,
        title=title,
        unit=unit,
        description=f"{title}, {span.label}. {words}",
        lines=lines,
        heights=(top, top / 2, 0.0),
        times=_times(span, [found for _, found in points], now_ms),
        rows=_rows([found for _, found in points]),
    )


def _points(history: History, key: str, span: ChartSpan, now_ms: int) -> list[tuple[int, float]]:
    series = history.series(key)
    if series is None:
        return []
    ring = series.mean if span is DAY else series.fine
    return list(ring.points(now_ms))


def _since_first(
    series: Sequence[tuple[str, list[tuple[int, float]]]],
) -> list[tuple[str, list[tuple[int, float]]]]:
    """The same, beginning with the first sample of any: a history that is shorter than the span
    fills the chart. A few minutes are the least, so that seconds do not look like a trend."""
    firsts = (
        at for _, points in series for at, (_, value) in enumerate(points) if not math.isnan(value)
    )
    longest = max((len(points) for _, points in series), default=0)
    start = min(min(firsts, default=0), max(0, longest - _LEAST))
    return [(label, points[start:]) for label, points in series]


def _line(label: str, points: Sequence[tuple[int, float]], top: float) -> Line:
    values = [value for _, value in points if not math.isnan(value)]
    if not values:
        return Line(label, "", None, None)
    step = WIDTH / max(1, len(points) - 1)
    parts, last = [], -math.inf
    for at, (_, value) in enumerate(points):
        if math.isnan(value):
            continue
        x, y = at * step, HEIGHT * (1 - value / top)
        # A single point between gaps is a dot: a line of zero length with round ends.
        is_joined = at - last <= _JOINED
        parts.append(f"L{x:.1f} {y:.1f}" if is_joined else f"M{x:.1f} {y:.1f}h0.1")
        last = at
    return Line(label, "".join(parts), values[-1], max(values))


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, 50, …"""
    if value <= 1:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)


def _times(
    span: ChartSpan, lines: Sequence[Sequence[tuple[int, float]]], now_ms: int
) -> tuple[str, ...]:
    length = span.step_ms * max(map(len, lines), default=span.points)
    return tuple(_clock(now_ms - length * part // 3) for part in (3, 2, 1, 0))


def _clock(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%H:%MZ")


def _rows(
    lines: Sequence[Sequence[tuple[int, float]]],
) -> tuple[tuple[str, tuple[float | None, ...]], ...]:
    """The last value in each of a dozen parts of the time span, the newest part first."""
    longest = max(lines, key=len, default=[])
    every = max(1, len(longest) // _TABLE_ROWS)
    found = []
    for end in range(len(longest), 0, -every):
        values = tuple(_last(line[max(0, end - every) : end]) for line in lines)
        if any(value is not None for value in values):
            found.append((_clock(longest[end - 1][0]), values))
    return tuple(found)


def _last(points: Sequence[tuple[int, float]]) -> float | None:
    return next((value for _, value in reversed(points) if not math.isnan(value)), None)


def _text(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
