"""One direction of a simulated connection: what the two kernels and the wire do to its bytes.

    transport buffer ──window──▶ on the wire (FIFO, latency) ──▶ receive buffer ──▶ protocol

Bytes arrive in order and once, split into pieces wherever the seed says. While the path is cut they
wait (TCP retransmits them) and continue when it heals, unless the sender gives up.
"""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sparrowmq.testing.memory_network import MemoryNetwork
    from sparrowmq.testing.memory_transport import MemoryTransport


class Signal(Enum):
    """What a stream carries besides bytes."""

    FIN = "fin"
    RST = "rst"


Segment: TypeAlias = bytes | Signal


class Stream:
    """Carries segments from one end of a connection to the other."""

    def __init__(
        self, network: MemoryNetwork, source: MemoryTransport, target: MemoryTransport
    ) -> None:
        self._network = network
        self.source = source
        self.target = target
        self._flight: deque[tuple[float, Segment]] = deque()
        self._flight_bytes = 0
        self._is_blocked = False
        self._give_up: asyncio.TimerHandle | None = None

    @property
    def room(self) -> int:
        """How many more bytes the kernels accept before the receiver reads."""
        used = self._flight_bytes + self.target.unread_bytes
        return max(0, self._network.conditions.window_bytes - used)

    def send(self, segment: Segment) -> None:
        """Put a segment on the wire; it arrives after everything sent before.

        One that would be faster than the first in line waits for it: only the first has a timer.
        """
        loop = self._network.loop
        arrival = loop.time() + self._network.paths.latency_s(self.source.host, self.target.host)
        self._flight.append((arrival, segment))
        if isinstance(segment, bytes):
            self._flight_bytes += len(segment)
        if len(self._flight) == 1:
            self._expect_first()

    def _expect_first(self) -> None:
        self._network.at(self._flight[0][0], self._arrive)

    def _arrive(self) -> None:
        if not self._flight:
            return
        if not self._network.paths.is_open(self.source.host, self.target.host):
            self._block()
            return
        _, segment = self._flight.popleft()
        if isinstance(segment, bytes):
            self._flight_bytes -= len(segment)
        if self._flight:
            self._expect_first()
        self._network.record("arrive", self.source, self.target, segment)
        self.target.receive(segment)

    def _block(self) -> None:
        self._is_blocked = True
        if self._give_up is None and not self.source.is_gone:
            loop, give_up_s = self._network.loop, self._network.conditions.give_up_s
            self._give_up = loop.call_later(
                give_up_s, self._stop_trying, context=self._network.context
            )

    def path_changed(self) -> None:
        """Retransmit waiting segments; called when a cut heals or a host comes back."""
        if not self._is_blocked or not self._network.paths.is_open(
            self.source.host, self.target.host
        ):
            return
        self._is_blocked = False
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None
        now = self._network.loop.time()
        delay = self._network.paths.latency_s(self.source.host, self.target.host)
        self._flight = deque((max(when, now + delay), segment) for when, segment in self._flight)
        if self._flight:
            self._expect_first()

    def _stop_trying(self) -> None:
        self._give_up = None
        if self._is_blocked:
            self.drop()
            self.source.fail(TimeoutError(errno.ETIMEDOUT, "the peer does not acknowledge"))

    def drop(self) -> None:
        """Forget everything on the wire."""
        self._flight.clear()
        self._flight_bytes = 0
        self._is_blocked = False
