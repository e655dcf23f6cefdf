"""A stacked bar chart as SVG."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 118, 96, 104, 40
BAR, GAP = 30, 16
COLOURS = ("#2f6f8f", "#f2a541", "#8ab17d", "#c8553d")
FONTS = "system-ui, Helvetica, Arial, DejaVu Sans, sans-serif"
INK, SOFT, LINE, PAPER = "#22303a", "#6b7a86", "#e3e8ec", "#fdfcf9"


def bar_chart(
    title: str, subtitle: str, parts: Sequence[str], bars: Mapping[str, Sequence[float]]
) -> str:
    """One bar per row, scaled to the largest total; `parts` names the values of each bar."""
    height = TOP + len(bars) * (BAR + GAP) + BOTTOM
    most = max((sum(values) for values in bars.values()), default=0) or 1
    scale = (WIDTH - LEFT - RIGHT) / most
    rows = [
        _row(name, values, TOP + place * (BAR + GAP), scale)
        for place, (name, values) in enumerate(bars.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" font-family="{FONTS}">',
            f'<rect width="{WIDTH}" height="{height}" rx="12" fill="{PAPER}"/>',
            _text(28, 40, title, size=20, weight=600),
            _text(28, 62, subtitle, size=13, colour=SOFT),
            *_legend(parts),
            *_grid(most, scale, height),
            *rows,
            "</svg>\n",
        ]
    )


def _row(name: str, values: Sequence[float], top: int, scale: float) -> str:
    middle = top + BAR / 2 + 5
    drawn = [_text(LEFT - 12, middle, name, anchor="end")]
    left = float(LEFT)
    for number, value in enumerate(values):
        width = value * scale
        colour = COLOURS[number % len(COLOURS)]
        drawn.append(
            f'<rect x="{left:.1f}" y="{top}" width="{max(0.0, width - 1.5):.1f}" height="{BAR}"'
            f' rx="4" fill="{colour}"><title>{escape(name)}: {value:,.0f}</title></rect>'
        )
        left += width
    drawn.append(_text(left + 8, middle, f"{sum(values):,.0f}", weight=600))
    return "".join(drawn)


def _legend(parts: Sequence[str]) -> list[str]:
    drawn, left = [], float(WIDTH - 28)
    for number, part in reversed(list(enumerate(parts))):
        left -= 7.4 * len(part)
        drawn.append(_text(left, 40, part, size=13, colour=SOFT))
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
        drawn.append(_text(left, height - 16, f"{value:,.0f}", 11, colour=SOFT, anchor="middle"))
        value += step
    return drawn


def _text(
    left: float,
    base: float,
    text: str,
    size: int = 14,
    *,
    weight: int = 400,
    colour: str = INK,
    anchor: str = "start",
) -> str:
    return (
        f'<text x="{left:.1f}" y="{base:.1f}" font-size="{size}" font-weight="{weight}"'
        f' fill="{colour}" text-anchor="{anchor}">{escape(text)}</text>'
    )
