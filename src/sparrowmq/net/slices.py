"""Long work on the loop in slices, so that requests are answered meanwhile.

A report of 80,000 queues or a registration of 50,000 topics would hold the loop for a tenth of a
second and more. It works for 4 ms of each turn of the loop instead, a time that all work of one
server shares: ten consoles delay a send no more than one does. Between two slices topics and groups
come and go; a report shows each as it was at its turn.
"""

import asyncio
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar

SLICE_S = 0.004
"""Less than 5 ms, because a slice ends only when its current step ends."""
T = TypeVar("T")


class Slice:
    """One work's share of the loop's time: work until it is over, then pause.

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
    """Divides the time that a server has for such work."""

    def __init__(self) -> None:
        self.active = 0
        """How much of it is under way."""

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
