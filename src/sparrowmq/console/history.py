"""Figures of the last hour and the last day, in a store of bounded size.

```
a series     360 points of 10 s            the last hour
             720 points of 2 min           the last day: mean and largest value of each
```

14 KB per series, and at most 2,000 series: 29 MB. A new series replaces the one that was not read
or written for the longest time. A time without a sample is a gap, not a zero.
"""

import math
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sparrowmq.clock import Clock
from sparrowmq.disk.atomic_file import make_path, replace_path

FINE_MS, FINE_POINTS = 10_000, 360
COARSE_MS, COARSE_POINTS = 120_000, 720
MOST_SERIES = 2_000
_FORMAT = "sparrowmq-console-history-1"


class Ring:
    """The last points of a series, one per time step. NaN where there is none."""

    def __init__(self, step_ms: int, points: int, last: int = 0, values: bytes = b"") -> None:
        self.step_ms = step_ms
        self._last = last
        """The newest step, counted from 1970; 0 before the first value."""
        self._values = array("d", values or [math.nan] * points)

    def put(self, time_ms: int, value: float) -> None:
        """Store the value of a moment, unless it is older than the whole ring."""
        step = time_ms // self.step_ms
        if step <= self._last - len(self._values):
            return
        if step > self._last:
            for each in range(max(self._last + 1, step - len(self._values) + 1), step):
                self._values[each % len(self._values)] = math.nan
            self._last = step
        self._values[step % len(self._values)] = value

    def points(self, now_ms: int) -> Iterator[tuple[int, float]]:
        """Time and value, the oldest first, up to the step before now."""
        end = now_ms // self.step_ms
        for step in range(end - len(self._values) + 1, end + 1):
            held = self._last - len(self._values) < step <= self._last
            yield step * self.step_ms, self._values[step % len(self._values)] if held else math.nan

    @property
    def newest(self) -> tuple[int, float]:
        """Time and value of the last step."""
        return self._last * self.step_ms, self._values[self._last % len(self._values)]

    def state(self) -> tuple[int, bytes]:
        """For the file."""
        return self._last, self._values.tobytes()


class ChartSeries:
    """One figure over time."""

    def __init__(self) -> None:
        self.fine = Ring(FINE_MS, FINE_POINTS)
        self.mean = Ring(COARSE_MS, COARSE_POINTS)
        self.most = Ring(COARSE_MS, COARSE_POINTS)
        self._step, self._sum, self._count, self._most = 0, 0.0, 0, 0.0

    def add(self, time_ms: int, value: float) -> None:
        """Add a sample."""
        self.fine.put(time_ms, value)
        step = time_ms // COARSE_MS
        if step != self._step:
            self._step, self._sum, self._count, self._most = step, 0.0, 0, value
        self._sum, self._count = self._sum + value, self._count + 1
        self._most = max(self._most, value)
        self.mean.put(time_ms, self._sum / self._count)
        self.most.put(time_ms, self._most)


class _SavedSeries(msgspec.Struct, array_like=True, frozen=True):
    rings: tuple[tuple[int, bytes], tuple[int, bytes], tuple[int, bytes]]


class _Saved(msgspec.Struct, frozen=True):
    format: str
    cluster: str
    series: dict[str, _SavedSeries]


class History:
    """All series by name, such as `lag/billing`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._series: OrderedDict[str, ChartSeries] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def add(self, name: str, value: float | None) -> None:
        """Add a sample as of now; None, for a figure that is not available, leaves a gap."""
        if value is None:
            return
        series = self._series.get(name)
        if series is None:
            while len(self._series) >= MOST_SERIES:
                self._series.popitem(last=False)
            series = self._series[name] = ChartSeries()
        self._series.move_to_end(name)
        series.add(self._clock(), float(value))

    def series(self, name: str) -> ChartSeries | None:
        """A series for display; reading it keeps it from being replaced."""
        if name in self._series:
            self._series.move_to_end(name)
        return self._series.get(name)

    def newest(self, name: str, within_ms: int = 120_000) -> float | None:
        """The last value, unless it is old."""
        series = self._series.get(name)
        if series is None:
            return None
        time_ms, value = series.fine.newest
        is_old = self._clock() - time_ms > within_ms
        return None if is_old or math.isnan(value) else value

    # ---- the file

    def encoded(self, cluster: str) -> bytes:
        """The content of the file."""
        saved = {
            name: _SavedSeries((each.fine.state(), each.mean.state(), each.most.state()))
            for name, each in self._series.items()
        }
        return msgspec.msgpack.encode(_Saved(_FORMAT, cluster, saved))

    def load(self, path: Path, cluster: str) -> str:
        """Continue with the series in a file. A file that is broken, or of another cluster, is put
        aside; the returned text says so."""
        if not path.exists():
            return ""
        try:
            saved = msgspec.msgpack.decode(path.read_bytes(), type=_Saved)
            if (saved.format, saved.cluster) != (_FORMAT, cluster):
                raise ValueError(f"it belongs to cluster {saved.cluster}")
            loaded = {name: _restored(each) for name, each in saved.series.items()}
        except (msgspec.DecodeError, ValueError) as error:
            aside = path.with_suffix(".aside")
            path.replace(aside)
            return f"the history in {path} was put aside as {aside.name}: {error}"
        self._series.update(loaded)
        return ""


def _restored(saved: _SavedSeries) -> ChartSeries:
    series = ChartSeries()
    fine, mean, most = saved.rings
    series.fine = _ring(FINE_MS, FINE_POINTS, fine)
    series.mean = _ring(COARSE_MS, COARSE_POINTS, mean)
    series.most = _ring(COARSE_MS, COARSE_POINTS, most)
    return series


def _ring(step_ms: int, points: int, state: tuple[int, bytes]) -> Ring:
    last, values = state
    if len(values) != points * 8:
        raise ValueError(f"a ring has {len(values)} bytes, must be {points * 8}")
    return Ring(step_ms, points, last, values)


def write_file(path: Path, content: bytes) -> None:
    """Replace a file: a crash or a power cut leaves the old or the new one. Raises OSError."""
    make_path(path.parent)
    replace_path(path, content)


@dataclass(frozen=True, slots=True)
class ChartSpan:
    """A time span that a chart shows."""

    name: str
    label: str
    step_ms: int
    points: int


HOUR = ChartSpan("1h", "last hour", FINE_MS, FINE_POINTS)
DAY = ChartSpan("24h", "last 24 hours", COARSE_MS, COARSE_POINTS)
SPANS = {span.name: span for span in (HOUR, DAY)}
