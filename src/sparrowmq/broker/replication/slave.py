"""The slave's side of replication: finds its master, says hello, and copies its log.

```
find the master ─▶ hello ─▶ HA connection ─▶ bytes ─▶ whole records into the log ─▶ report
      ▲                                                                                │
      └──────────────── lost, refused, or nothing to follow: again later ◀─────────────┘
```

A report says what lies in the slave's own file, synced where its flush is synchronous: never what
was merely received. Received bytes are taken in slices, so that requests are answered in between.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from sparrowmq.backoff import Backoff
from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.disk.errors import DiskFull
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers, split_address
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.ha import (
    Chunk,
    ChunkDecoder,
    HaError,
    encode_offset,
    encode_token,
)
from sparrowmq.protocol.headers.replication import FollowAnswer, FollowMaster
from sparrowmq.store.errors import StoreStopped
from sparrowmq.store.store import Store

REPORT_S = 5.0
SILENCE_S = 20.0
"""A master that is silent for so long is gone: its heartbeats come every 5 s."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
_SLICE_BYTES = 128 * 1024
"""Taken at once: about 2 ms of records."""
_READ_AHEAD_BYTES = 2 * 1024 * 1024


class NotFollowing(Exception):
    """The master cannot be followed now; the text says why."""


class MasterLink(asyncio.Protocol):
    """The connection to a master: chunks arrive here and wait until they are taken."""

    def __init__(self) -> None:
        self._decoder = ChunkDecoder(MAX_CHUNK_BYTES)
        self._chunks: deque[Chunk] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._failure: Exception | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            chunks = self._decoder.feed(data)
        except HaError as error:
            self._fail(error)
            self._transport.abort()
            return
        self._chunks.extend(chunks)
        self._waiting_bytes += sum(len(chunk.body) for chunk in chunks)
        if self._waiting_bytes > _READ_AHEAD_BYTES:
            self._transport.pause_reading()
        if chunks:
            self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or ConnectionError("the master closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._arrived.set()

    async def next_chunk(self) -> Chunk:
        """The next one. Raises what ended the connection, TimeoutError for a silent master."""
        while not self._chunks:
            if self._failure is not None:
                raise self._failure
            self._arrived.clear()
            async with asyncio.timeout(SILENCE_S):
                await self._arrived.wait()
        chunk = self._chunks.popleft()
        self._waiting_bytes -= len(chunk.body)
        if self._waiting_bytes <= _READ_AHEAD_BYTES:
            self._transport.resume_reading()
        return chunk

    def write(self, data: bytes) -> None:
        """Send a token or a report; a connection that is lost is noticed by the next read."""
        self._transport.write(data)

    def close(self) -> None:
        """End the connection."""
        self._transport.abort()


class Follower:
    """Keeps a slave's log equal to its master's."""

    def __init__(
        self,
        store: Store,
        peers: Peers,
        *,
        claim: Callable[[], LogClaim],
        find_master: Callable[[], Awaitable[str | None]],
        sync: Callable[[], Awaitable[None]] | None,
        log: logging.Logger,
    ) -> None:
        """`sync` makes the log durable before it is reported; None reports what is written."""
        self._store = store
        self._peers = peers
        self._claim = claim
        self._find_master = find_master
        self._sync = sync
        self._log = log
        self._complaint = ""
        self.is_following = False
        self.master_end = 0
        """The end of the master's log, as far as it is known."""

    async def run(self) -> None:
        """Follow for ever."""
        backoff = Backoff(0.1, 5.0)
        failures = 0
        while True:
            try:
                await self._follow()
            except (
                *(NetError, NotFollowing, ProtocolError, OSError, TimeoutError),
                *(DiskFull, StoreStopped, ValueError),
            ) as error:
                failures = 1 if self.is_following else failures + 1
                self._complain(str(error) or type(error).__name__)
            self.is_following = False
            await asyncio.sleep(backoff.wait_s(failures))

    async def _follow(self) -> None:
        address = await self._find_master()
        if address is None:
            raise NotFollowing("no master is registered under this broker's name")
        answer = await self._hello(address)
        loop = asyncio.get_running_loop()
        host, port = split_address(answer.ha_address)
        _, link = await loop.create_connection(MasterLink, host, port)
        try:
            self._store.forget_held_bytes()
            link.write(encode_token(bytes.fromhex(answer.token)) + encode_offset(answer.start))
            self.is_following, self._complaint = True, ""
            self._log.info("following the master at %s from log offset %d", address, answer.start)
            await self._copy(link, answer.start)
        finally:
            link.close()

    async def _hello(self, address: str) -> FollowAnswer:
        body = self._claim().to_json()
        response = await self._peers.call(address, FollowMaster(), body, timeout_s=3.0)
        if response.code != ResponseCode.SUCCESS:
            raise NotFollowing(f"the master at {address} answered: {response.remark}")
        return response.header(FollowAnswer)

    async def _copy(self, link: MasterLink, start: int) -> None:
        expected = start
        while True:
            chunk = await link.next_chunk()
            if chunk.log_offset != expected:
                raise HaError(f"the master sent offset {chunk.log_offset}, expected {expected}")
            for at in range(0, len(chunk.body), _SLICE_BYTES):
                piece = chunk.body[at : at + _SLICE_BYTES]
                self._store.append_raw(chunk.log_offset + at, piece)
                await asyncio.sleep(0)
            expected += len(chunk.body)
            self.master_end = max(self.master_end, expected)
            if chunk.body and self._sync is not None:
                await self._sync()
            durable = self._store.durable_log_offset if self._sync is not None else None
            link.write(encode_offset(self._store.max_log_offset if durable is None else durable))

    def _complain(self, reason: str) -> None:
        """Once per cause: a master may be away for days."""
        if reason != self._complaint:
            self._complaint = reason
            self._log.warning("not following a master: %s", reason)
