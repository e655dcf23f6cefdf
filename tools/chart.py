"""A grouped bar chart as SVG: a row of bars side by side for each name."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 118, 96, 104, 40
BAR, GAP = 17, 18
COLOURS = ("#2f6f8f", "#f2a541", "#8ab17d", "#c8553d")
FONTS = "system-ui, Helvetica, Arial, DejaVu Sans, sans-serif"
INK, SOFT, LINE, PAPER = "#22303a", "#6b7a86", "#e3e8ec", "#fdfcf9"


def bar_chart(
    title: str, subtitle: str, series: Sequence[str], groups: Mapping[str, Sequence[float]]
) -> str:
    """One group of bars a row, the longest bar as wide as the page; `series` names the bars."""
    row = len(series) * BAR + GAP
    height = TOP + len(groups) * row + BOTTOM
    most = max((value for values in groups.values() for value in values), default=0) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    rows = [
        _row(name, values, TOP + place * row, scale)
        for place, (name, values) in enumerate(groups.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" font-family="{FONTS}">',
            f'<rect width="{WIDTH}" height="{height}" rx="12" fill="{PAPER}"/>',
            text(28, 40, title, size=20, weight=600),
            text(28, 62, subtitle, size=13, colour=SOFT),
            *_legend(series),
            *_grid(most, scale, height),
            *rows,
            "</svg>\n",
        ]
    )


def _row(name: str, values: Sequence[float], top: int, scale: float) -> str:
    drawn = [text(LEFT - 12, top + len(values) * BAR / 2 + 5, name, anchor="end")]
    for number, value in enumerate(values):
        colour, y = COLOURS[number % len(COLOURS)], top + number * BAR
        width = value * scale
        drawn.append(
            f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR - 2}"'
            f' rx="3" fill="{colour}"><title>{escape(name)}: {value:,.0f}</title></rect>'
        )
        drawn.append(text(LEFT + width + 8, y + BAR - 5, f"{value:,.0f}", 12, weight=600))
    return "".join(drawn)


def _legend(series: Sequence[str]) -> list[str]:
    drawn, left = [], float(WIDTH - 28)
    for number, each in reversed(list(enumerate(series))):
        left -= 7.4 * len(each)
        drawn.append(text(left, 40, each, size=13, colour=SOFT))
        left -= 18
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(f'<rect x="{left:.1f}" y="29" width="12" height="12" rx="3" fill="{colour}"/>')
        left -= 18
    return drawn


def _grid(most: float, scale: float, height: int) -> list[str]:
    """Grid lines at round values."""
    step = 10.0 ** (len(str(int(most))) - 1)
    step = step if most / step >= 3 else step / 2 if most / step >= 1.5 else step / 5
    drawn, value = [], 0.0
    while value <= most:
        left = LEFT + value * scale
        drawn.append(
            f'<line x1="{left:.1f}" y1="{TOP - 12}" x2="{left:.1f}" y2="{height - BOTTOM}"'
            f' stroke="{LINE}"/>'
        )
        drawn.append(text(left, height - 16, f"{value:,.0f}", 11, colour=SOFT, anchor="middle"))
        value += step
    return drawn


def text(
    left: float,
    base: float,
    words: str,
    size: int = 14,
    *,
    weight: int = 400,
    colour: str = INK,
    anchor: str = "start",
) -> str:
    """A line of text that begins, ends or has its middle at `left`."""
    return (
        f'<text x="{left:.1f}" y="{base:.1f}" font-size="{size}" font-weight="{weight}"'
        f' fill="{colour}" text-anchor="{anchor}">{escape(words)}</text>'
    )
