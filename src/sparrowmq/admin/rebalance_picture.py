"""Simulated rebalances as a picture: owners of every queue over time, and members × queues.

```
panel of a strategy   AVG                                 4 moves · skew 1 · pause 0.1 s …
                      queue 0  ▇▇▇▇1▇▇▇▇|▇▇▇▇▇▇▇▇▇         a row per queue, an event is a line
                      queue 1  ▇▇▇▇1▇▇▇▇|  ▇▇▇2▇▇▇         a gap: no member begins its messages
                      member 1 ■ □                         □ given up
                      member 2   ▣                         ▣ taken
```

SVG without style attributes, style sheets or scripts: a page with a strict content security policy
may embed it. It has its own card as a background, so that it is readable on light and dark pages,
and every part has a class, by which a page can restyle it. A number in each bar names its owner,
since colours repeat after ten members.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from sparrowmq.admin.rebalance_simulation import RebalanceSimulation, SimulatedStep
from sparrowmq.protocol.message import MessageQueue

_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#8a6fd1",
    "#b8a500",
    "#7f8c99",
    "#a0623a",
)
_LIGHT_TEXT_ON = frozenset({"#0072b2", "#d55e00", "#8a6fd1", "#a0623a", "#009e73"})
_CARD, _INK, _FAINT, _LINE, _GAP = "#ffffff", "#1b1f24", "#57606a", "#d0d7de", "#fbd5cf"
_ALARM = "#b42318"

_EDGE = 24
_PANEL_WIDTH = 640
_PANEL_GAP = 40
_STEADY = 2.0
"""Width of the time between events, as a multiple of the window in which queues move."""
_TALLEST_CHART = 460
_LONGEST_NAME = 22


@dataclass(frozen=True, slots=True)
class _Scene:
    """What all panels share: the order of queues and members, and the time scale."""

    queues: tuple[MessageQueue, ...]
    members: tuple[str, ...]
    windows_s: tuple[float, ...]
    """The longest pause after each event under any strategy."""
    row: float
    label: float
    chart: float

    def colour(self, member: str) -> str:
        return _COLOURS[self.members.index(member) % len(_COLOURS)]

    def number(self, member: str) -> str:
        return str(self.members.index(member) + 1)

    @property
    def unit(self) -> float:
        """The width of one window."""
        count = len(self.windows_s)
        return self.chart / (count * (1 + _STEADY) + _STEADY)

    def event_x(self, index: int) -> float:
        """Where an event happens."""
        return self.label + self.unit * (_STEADY + index * (1 + _STEADY))

    def pause_width(self, index: int, pause_s: float) -> float:
        """How wide a pause is drawn; the shortest one can still be seen."""
        window_s = self.windows_s[index]
        return max(3.0, self.unit * pause_s / window_s) if pause_s and window_s else 0.0

    @property
    def timeline_height(self) -> float:
        return self.row * len(self.queues)

    @property
    def matrix_height(self) -> float:
        return _matrix_row(self.members) * len(self.members)

    @property
    def panel_height(self) -> float:
        return 96 + self.timeline_height + 46 + self.matrix_height


def draw(simulations: Sequence[RebalanceSimulation], title: str) -> str:
    """An SVG document with a panel for each strategy. Raises ValueError if there is none."""
    if not simulations:
        raise ValueError("there is no simulation to draw")
    scene = _scene(simulations)
    columns = 1 if len(simulations) == 1 else 2
    rows = -(-len(simulations) // columns)
    width = 2 * _EDGE + columns * _PANEL_WIDTH + (columns - 1) * _PANEL_GAP
    top = _EDGE + 62
    height = top + rows * (scene.panel_height + _PANEL_GAP) - _PANEL_GAP + 50
    parts = list(_opening(width, height, title, simulations))
    for index, simulation in enumerate(simulations):
        x = _EDGE + index % columns * (_PANEL_WIDTH + _PANEL_GAP)
        y = top + index // columns * (scene.panel_height + _PANEL_GAP)
        parts.append(f'<g transform="translate({x} {_n(y)})" class="rb-panel">')
        parts += _panel(scene, simulation)
        parts.append("</g>")
    parts += _legend(columns, height)
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _scene(simulations: Sequence[RebalanceSimulation]) -> _Scene:
    queues: set[MessageQueue] = set()
    members: dict[str, None] = {}
    for each in simulations:
        queues |= each.owners.keys()
        members |= dict.fromkeys(each.members)
        for step in each.steps:
            queues |= step.owners.keys()
            members |= dict.fromkeys(step.members)
    steps = zip(*(each.steps for each in simulations), strict=True)
    windows_s = tuple(max(step.pause_s for step in column) for column in steps)
    row = min(22.0, max(5.0, _TALLEST_CHART / len(queues)))
    texts = [_queue_text(queue, queues) for queue in queues]
    names = [f"{len(members)} {_short(member)}" for member in members]
    label = max(6.4 * max(map(len, (*texts, *names))) + 12, 48.0)
    return _Scene(
        queues=tuple(sorted(queues)),
        members=tuple(members),
        windows_s=windows_s,
        row=row,
        label=label,
        chart=_PANEL_WIDTH - label - 64,
    )


def _opening(
    width: float, height: float, title: str, simulations: Sequence[RebalanceSimulation]
) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}"'
        f' width="{_n(width)}" height="{_n(height)}" role="img"'
        ' font-family="system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"'
        f' font-size="12" fill="{_INK}" class="rb">'
    )
    yield f"<title>{escape(title)}</title>"
    yield f"<desc>{escape('; '.join(_summary(each) for each in simulations))}</desc>"
    yield f'<rect width="100%" height="100%" rx="10" fill="{_CARD}" class="rb-card"/>'
    yield _text(_EDGE, _EDGE + 20, title, size=20, weight=600)
    events = " · then ".join(str(step.event) for step in simulations[0].steps)
    yield _text(_EDGE, _EDGE + 42, events or "as it is now", size=13, fill=_FAINT, kind="rb-faint")


def _summary(each: RebalanceSimulation) -> str:
    return f"{each.strategy}: {_figures(each)}"


def _figures(each: RebalanceSimulation) -> str:
    if not each.steps:
        return f"skew {each.skew:,}"
    pause = f"pause {seconds(each.pause_s)}, at most {seconds(each.longest_s)}"
    moved = f"{each.moves:,} move{'s' * (each.moves != 1)}"
    return (
        f"{moved} · skew {each.skew:,} · {pause} · {each.repeated:,} repeated"
        f" · spike {each.spike:,}"
    )


def seconds(value: float) -> str:
    """`0.1 s`, `15 s`."""
    return f"{value:.0f} s" if value >= 10 or not value else f"{value:.2g} s"


# ---- a panel


def _panel(scene: _Scene, simulation: RebalanceSimulation) -> Iterator[str]:
    in_use = " (in use)" if simulation.is_in_use else ""
    yield _text(0, 14, simulation.strategy + in_use, size=15, weight=600)
    yield _text(0, 33, _figures(simulation), size=12, fill=_FAINT, kind="rb-faint")
    yield '<g transform="translate(0 72)">'
    yield from _timeline(scene, simulation)
    yield "</g>"
    yield f'<g transform="translate(0 {_n(72 + scene.timeline_height + 46)})">'
    yield from _matrix(scene, simulation)
    yield "</g>"


def _timeline(scene: _Scene, simulation: RebalanceSimulation) -> Iterator[str]:
    every = max(1, round(11 / scene.row + 0.49))
    rows = [_row(scene, simulation, queue) for queue in scene.queues]
    for index, (queue, bars) in enumerate(zip(scene.queues, rows, strict=True)):
        y = scene.row * index
        if index % every == 0:
            text, middle = _queue_text(queue, scene.queues), y + scene.row / 2 + 3.5
            yield _text(
                scene.label - 8, middle, text, size=10, fill=_FAINT, anchor="end", kind="rb-faint"
            )
        for bar in bars:
            yield _bar(scene, bar, y)
    yield from _numbers(scene, rows)
    for index, step in enumerate(simulation.steps):
        yield from _event(scene, index, step)


@dataclass(frozen=True, slots=True)
class _Bar:
    """A queue under one owner; None while no member starts on its messages."""

    owner: str | None
    begin: float
    end: float


def _row(scene: _Scene, simulation: RebalanceSimulation, queue: MessageQueue) -> list[_Bar]:
    """A queue from left to right: a bar for each owner, a gap for each pause."""
    bars: list[_Bar] = []
    owner, begin = simulation.owners.get(queue), scene.label
    for index, step in enumerate(simulation.steps):
        after = step.owners.get(queue)
        if after == owner:
            continue
        x = scene.event_x(index)
        pause_s = next((each.pause_s for each in step.moves if each.queue == queue), 0.0)
        wide = scene.pause_width(index, pause_s)
        if owner is not None:
            bars.append(_Bar(owner, begin, x))
        if wide:
            bars.append(_Bar(None, x, x + wide))
        owner, begin = after, x + wide
    if owner is not None:
        bars.append(_Bar(owner, begin, scene.label + scene.chart))
    return bars


def _bar(scene: _Scene, bar: _Bar, y: float) -> str:
    tall = scene.row - (2 if scene.row > 9 else 0.8)
    box = f'x="{_n(bar.begin)}" y="{_n(y)}" width="{_n(bar.end - bar.begin)}" height="{_n(tall)}"'
    if bar.owner is None:
        line = f' stroke="{_ALARM}" stroke-width="0.6"' if scene.row > 9 else ""
        return f'<rect {box} fill="{_GAP}"{line} class="rb-gap"/>'
    return f'<rect {box} fill="{scene.colour(bar.owner)}" class="rb-bar"/>'


def _numbers(scene: _Scene, rows: Sequence[Sequence[_Bar]]) -> Iterator[str]:
    """The number of each bar's owner; if rows are low, one for all bars of a block."""
    top: dict[_Bar, int] = {}
    for index, bars in enumerate([*rows, ()]):
        ended = [bar for bar in top if bar not in bars or scene.row >= _OWN_NUMBER]
        for bar in ended:
            first = top.pop(bar)
            height = scene.row * (index - first)
            if height >= 8 and bar.owner is not None and bar.end - bar.begin > 14:
                yield _number(scene, bar.owner, bar.begin + 5, scene.row * first + height / 2)
        for bar in bars:
            top.setdefault(bar, index)


_OWN_NUMBER = 9.0
"""The height of rows from which each has its own number."""


def _number(scene: _Scene, owner: str, x: float, middle: float) -> str:
    ink = "#ffffff" if scene.colour(owner) in _LIGHT_TEXT_ON else "#1b1f24"
    return _text(x, middle + 3, scene.number(owner), size=11, fill=ink, weight=600)


def _event(scene: _Scene, index: int, step: SimulatedStep) -> Iterator[str]:
    x, bottom = scene.event_x(index), scene.timeline_height
    yield (
        f'<line x1="{_n(x)}" y1="-8" x2="{_n(x)}" y2="{_n(bottom + 4)}" stroke="{_INK}"'
        ' stroke-width="1.2" class="rb-event"/>'
    )
    yield _text(x, -14, str(step.event), size=11, weight=600, anchor="middle")
    window_s = scene.windows_s[index]
    if not window_s:
        return
    end = x + scene.unit
    yield (
        f'<path d="M{_n(x)} {_n(bottom + 8)}H{_n(end)}M{_n(end)} {_n(bottom + 5)}v6" fill="none"'
        f' stroke="{_FAINT}" stroke-width="1" class="rb-scale"/>'
    )
    yield _text(
        end, bottom + 21, seconds(window_s), size=10, fill=_FAINT, anchor="middle", kind="rb-faint"
    )


# ---- members × queues


def _matrix_row(members: Sequence[str]) -> float:
    return 16.0 if len(members) <= 12 else max(8.0, 192 / len(members))


def _matrix(scene: _Scene, simulation: RebalanceSimulation) -> Iterator[str]:
    before = simulation.owners
    last = simulation.steps[-1] if simulation.steps else None
    after = last.owners if last is not None else before
    alive = last.members if last is not None else simulation.members
    tall, wide = _matrix_row(scene.members), scene.chart / len(scene.queues)
    for index, member in enumerate(scene.members):
        y = tall * index
        middle = y + tall / 2 + 3.5
        is_gone = member not in alive
        name = f"{scene.number(member)} {_short(member)}"
        yield _text(
            scene.label - 8,
            middle,
            name,
            size=min(11.0, tall),
            fill=_FAINT if is_gone else _INK,
            anchor="end",
        )
        yield (
            f'<rect x="{_n(scene.label)}" y="{_n(y + 1)}" width="{_n(scene.chart)}"'
            f' height="{_n(tall - 2)}" fill="{_LINE}" fill-opacity="0.35" class="rb-none"/>'
        )
        for column, queue in enumerate(scene.queues):
            x = scene.label + wide * column
            yield from _cell(scene, member, queue, before, after, (x, y, wide, tall))
        counts = [_count(before, member), _count(after, member)]
        text = "gone" if is_gone else " → ".join(dict.fromkeys(map(str, counts)))
        kind = "rb-faint"
        right = scene.label + scene.chart + 8
        yield _text(right, middle, text, size=11, fill=_FAINT, kind=kind)


def _cell(
    scene: _Scene,
    member: str,
    queue: MessageQueue,
    before: Mapping[MessageQueue, str],
    after: Mapping[MessageQueue, str],
    place: tuple[float, float, float, float],
) -> Iterator[str]:
    x, y, wide, tall = place
    inset = 1.0 if wide > 6 else 0.4
    box = (
        f'x="{_n(x + inset)}" y="{_n(y + 1)}" width="{_n(wide - 2 * inset)}"'
        f' height="{_n(tall - 2)}"'
    )
    had, has = before.get(queue) == member, after.get(queue) == member
    colour = scene.colour(member)
    if has:
        yield f'<rect {box} fill="{colour}" class="rb-has"/>'
        if not had:
            size = max(1.2, min(3.0, wide / 4))
            yield (
                f'<circle cx="{_n(x + wide / 2)}" cy="{_n(y + tall / 2)}" r="{_n(size)}"'
                f' fill="{_CARD}" class="rb-taken"/>'
            )
    elif had:
        yield (
            f'<rect {box} fill="none" stroke="{colour}" stroke-width="1.2"'
            ' stroke-dasharray="2 1.5" class="rb-gave"/>'
        )


def _count(owners: Mapping[MessageQueue, str], member: str) -> int:
    return sum(owner == member for owner in owners.values())


# ---- texts


_LEGEND = (
    "bars: the owner of each queue, by number; red: no member begins its messages",
    "cells: ● taken; dashed: given up",
)


def _legend(columns: int, height: float) -> Iterator[str]:
    lines = [" · ".join(_LEGEND)] if columns > 1 else _LEGEND
    for index, line in enumerate(reversed(lines)):
        y = height - 16 - 15 * index
        yield _text(_EDGE, y, line, size=11, fill=_FAINT, kind="rb-faint")


def _queue_text(queue: MessageQueue, queues: Sequence[MessageQueue] | set[MessageQueue]) -> str:
    """The shortest text that distinguishes the queues."""
    has_topics = len({each.topic for each in queues}) > 1
    return f"{queue.topic} {queue.place}" if has_topics else queue.place


def _short(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def _text(
    x: float,
    y: float,
    text: str,
    *,
    size: float,
    fill: str = "",
    weight: int = 0,
    anchor: str = "",
    kind: str = "",
) -> str:
    more = f' font-weight="{weight}"' if weight else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    more += f' fill="{fill}"' if fill else ""
    more += f' class="{kind}"' if kind else ""
    place = f'x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}"'
    return f"<text {place}{more}>{escape(text)}</text>"


def _n(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")
