"""Limits on the memory that peers make a server hold: in total, and for how long.

A frame may be 16 MiB long and arrive in any number of pieces, and a reply of 4 MiB waits until its
peer reads it. For one connection that is little; thousands of connections would take all of the
machine's memory. So the total is limited.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from sparrowmq.net.connection import Connection

_FREED_PART = 8
"""1/8 of the limit is freed at once: otherwise many small connections could keep the loop busy, as
each byte over the limit means going through all of them."""


@dataclass(slots=True)
class _Held:
    since_s: float
    size_bytes: int = 0


class MemoryBudget:
    """The memory of one kind, named `what` in the log, that a server's connections hold.

    `measure` returns how much a connection holds now, for memory that shrinks unnoticed.
    """

    def __init__(
        self,
        limit_bytes: int,
        what: str,
        log: logging.Logger,
        measure: Callable[[Connection], int] | None = None,
    ) -> None:
        self.total_bytes = 0
        self._limit_bytes = limit_bytes
        self._what = what
        self._log = log
        self._measure = measure
        self._held: dict[Connection, _Held] = {}

    def note(self, connection: Connection, size_bytes: int) -> None:
        """Note how much a connection holds, 0 for nothing. May close connections, even this one."""
        if not size_bytes or not connection.is_open:
            self.forget(connection)
            return
        held = self._held.get(connection)
        if held is None:
            held = self._held[connection] = _Held(_now_s())
        self.total_bytes += size_bytes - held.size_bytes
        held.size_bytes = size_bytes
        if self.total_bytes > self._limit_bytes:
            self._make_room()

    def forget(self, connection: Connection) -> None:
        """Note that a connection no longer holds anything."""
        held = self._held.pop(connection, None)
        if held is not None:
            self.total_bytes -= held.size_bytes

    def close_older_than(self, allowed_s: float, *, most: int) -> bool:
        """Close connections that have held memory for longer than this, `most` in one call; returns
        whether there were any."""
        before_s = _now_s() - allowed_s
        older = (each for each in self._held.items() if each[1].since_s < before_s)
        closed = tuple(islice(older, most))
        for connection, held in closed:
            text = f"{held.size_bytes} bytes of {self._what} for more than {allowed_s:g} s"
            self._close(connection, text)
        return bool(closed)

    def _make_room(self) -> None:
        """Close the connections that cost most, in bytes times seconds: a large frame that arrives
        quickly costs little, one that stalls costs more and more."""
        if self._measure is not None:
            self._measure_all(self._measure)
        now_s, limit_bytes = _now_s(), self._limit_bytes
        if self.total_bytes <= limit_bytes:
            return
        by_cost = sorted(
            self._held.items(),
            key=lambda item: (item[1].size_bytes * (now_s - item[1].since_s), item[1].size_bytes),
        )
        while by_cost and self.total_bytes > limit_bytes - limit_bytes // _FREED_PART:
            connection, held = by_cost.pop()
            text = f"{held.size_bytes} bytes of {self._what} for {now_s - held.since_s:.1f} s"
            self._close(connection, f"{text}, and all together may be {limit_bytes} bytes")

    def _measure_all(self, measure: Callable[[Connection], int]) -> None:
        for connection, held in self._held.items():
            size_bytes = measure(connection)
            self.total_bytes += size_bytes - held.size_bytes
            held.size_bytes = size_bytes

    def _close(self, connection: Connection, why: str) -> None:
        self._log.warning("closing %s: %s", connection.peer, why)
        self.forget(connection)
        # Not `close`: replies to a peer that does not read would stay in memory.
        connection.abort()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
