"""Lines over time as SVG: panels below each other that share the axis of time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, log10

from tools.chart import FONTS, INK, LINE, PAPER, SOFT, WIDTH, text

LEFT, RIGHT, TOP, BOTTOM = 76, 28, 114, 48
GAP = 62
_ROUND_STEPS = (1, 2, 5, 10)

Points = Sequence[tuple[float, float]]
"""Seconds, which grow, and values of 0 or more."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line, its name in the legend and its colour."""

    name: str
    colour: str
    points: Points
    is_filled: bool = False
    """Whether the area below the line is tinted."""
    top: str = ""
    """What is written at its highest point."""


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines with one scale. `mark` is a value with a dashed line and its name."""

    title: str
    lines: Sequence[Line]
    height: int = 180
    mark: tuple[float, str] | None = None


def rates(totals: Points, most: int = 60) -> Points:
    """How fast totals grow, a second; at most so many points, each the average around it."""
    some = totals[:: max(1, ceil(len(totals) / most))]
    return [
        ((since + at) / 2, (new - old) / (at - since)) for (since, old), (at, new) in pairwise(some)
    ]


def line_chart(title: str, subtitle: str, panels: Sequence[Panel]) -> str:
    """The panels from top to bottom. All scales begin at 0."""
    end_s = max((at for panel in panels for at in _all(panel, 0)), default=0.0) or 1.0
    height = TOP + sum(panel.height for panel in panels) + GAP * (len(panels) - 1) + BOTTOM
    drawn, top = [], TOP
    for panel in panels:
        drawn += _panel(panel, top, end_s)
        top += panel.height + GAP
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" role="img" font-family="{FONTS}">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{WIDTH}" height="{height}" rx="12" fill="{PAPER}"/>',
            text(28, 38, title, size=20, weight=600),
            text(28, 60, subtitle, size=13, colour=SOFT),
            *drawn,
            text(WIDTH - RIGHT, height - 14, "seconds", 11, colour=SOFT, anchor="end"),
            "</svg>\n",
        ]
    )


def ticks(most: float, steps: int) -> list[float]:
    """Round values from 0 up to the first that is not below `most`, about so many steps."""
    rough = most / steps
    power = 10.0 ** (ceil(log10(rough)) - 1)
    step = next(each * power for each in _ROUND_STEPS if each * power >= rough * 0.999)
    return [number * step for number in range(ceil(most / step * 0.999) + 1)]


def _all(panel: Panel, which: int) -> Iterable[float]:
    return (point[which] for line in panel.lines for point in line.points)


def _panel(panel: Panel, top: int, end_s: float) -> list[str]:
    most = max([*_all(panel, 1), panel.mark[0] if panel.mark else 0.0]) or 1.0
    values, floor = ticks(most, 4), top + panel.height
    across, up = (WIDTH - LEFT - RIGHT) / end_s, panel.height / values[-1]
    drawn = [text(28, top - 16, panel.title, 13, weight=600), *_legend(panel, top - 16)]
    for value in values:
        y = floor - value * up
        drawn.append(_rule(y, LINE))
        drawn.append(text(LEFT - 8, y + 4, f"{value:,g}", 11, colour=SOFT, anchor="end"))
    for at in ticks(end_s, 12):
        if at <= end_s:
            x = LEFT + at * across
            drawn.append(text(x, floor + 17, f"{at:g}", 11, colour=SOFT, anchor="middle"))
    if panel.mark is not None:
        y = floor - panel.mark[0] * up
        drawn.append(_rule(y, INK, dashes="5 4"))
        drawn.append(text(WIDTH - RIGHT, y - 5, panel.mark[1], 11, anchor="end"))
    for line in panel.lines:
        places = [(LEFT + at * across, floor - value * up) for at, value in line.points]
        drawn += _line(line, places, floor)
    return drawn


def _line(line: Line, places: Points, floor: float) -> list[str]:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = []
    if line.is_filled and places:
        edges = f"{places[0][0]:.1f},{floor} {points} {places[-1][0]:.1f},{floor}"
        drawn.append(f'<polygon points="{edges}" fill="{line.colour}" fill-opacity="0.18"/>')
    drawn.append(
        f'<polyline points="{points}" fill="none" stroke="{line.colour}" stroke-width="2"'
        f' stroke-linejoin="round"><title>{escape(line.name)}</title></polyline>'
    )
    if line.top and places:
        x, y = min(places, key=lambda place: place[1])
        drawn.append(text(x + 14, y + 1, line.top, 11))
    return drawn


def _rule(y: float, colour: str, dashes: str = "none") -> str:
    return (
        f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{colour}"'
        f' stroke-dasharray="{dashes}"/>'
    )


def _legend(panel: Panel, base: float) -> list[str]:
    """The names of the lines, from the right."""
    drawn, left = [], float(WIDTH - RIGHT)
    for line in reversed(panel.lines):
        left -= 7.2 * len(line.name)
        drawn.append(text(left, base, line.name, 13, colour=SOFT))
        left -= 18
        drawn.append(
            f'<rect x="{left:.1f}" y="{base - 11:.1f}" width="12" height="12" rx="3"'
            f' fill="{line.colour}"/>'
        )
        left -= 18
    return drawn
