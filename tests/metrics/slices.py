"""How long work runs before it yields to other tasks, counted in calls and not in time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from sparrowmq.metrics.text import LoopSlices

A_SLICE = 10_000
"""Calls that take a few milliseconds at most."""


class Slices:
    """Calls of functions, of Python and C, between two calls of `Pace.rest`."""

    def __init__(self) -> None:
        self.count = 0
        self.longest = 0
        self._calls = 0

    def call(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self._calls += 1

    def end(self) -> None:
        self.longest = max(self.longest, self._calls)
        self.count += 1
        self._calls = 0


@contextmanager
def counted_slices() -> Iterator[Slices]:
    """Count while the block runs."""
    slices = Slices()

    async def rest(pace: LoopSlices) -> None:
        slices.end()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopSlices, "rest", rest)
        before = sys.getprofile()
        sys.setprofile(slices.call)
        try:
            yield slices
        finally:
            sys.setprofile(before)
            slices.end()
