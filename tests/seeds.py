"""Seeds and crash points: a few in every run, all of them over a run and a run with --slow."""

from collections.abc import Iterable
from typing import Any

import pytest

FEW = 6
"""Enough to see that the test works; looking for rare cases is what --slow is for."""


CRASH_STEPS = (
    pytest.param(7, id="every 7th call"),
    pytest.param(1, id="every call", marks=pytest.mark.slow),
)
"""How far apart the calls are that a test crashes at, for `parametrize`."""


def seeds(count: int, few: int = FEW) -> list[Any]:
    """The seeds 0 to count - 1 for `parametrize`; those from few on are slow tests."""
    return in_part(range(count), few)


def in_part(values: Iterable[object], few: int = FEW) -> list[Any]:
    """All values for `parametrize`; those after the first few are slow tests."""
    marks = [pytest.mark.slow]
    return [pytest.param(value, marks=marks * (at >= few)) for at, value in enumerate(values)]
