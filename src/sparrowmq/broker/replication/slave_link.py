"""One connection of a slave to its master's HA port.

```
accepted ──▶ newcomer ──▶ token and first offset ──▶ joined: log bytes out, reports in
```

The `Feed` decides what a report means, and which bytes are sent when.
"""

import asyncio
from typing import TYPE_CHECKING, cast

from sparrowmq.protocol.ha import HaError, ReportDecoder, encode_chunk_head

if TYPE_CHECKING:
    from sparrowmq.broker.replication.feed import Feed

HEARTBEAT_S = 5.0
"""A slave hears from its master this often, as from Apache's (haSendHeartbeatInterval)."""
SILENCE_S = 20.0
"""A slave that reports nothing for this long is gone (haHousekeepingInterval)."""
MOST_SLAVES = 16
MOST_NEWCOMERS = 16
"""The limit of unidentified connections. One more takes the place of the oldest."""
BACKLOG = 4
"""Connections accepted at a time. In a flood, a slave's token is read before enough others have
come that the slave would have to make room."""
MOST_HA_CONNECTIONS = MOST_SLAVES + MOST_NEWCOMERS + 2 * BACKLOG
"""Includes connections that are accepted before others have finished closing. The process has
descriptors for all of them, besides those for files (`cli/descriptors.py`)."""


class SlaveLink(asyncio.Protocol):
    """One connection of a slave: reads its reports, and writes within the transport's limits."""

    def __init__(self, master: "Feed") -> None:
        self._feed = master
        self._decoder = ReportDecoder()
        self._transport: asyncio.Transport
        self._loop = asyncio.get_running_loop()
        self.heard_s = self._loop.time()
        """When the slave last sent something."""
        self._opened_s = self.heard_s
        self._silence: asyncio.TimerHandle
        self._heartbeat: asyncio.TimerHandle | None = None
        self.has_joined = False
        self.slave_id = -1
        self.name = ""
        self.peer: tuple[str, int] = ("", 0)
        self.was_refused = False
        self.position = 0
        """The log offset to send next."""
        self.acknowledged = 0
        self.heard = asyncio.Event()
        self.has_caught_up = False
        self.fell_behind = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.feeding: asyncio.Task[None] | None = None
        self.reason = "the slave closed the connection"

    @property
    def token(self) -> bytes | None:
        """The token that the slave presented."""
        return self._decoder.token

    def send(self, body: bytes) -> None:
        """Send bytes of the log; no bytes make a heartbeat."""
        self._transport.write(encode_chunk_head(self.position, len(body)) + body)
        self.position += len(body)

    def begin_heartbeats(self) -> None:
        """Send a heartbeat every few seconds, whatever else is sent: checking each time whether it
        is needed would cost more, as a busy log is sent thousands of times a second."""
        if self._heartbeat is not None and self.writable.is_set():
            self.send(b"")
        self._heartbeat = self._loop.call_later(HEARTBEAT_S, self.begin_heartbeats)

    async def until_behind(self) -> None:
        """Return when the log has more than fits into one transfer, or has to be read from the
        device; until then `has_caught_up` says that acknowledgements and growth send the rest."""
        self.has_caught_up = True
        self.fell_behind.clear()
        await self.fell_behind.wait()

    def close(self, reason: str) -> None:
        """End the connection."""
        self.reason = reason
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername") or ("", 0)
        self.peer = (peer[0], peer[1])
        self._feed.meet(self)
        self._watch()

    def data_received(self, data: bytes) -> None:
        self.heard_s = self._loop.time()
        if self.heard_s > self._feed.awake_until_s:
            self._feed.overslept()
        try:
            log_offset = self._decoder.feed(data)
            if log_offset is None:
                return
            if not self.has_joined:
                self._feed.join(self, log_offset)
            else:
                self._feed.acknowledge(self, log_offset)
        except HaError as error:
            self.was_refused = True
            self.close(str(error))

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._silence.cancel()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if exc is not None:
            self.reason = str(exc)
        self._feed.leave(self)

    def _watch(self) -> None:
        """Close the connection when it was silent for too long; checked rarely, as there are many
        reports. Bytes that trickle in before the slave has identified itself do not keep it
        open."""
        silent_s = self._loop.time() - (self.heard_s if self.has_joined else self._opened_s)
        if silent_s >= SILENCE_S and not self.has_joined:
            self.was_refused = True
            self.close(f"presented nothing within {SILENCE_S:.0f} s")
        elif silent_s >= SILENCE_S:
            self.close(f"nothing was heard of it for {silent_s:.0f} s")
        else:
            self._silence = self._loop.call_later(SILENCE_S - silent_s, self._watch)
