"""Paths of the simulated network: which hosts reach each other, and how long that takes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrowmq.testing.host import Host

LOOPBACK_S = 0.00002


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions on every path for which no latency was set."""

    latency_s: tuple[float, float] = (0.0001, 0.002)
    """Range of a segment's latency, drawn uniformly; bytes never overtake each other."""
    whole: float = 0.5
    """Probability that a write or a read is not split into pieces: 1 never splits, 0 always."""
    window_bytes: int = 128 * 1024
    """How much of one direction the two kernels buffer before the writer has to wait."""
    give_up_s: float = 924.6
    """When unacknowledged bytes break a connection (Linux: tcp_retries2 = 15)."""


class Paths:
    """Latencies and cuts between hosts. A cut is not reported: bytes just do not arrive."""

    def __init__(
        self, rng: random.Random, conditions: Conditions, opened: Callable[[], object]
    ) -> None:
        self._rng = rng
        self._conditions = conditions
        self._opened = opened
        self._cuts: set[tuple[Host, Host]] = set()
        self._latencies: dict[tuple[Host, Host], tuple[float, float]] = {}

    def latency_s(self, source: Host, target: Host) -> float:
        """Draw how long the next segment takes."""
        if source is target:
            return LOOPBACK_S
        shortest, longest = self._latencies.get((source, target), self._conditions.latency_s)
        return self._rng.uniform(shortest, longest)

    def set_latency(self, one: Host, other: Host, shortest_s: float, longest_s: float) -> None:
        """Set the latency of the path between two hosts, in both directions."""
        for path in ((one, other), (other, one)):
            self._latencies[path] = (shortest_s, longest_s)

    def is_open(self, source: Host, target: Host) -> bool:
        return source.is_up and target.is_up and (source, target) not in self._cuts

    def cut(self, source: Host, target: Host) -> None:
        """From now on nothing gets from source to target; the other direction is not affected.

        Bytes on a cut path wait and arrive after `heal`. Acknowledgements are not simulated:
        a connection whose return path is cut still delivers.
        """
        self._cuts.add((source, target))

    def partition(self, *groups: Iterable[Host]) -> None:
        """Cut every path between hosts of different groups, in both directions."""
        sides = [list(group) for group in groups]
        for number, side in enumerate(sides):
            others = [host for other in sides[:number] + sides[number + 1 :] for host in other]
            for source in side:
                for target in others:
                    self.cut(source, target)

    def heal(self) -> None:
        """Open every path again; bytes that were held back continue."""
        self._cuts.clear()
        self._opened()
