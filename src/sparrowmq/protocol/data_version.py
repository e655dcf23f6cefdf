"""Versions of the tables that brokers keep and name servers copy."""

from typing import Self

from sparrowmq.protocol.body import Body


class DataVersion(Body, frozen=True, kw_only=True):
    """Two tables are the same if their versions are."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> Self:
        """The version after a change made at `now_ms`."""
        return type(self)(state_version=state_version, timestamp=now_ms, counter=self.counter + 1)

    def is_newer_than(self, other: Self) -> bool:
        """Apache's order: state version, then counter, then time."""
        return self._order > other._order

    @property
    def _order(self) -> tuple[int, int, int]:
        return self.state_version, self.counter, self.timestamp
