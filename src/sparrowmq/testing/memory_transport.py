"""One end of a simulated connection: an asyncio transport over two `Stream`s.

It behaves as asyncio's socket transport does, including the details that are easy to forget: a
transport that does not read notices a reset only when it writes or reads again, bytes sent to an
end that is gone are answered with a reset, and closing with unread bytes resets the peer instead of
sending a FIN.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING, Any

from sparrowmq.testing.memory_stream import Segment, Signal, Stream

if TYPE_CHECKING:
    from sparrowmq.testing.host import Host
    from sparrowmq.testing.memory_network import MemoryNetwork

Address = tuple[str, int]

HIGH_WATER_BYTES = 64 * 1024  # asyncio's default for transports


class MemoryTransport(asyncio.Transport):
    """Created by `MemoryNetwork`, used by protocols like any asyncio transport."""

    out: Stream
    peer: MemoryTransport

    def __init__(
        self,
        network: MemoryNetwork,
        host: Host,
        *,
        context: Context,
        sockname: Address,
        peername: Address,
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.host = host
        self.sockname = sockname
        self.is_gone = False
        """The kernel has forgotten this end: it answers whatever still arrives with a reset."""
        self._network = network
        self._context = context
        self._protocol: asyncio.BaseProtocol | None = None
        self._outbox = bytearray()
        self._inbox = bytearray()
        self._has_eof = False
        self._reset: OSError | None = None
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False
        self._read_scheduled = False
        self._writing_paused = False
        self.set_write_buffer_limits()

    def __repr__(self) -> str:
        return f"<MemoryTransport {self.sockname} to {self.get_extra_info('peername')}>"

    # For the protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def is_reading(self) -> bool:
        return not self._is_paused and not self._is_closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._schedule_read()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._is_lost or self._is_closing or self.is_gone:
            return
        if self._reset is not None:
            self.fail(self._reset)
            return
        self._outbox += data
        self._pump()
        if len(self._outbox) > self._high and not self._writing_paused:
            self._writing_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = HIGH_WATER_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}), which must be >= 0")
        self._high, self._low = high, low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._outbox)

    def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._outbox:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    # For the network

    @property
    def unread_bytes(self) -> int:
        return len(self._inbox)

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        """Begin to call the protocol; must be called in this end's context."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._schedule_read()

    def receive(self, segment: Segment) -> None:
        """Bytes or a signal arrived at this end's kernel."""
        if self.is_gone:
            if segment is not Signal.RST and not self.peer.is_gone:
                self.out.send(Signal.RST)
            return
        if isinstance(segment, bytes):
            self._inbox += segment
        elif segment is Signal.FIN:
            self._has_eof = True
        else:
            self._reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            if self._outbox:  # it waits to write, so it notices even if it does not read
                self.fail(self._reset)
        self._schedule_read()

    def room_was_made(self) -> None:
        """The peer has read: continue sending, and let the protocol write again."""
        if self.is_gone:
            return
        self._pump()
        if self._writing_paused and len(self._outbox) <= self._low:
            self._writing_paused = False
            self._soon(self.get_protocol().resume_writing)
        if self._is_closing and not self._outbox:
            self._lose(None)

    def fail(self, error: OSError) -> None:
        """The connection broke: notify the protocol as soon as its process runs."""
        self._lose(error)

    def forget(self, *, goodbye: Signal | None) -> None:
        """The process or the machine is gone; the kernel sends this signal, or none at all."""
        if self.is_gone:
            return
        self.is_gone = self._is_lost = self._is_closing = True
        self._outbox.clear()
        if goodbye is not None:
            self.out.send(Signal.RST if self._inbox else goodbye)
        else:
            self.out.drop()
        self._network.forget_transport(self)

    # Inside

    def _soon(self, callback: Callable[..., object], *args: object) -> None:
        self._network.loop.call_soon(callback, *args, context=self._context)

    def _pump(self) -> None:
        # Like TCP, wait for a good part of the window: otherwise bytes soon go one by one.
        worthwhile = min(len(self._outbox), self._network.conditions.window_bytes // 4)
        if self.out.room < worthwhile:
            return
        while self._outbox and (room := self.out.room):
            size = self._network.piece_bytes(min(room, len(self._outbox)))
            self.out.send(bytes(self._outbox[:size]))
            del self._outbox[:size]

    def _schedule_read(self) -> None:
        waits = self._inbox or self._has_eof or self._reset is not None
        if waits and self._protocol is not None and not self._read_scheduled:
            self._read_scheduled = True
            self._soon(self._read)

    def _read(self) -> None:
        self._read_scheduled = False
        if self._is_paused or self._is_closing:
            return
        if self._inbox:
            self._read_bytes()
        elif self._reset is not None:
            self.fail(self._reset)
        elif self._has_eof:
            self._has_eof = False
            if not self._call_protocol("eof_received"):
                self.close()

    def _read_bytes(self) -> None:
        size = self._network.piece_bytes(len(self._inbox))
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        self._call_protocol("data_received", data)
        self.peer.room_was_made()
        self._schedule_read()

    def _call_protocol(self, method: str, *args: object) -> object:
        protocol = self.get_protocol()
        try:
            return getattr(protocol, method)(*args)
        except Exception as error:
            self._network.loop.call_exception_handler(
                {
                    "message": f"protocol.{method}() failed",
                    "exception": error,
                    "transport": self,
                    "protocol": protocol,
                }
            )
            self._lose(None)
            return True

    def _lose(self, error: OSError | None) -> None:
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._outbox.clear()
        self._soon(self._end, error)

    def _end(self, error: OSError | None) -> None:
        """Notify the protocol, then close the socket, in asyncio's order."""
        try:
            if self._protocol is not None:
                self._protocol.connection_lost(error)
        finally:
            if error is None:
                self.forget(goodbye=Signal.FIN)
            else:
                self.forget(goodbye=Signal.RST)
