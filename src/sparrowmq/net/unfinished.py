"""Frames that have begun and not ended: how much all of them may hold, and for how long.

A frame may be 16 MiB long and arrive in any number of pieces, so every connection may hold that
much for nothing. Their sum has a limit, and so has the time from a frame's first byte to its last.
"""

import asyncio
import logging
from dataclasses import dataclass

from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Limits

_FREED_PART = 8
"""This part of the limit is freed at once: looking at all frames for each byte too many would let
many small ones keep the loop busy."""


@dataclass(slots=True)
class _Begun:
    since_s: float
    held_bytes: int = 0


class UnfinishedFrames:
    """The unfinished frames of all connections of a server."""

    def __init__(self, limits: Limits, log: logging.Logger) -> None:
        self.held_bytes = 0
        """Of all of them."""
        self._limits = limits
        self._log = log
        self._begun: dict[Connection, _Begun] = {}

    def note(self, connection: Connection, held_bytes: int) -> None:
        """A connection holds so many bytes of an unfinished frame; 0 when it is whole.

        May close connections, this one among them.
        """
        if not held_bytes or not connection.is_open:
            self.forget(connection)
            return
        begun = self._begun.get(connection)
        if begun is None:
            begun = self._begun[connection] = _Begun(_now_s())
        self.held_bytes += held_bytes - begun.held_bytes
        begun.held_bytes = held_bytes
        if self.held_bytes > self._limits.max_unfinished_bytes:
            self._make_room()

    def forget(self, connection: Connection) -> None:
        """A connection holds nothing any more."""
        begun = self._begun.pop(connection, None)
        if begun is not None:
            self.held_bytes -= begun.held_bytes

    def close_overdue(self) -> None:
        """Close the connections whose frame has not become whole in time."""
        allowed_s = self._limits.whole_frame_s
        before_s = _now_s() - allowed_s
        for connection, begun in tuple(self._begun.items()):
            if begun.since_s < before_s:
                self._close(connection, f"its frame was not whole after {allowed_s:g} s")

    def _make_room(self) -> None:
        """Close what cost most, in bytes times seconds: a large frame that is being received
        quickly has cost little, one that stands still costs more and more."""
        now_s = _now_s()
        limit = self._limits.max_unfinished_bytes
        by_cost = sorted(
            self._begun.items(),
            key=lambda item: (item[1].held_bytes * (now_s - item[1].since_s), item[1].held_bytes),
        )
        while by_cost and self.held_bytes > limit - limit // _FREED_PART:
            connection, begun = by_cost.pop()
            self._close(
                connection,
                f"it held {begun.held_bytes} bytes of an unfinished frame for"
                f" {now_s - begun.since_s:.1f} s, and all such frames together may hold {limit}",
            )

    def _close(self, connection: Connection, why: str) -> None:
        self._log.warning("closing %s: %s", connection.peer, why)
        self.forget(connection)
        connection.abort()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
