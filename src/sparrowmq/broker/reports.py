"""Work on every queue or group of a broker, without stopping it: reports, and copies of tables.

A report of 80,000 queues takes a second to compute. It works in slices: 5 ms of each turn of the
loop, shared by all running reports, so that ten consoles delay a send no more than one does.
Between two slices topics and groups come and go; a report shows each as it was at its turn. Data
that has to come from the device is read by workers.
"""

import asyncio
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from sparrowmq.store.store import ColdTime

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker

SLICE_S = 0.004
"""Less than 5 ms, because a slice ends only when its current step ends."""
_COLD_AT_ONCE = 256
"""Store times that a worker reads in one go: about 15 ms if they are cached."""
Place = tuple[str, int, int]
"""(topic, queue, offset)."""
T = TypeVar("T")


class Slice:
    """A report's share of the loop's time: work until it is over, then pause.

    if turn.is_over:
        await turn.pause()
    """

    __slots__ = ("_ends_s", "_loop", "_slices")

    def __init__(self, slices: "Slices") -> None:
        self._slices = slices
        self._loop = asyncio.get_running_loop()
        self._begin()

    def _begin(self) -> None:
        self._ends_s = self._loop.time() + SLICE_S / self._slices.active

    @property
    def is_over(self) -> bool:
        """Whether the slice's time is used up."""
        return self._loop.time() >= self._ends_s

    async def pause(self) -> None:
        """Let everything that is ready run, then begin the next slice."""
        await asyncio.sleep(0)
        self._begin()


class Slices:
    """Divides the time that a broker has for reports."""

    def __init__(self) -> None:
        self.active = 0
        """The number of running reports."""

    @contextmanager
    def begin(self) -> Iterator[Slice]:
        """Take part while the block runs."""
        self.active += 1
        try:
            yield Slice(self)
        finally:
            self.active -= 1


async def in_slices(work: Generator[None, None, T], slices: Slices) -> T:
    """Do work that yields wherever the loop may run; returns its result."""
    with slices.begin() as turn:
        while True:
            try:
                next(work)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # T, says the generator's type
            if turn.is_over:
                await turn.pause()


async def stored_times(broker: "Broker", places: Sequence[Place], turn: Slice) -> list[int]:
    """When the messages at these places were stored; -1 for each that is not there."""
    times: list[int] = []
    cold: list[ColdTime] = []
    cold_at: list[int] = []
    for place in places:
        time = broker.store.time_at(*place)
        if isinstance(time, ColdTime):
            cold_at.append(len(times))
            cold.append(time)
            time = -1
        times.append(time)
        if turn.is_over:
            await turn.pause()
    for first in range(0, len(cold), _COLD_AT_ONCE):
        part = cold[first : first + _COLD_AT_ONCE]
        loaded = await broker.workers.run(broker.store.load_times, part)
        for at, time in zip(cold_at[first:], loaded, strict=False):
            times[at] = time
    return times
