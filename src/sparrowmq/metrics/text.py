"""The text that Prometheus reads, generated in slices: a page may have 60,000 lines.

Lines are formatted with one template per metric. prometheus-client's generator takes thirty times
as long, and would block an event loop for a second.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, islice
from typing import TypeVar

from sparrowmq.metrics.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SLICE_S = 0.005
_LINES_AT_ONCE = 200

T = TypeVar("T")
Value = int | float
Row = tuple[Sequence[str], Value]
"""The values of a family's labels, in the family's order, and the metric's value."""


class LoopSlices:
    """Lets long work on an event loop yield to other tasks regularly."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._began_s = self._loop.time()

    async def rest(self) -> None:
        """Let other tasks run if this slice has taken 5 ms."""
        if self._loop.time() - self._began_s >= _SLICE_S:
            await asyncio.sleep(0)
            self._began_s = self._loop.time()


class Histogram:
    """Counts of values by their size."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Counts per bucket, not cumulative; the last one is for values above all bounds."""
        self.total: Value = 0

    def observe(self, value: Value) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class MetricsText:
    """The text of one page. Every line has the labels in `common`."""

    def __init__(self, common: Mapping[str, str]) -> None:
        self.parts: list[bytes] = []
        self._common = "".join(f'{name}="{_escaped(text)}",' for name, text in common.items())
        self.pace = LoopSlices()

    async def add(self, family: Family, rows: Iterable[Row]) -> None:
        """Add a counter or gauge, under all its names. Rows are taken in slices."""
        if family.earlier_name:
            rows = await self._collected(rows)
        for name in family.names:
            self._head(name, family)
            await self._lines(self._template(name, family.labels), rows)

    async def add_histograms(
        self, family: Family, rows: Iterable[tuple[Sequence[str], Histogram]]
    ) -> None:
        """Add a histogram, under all its names."""
        if family.earlier_name:
            rows = await self._collected(rows)
        bounds = [*map(str, family.buckets), "+Inf"]
        for name in family.names:
            self._head(name, family)
            bucket = self._template(f"{name}_bucket", (*family.labels, "le"))
            count = self._template(f"{name}_count", family.labels)
            total = self._template(f"{name}_sum", family.labels)
            for labels, histogram in rows:
                sums = accumulate(histogram.counts)
                lines = (((*labels, le), each) for le, each in zip(bounds, sums, strict=True))
                await self._lines(bucket, lines)
                await self._lines(count, [(labels, sum(histogram.counts))])
                await self._lines(total, [(labels, histogram.total)])

    async def _collected(self, rows: Iterable[T]) -> list[T]:
        found: list[T] = []
        left = iter(rows)
        while some := list(islice(left, _LINES_AT_ONCE)):
            found += some
            await self.pace.rest()
        return found

    def _head(self, name: str, family: Family) -> None:
        self.parts.append(f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n".encode())

    def _template(self, name: str, labels: Sequence[str]) -> str:
        pairs = self._common.replace("%", "%%") + ",".join(f'{label}="%s"' for label in labels)
        return f"{name}{{{pairs.rstrip(',')}}} %s\n"

    async def _lines(self, template: str, rows: Iterable[Row]) -> None:
        left = iter(rows)
        while some := list(islice(left, _LINES_AT_ONCE)):
            lines = [template % (*map(_escaped, labels), value) for labels, value in some]
            self.parts.append("".join(lines).encode())
            await self.pace.rest()


@lru_cache(maxsize=4096)
def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
