"""The master's side of replication: lets slaves in, and feeds each of them the log.

```
hello over the broker's port ─▶ judged, gets a token
HA connection ─▶ token ─▶ first offset ─▶ fed: log bytes out, acknowledgements in
```

Feeding looks for new bytes when the log has grown. Where nobody waits for acknowledgements that is
at most every 2 ms: many small transfers cost the master several times as much processor time.
Where senders do wait, a slave is sent the next bytes as soon as it acknowledged the last ones, so
that the messages of everybody who sends meanwhile travel together.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass

from sparrowmq.broker.replication.claims import Follow, LogClaim, Refuse, StartAnew, Verdict, judge
from sparrowmq.broker.replication.replicas import Replicas
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.ha import HaError, ReportDecoder, encode_chunk_head
from sparrowmq.store.store import Store

HEARTBEAT_S = 5.0
"""An idle slave hears from its master this often, as from Apache's (haSendHeartbeatInterval)."""
SILENCE_S = 20.0
"""A slave that reports nothing for so long is gone (haHousekeepingInterval)."""
PAUSE_S = 0.002
_TOKEN_S = 10.0


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a token stands for: one slave that was let in."""

    slave: LogClaim
    expires_s: float


class Master:
    """Slaves of one broker, and what they have."""

    def __init__(
        self,
        store: Store,
        replicas: Replicas,
        workers: Workers,
        tasks: asyncio.TaskGroup,
        *,
        chunk_bytes: int,
        log: logging.Logger,
    ) -> None:
        self._store = store
        self.replicas = replicas
        self._workers = workers
        self._tasks = tasks
        self._chunk_bytes = chunk_bytes
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._tickets: dict[bytes, Ticket] = {}
        self.links: dict[int, SlaveLink] = {}
        """The connection of each slave, by broker id."""
        self._grown = asyncio.Event()
        self.confirmed: Callable[[], None] = lambda: None

    # ---- who may follow

    def let_in(self, own: LogClaim, slave: LogClaim) -> tuple[Verdict, bytes]:
        """Judge a hello; a token for a slave that may follow, else empty."""
        verdict = judge(own, slave, self._store.read_log)
        match verdict:
            case Follow():
                token = secrets.token_bytes(16)
                now_s = self._loop.time()
                self._tickets = {
                    each: ticket
                    for each, ticket in self._tickets.items()
                    if ticket.expires_s > now_s
                }
                self._tickets[token] = Ticket(slave, now_s + _TOKEN_S)
                return verdict, token
            case StartAnew() | Refuse():
                return verdict, b""

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Accept slaves. Raises OSError."""
        return await self._loop.create_server(lambda: SlaveLink(self), host, port)

    # ---- what links report

    def join(self, link: "SlaveLink", log_offset: int) -> None:
        """A connection presented itself. Raises HaError for one that was not let in."""
        ticket = self._tickets.pop(link.token or b"", None)
        if ticket is None or ticket.expires_s < self._loop.time():
            raise HaError("no slave follows without a hello; its token is unknown or expired")
        if log_offset > self._store.max_log_offset:
            raise HaError(f"asks for offset {log_offset}, the log ends before")
        slave_id = ticket.slave.broker_id
        before = self.links.pop(slave_id, None)
        if before is not None:
            before.close("the slave connected again")
        link.slave_id, link.position = slave_id, log_offset
        self.links[slave_id] = link
        self._log.info("slave %d at %s follows from %d", slave_id, ticket.slave.address, log_offset)
        self.acknowledge(link, log_offset)
        link.feeding = self._tasks.create_task(self._feed(link), name=f"feed slave {slave_id}")

    def acknowledge(self, link: "SlaveLink", log_offset: int) -> None:
        """A slave has everything before this offset. Raises HaError for what was never sent."""
        if log_offset > link.position:
            raise HaError(f"acknowledges offset {log_offset}, was sent bytes up to {link.position}")
        link.acknowledged = log_offset
        link.heard.set()
        if self.replicas.acknowledge(link.slave_id, log_offset):
            self.confirmed()

    def leave(self, link: "SlaveLink") -> None:
        """A connection ended."""
        if link.feeding is not None:
            link.feeding.cancel()
        if self.links.get(link.slave_id) is link:
            del self.links[link.slave_id]
            self.replicas.disconnect(link.slave_id)
            self._log.warning("slave %d is gone: %s", link.slave_id, link.reason)

    # ---- feeding

    def grown(self) -> None:
        """The log has grown."""
        self._grown.set()

    async def _feed(self, link: "SlaveLink") -> None:
        while True:
            await link.writable.wait()
            body = await self._read(link.position)
            if body:
                link.send(body)
                # A full chunk may end inside a record, which no slave acknowledges: more follows.
                if self.replicas.wanted > 1 and len(body) < self._chunk_bytes:
                    await link.until_acknowledged()
            else:
                await self._until_grown(link)

    async def _read(self, log_offset: int) -> bytes:
        """The next bytes; from a worker where the device has to be asked."""
        found = self._store.read_log_at_once(log_offset, self._chunk_bytes)
        if found is None:
            found = await self._workers.run(self._store.read_log, log_offset, self._chunk_bytes)
        return found

    async def _until_grown(self, link: "SlaveLink") -> None:
        self._grown.clear()
        if link.position < self._store.max_log_offset:
            return
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await self._grown.wait()
        except TimeoutError:
            link.send(b"")
            return
        if self.replicas.wanted <= 1:
            await asyncio.sleep(PAUSE_S)

    def close(self) -> None:
        """End every connection."""
        for link in tuple(self.links.values()):
            link.close("this broker stops")


class SlaveLink(asyncio.Protocol):
    """One connection of a slave: reads its reports, and writes within the transport's limits."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._decoder = ReportDecoder()
        self._transport: asyncio.Transport
        self._silence: asyncio.TimerHandle
        self.slave_id = -1
        self.position = 0
        """The log offset that is sent next."""
        self.acknowledged = 0
        self.heard = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self.feeding: asyncio.Task[None] | None = None
        self.reason = "the slave closed the connection"

    @property
    def token(self) -> bytes | None:
        """What the slave presented."""
        return self._decoder.token

    def send(self, body: bytes) -> None:
        """Bytes of the log; none are a heartbeat."""
        self._transport.write(encode_chunk_head(self.position, len(body)) + body)
        self.position += len(body)

    async def until_acknowledged(self) -> None:
        """Return when the slave has everything that was sent."""
        while self.acknowledged < self.position:
            self.heard.clear()
            await self.heard.wait()

    def close(self, reason: str) -> None:
        """End the connection."""
        self.reason = reason
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._watch()

    def data_received(self, data: bytes) -> None:
        self._silence.cancel()
        self._watch()
        try:
            log_offset = self._decoder.feed(data)
            if log_offset is None:
                return
            if self.slave_id < 0:
                self._master.join(self, log_offset)
            else:
                self._master.acknowledge(self, log_offset)
        except HaError as error:
            self.close(str(error))

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._silence.cancel()
        if exc is not None:
            self.reason = str(exc)
        self._master.leave(self)

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(
            SILENCE_S, self.close, f"nothing was heard of it for {SILENCE_S:.0f} s"
        )
