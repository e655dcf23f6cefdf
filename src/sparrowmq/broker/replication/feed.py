"""Feed slaves: let them in, send them the bytes of the log, and take their acknowledgements.

```
hello on the broker's port ─▶ judged, gets a token
HA connection ─▶ token ─▶ first offset ─▶ fed: log bytes out, acknowledgements in
```

If no sender waits for acknowledgements, the log is checked every 5 ms, and less often while it does
not grow: a notice for every message would slow down sends, and many small transfers cost the master
several times as much CPU time. If senders do wait, a slave is sent the next bytes when it has
acknowledged the last ones, so that all messages that came meanwhile go out together; with many
senders only when a group of them waits (`broker/durability.py`).

Every broker can feed: a slave feeds its own master when that comes back with a shorter log.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from zlib import crc32

from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.broker.replication.replicas import Replicas
from sparrowmq.broker.replication.slave_link import (
    BACKLOG,
    MOST_NEWCOMERS,
    MOST_SLAVES,
    SlaveLink,
)
from sparrowmq.episodes import Causes
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.ha import HaError
from sparrowmq.store.store import Store

PAUSE_S = 0.005
LONGEST_PAUSE_S = 0.032
"""The shortest and longest pause between checks of the log if no sender waits."""
_TOKEN_S = 10.0
_MOST_DIVERGED = 1_000


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a token stands for: a slave that was let in."""

    slave: LogClaim
    start: int
    """The log offset that was agreed on."""
    expires_s: float


class Feed:
    """The brokers that follow this one, and what they have."""

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
        self.admits_strangers = False
        """Whether slaves that present no token, such as Apache's, are let in."""
        self._diverged: set[tuple[str, int]] = set()
        """Hosts of such slaves whose log was longer than this broker's, and where it ended."""
        self.links: dict[int, SlaveLink] = {}
        """The connection of each slave, by broker id."""
        self._newcomers: dict[SlaveLink, None] = {}
        """Connections that have not identified themselves yet, oldest first."""
        self._refusals = Causes()
        self.gone_s: dict[int, float] = {}
        """When each slave that is gone was last heard from, by the loop's clock."""
        self.joined = asyncio.Event()
        """Set when a slave begins to follow."""
        self._listener: asyncio.AbstractServer | None = None
        self.confirmed: Callable[[], None] = self.send_on
        """Called when enough slaves have more of the log; must lead to a call of `send_on`."""
        self.changed: Callable[[], None] = lambda: None
        """Called when a slave comes or goes."""
        self.awake_until_s = math.inf
        """By the loop's clock, advanced while this process runs: a report that is read after this
        time calls `overslept` first."""
        self.overslept: Callable[[], None] = lambda: None
        self.is_unsure = False
        """Whether this may no longer be the master: reports confirm nothing until `is_sure`."""

    # ---- who may follow

    def admit(self, slave: LogClaim, start: int) -> bytes:
        """A token for a broker that may follow from log offset `start` on."""
        token = secrets.token_bytes(16)
        now_s = self._loop.time()
        self._tickets = {
            each: ticket for each, ticket in self._tickets.items() if ticket.expires_s > now_s
        }
        self._tickets[token] = Ticket(slave, start, now_s + _TOKEN_S)
        return token

    def withdraw(self, slave_id: int) -> None:
        """Invalidate tokens of this slave: it has to say hello again before it follows."""
        self._tickets = {
            token: ticket
            for token, ticket in self._tickets.items()
            if ticket.slave.broker_id != slave_id
        }

    def report_refusal(self, who: str, reason: str) -> None:
        """Log that a broker may not follow: when that begins and then once a minute, because it
        tries again every few seconds, possibly for days."""
        if self._refusals.occurs(who, reason, self._loop.time()):
            self._log.warning("refused %s as a follower: %s", who, reason)

    async def listen(self, host: str, port: int) -> int:
        """Accept slaves; returns the port (port 0 takes a free one). Raises OSError."""
        self._listener = await self._loop.create_server(
            lambda: SlaveLink(self), host, port, backlog=BACKLOG
        )
        return int(self._listener.sockets[0].getsockname()[1])

    # ---- what links report

    def meet(self, link: SlaveLink) -> None:
        """A connection was made. Each one takes a descriptor, so the oldest connection that has not
        identified itself makes room when there are too many."""
        self._newcomers[link] = None
        if len(self._newcomers) > MOST_NEWCOMERS:
            oldest = next(iter(self._newcomers))
            del self._newcomers[oldest]
            oldest.close("it made room for another connection")
            text = (
                f"{MOST_NEWCOMERS} connections had presented nothing, which is the limit: the"
                " oldest one is closed for each that comes"
            )
            self.report_refusal("a connection to the HA port", text)

    def join(self, link: SlaveLink, log_offset: int) -> None:
        """A connection identified itself. Raises HaError for one that was not let in."""
        slave_id, name = self.identify(link, log_offset)
        if link.token is None:
            log_offset = self._start_of_stranger(link, log_offset)
        if not self._store.min_log_offset <= log_offset <= self._store.max_log_offset:
            raise HaError(
                f"asks for log offset {log_offset}, the log has {self._store.min_log_offset} to"
                f" {self._store.max_log_offset}"
            )
        if slave_id not in self.links and len(self.links) >= MOST_SLAVES:
            raise HaError(f"is one too many: {MOST_SLAVES} slaves follow, which is the limit")
        before = self.links.pop(slave_id, None)
        if before is not None:
            before.close("the slave connected again")
        self._newcomers.pop(link, None)
        link.has_joined, link.slave_id, link.name = True, slave_id, name
        link.position = log_offset
        link.begin_heartbeats()
        self.links[slave_id] = link
        self.gone_s.pop(slave_id, None)
        self._log.info("%s follows from log offset %d", name, log_offset)
        self.acknowledge(link, log_offset)
        self.joined.set()
        self.changed()
        link.feeding = self._tasks.create_task(self._feed(link), name=f"feed {name}")

    def identify(self, link: SlaveLink, log_offset: int) -> tuple[int, str]:
        """The slave to which a connection belongs. Votes count slaves, so each has its number."""
        if link.token is None and self.admits_strangers:
            # A stranger says nothing about itself. Its address distinguishes it from others, except
            # on loopback, where each connection counts separately.
            host, port = link.peer
            key = f"{host}:{port}" if ip_address(host).is_loopback else host
            return -2 - crc32(key.encode()), f"the slave at {key}"
        ticket = self._tickets.pop(link.token or b"", None)
        if ticket is None or ticket.expires_s < self._loop.time():
            raise HaError(
                "follows without having said hello, or too late after it; set replication_peer to"
                " apache to let brokers in that cannot say it"
            )
        if log_offset != ticket.start:
            raise HaError(f"asks for log offset {log_offset}, {ticket.start} was agreed on")
        slave = ticket.slave
        self._refusals.end(slave.address)
        return slave.broker_id, f"broker {slave.broker_id} at {slave.address}"

    def _start_of_stranger(self, link: SlaveLink, log_offset: int) -> int:
        """Where a slave that presents no token begins. Raises HaError for one that has diverged.

        It keeps asking, even after this log has grown past its end: what it has there belongs to
        another log, which must not be continued.
        """
        has_more = (link.peer[0], log_offset)
        if log_offset > self._store.max_log_offset and len(self._diverged) < _MOST_DIVERGED:
            self._diverged.add(has_more)
        if has_more in self._diverged:
            raise HaError(
                f"has {log_offset} bytes of the log, more than this master had when it first asked;"
                " it has to start with an empty directory"
            )
        # An empty Apache slave accepts any start that is the beginning of a file.
        return log_offset or self._store.min_log_offset

    def acknowledge(self, link: SlaveLink, log_offset: int) -> None:
        """A slave has everything before this offset. Raises HaError if that was never sent."""
        if log_offset > link.position:
            raise HaError(f"acknowledges offset {log_offset}, was sent bytes up to {link.position}")
        link.acknowledged = log_offset
        link.heard.set()
        if self.is_unsure:
            return
        if self.replicas.acknowledge(link.slave_id, log_offset):
            self.confirmed()
        else:
            self._send_on(link)

    def is_sure(self) -> None:
        """This broker is the master: what slaves reported in the meantime counts."""
        self.is_unsure = False
        for link in tuple(self.links.values()):
            self.acknowledge(link, link.acknowledged)

    def leave(self, link: SlaveLink) -> None:
        """A connection ended."""
        self._newcomers.pop(link, None)
        if link.feeding is not None:
            link.feeding.cancel()
        link.heard.set()
        if self.links.get(link.slave_id) is link:
            del self.links[link.slave_id]
            self.gone_s[link.slave_id] = link.heard_s
            self.replicas.disconnect(link.slave_id)
            self._log.warning("%s no longer follows: %s", link.name, link.reason)
            self.changed()
        elif not link.has_joined and link.was_refused:
            self.report_refusal(link.peer[0], f"it {link.reason}")

    # ---- feeding

    def send_on(self) -> None:
        """Send slaves what was added to the log; only needed if senders wait for them."""
        for link in self.links.values():
            self._send_on(link)

    def _send_on(self, link: SlaveLink) -> None:
        """Send what was added to the log to a slave that has acknowledged everything else.

        Avoids waking the task of `_feed`: at thousands of small transfers a second, two wake-ups
        for each would cost more than reading and sending the bytes.
        """
        if not link.has_caught_up or link.acknowledged < link.position:
            return
        try:
            body = self._store.read_log_at_once(link.position, self._chunk_bytes)
        except OSError:
            body = None  # `_feed` will run into it as well
        if body:
            link.send(body)
        if body is None or not self._is_rest(link, body) or not link.writable.is_set():
            link.has_caught_up = False
            link.fell_behind.set()

    def _is_rest(self, link: SlaveLink, body: bytes) -> bool:
        """Whether the feed may wait for the slave to acknowledge these bytes before sending more.

        A full chunk may end inside a record, which no slave acknowledges. An empty read before the
        end of the log means that the file has expired.
        """
        if body:
            return len(body) < self._chunk_bytes
        return link.position >= self._store.max_log_offset

    async def _feed(self, link: SlaveLink) -> None:
        while True:
            await link.writable.wait()
            if link.position < self._store.min_log_offset:
                link.close(f"log offset {link.position}, which it needs next, has expired here")
                return
            try:
                body = await self._read(link.position)
            except OSError as error:
                link.close(f"log offset {link.position} cannot be read: {error}")
                return
            if body:
                link.send(body)
            if not self._is_rest(link, body):
                # The kernel takes megabytes before its buffer is full: let requests in between.
                await asyncio.sleep(0)
            elif self.replicas.wanted > 1:
                await link.until_behind()
            elif not body:
                await self._looks(link)

    async def _read(self, log_offset: int) -> bytes:
        """The next bytes; read by a worker if they have to come from the device."""
        found = self._store.read_log_at_once(log_offset, self._chunk_bytes)
        if found is None:
            found = await self._workers.run(self._store.read_log, log_offset, self._chunk_bytes)
        return found

    async def _looks(self, link: SlaveLink) -> None:
        pause_s = PAUSE_S
        await asyncio.sleep(pause_s)
        while link.position >= self._store.max_log_offset:
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)

    async def drain(self, longest_s: float) -> None:
        """Wait until every slave has everything, so that a stop leaves equal copies."""
        end = self._store.max_log_offset
        self.send_on()
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s):
                while behind := [link for link in self.links.values() if link.acknowledged < end]:
                    behind[0].heard.clear()
                    await behind[0].heard.wait()

    def close(self) -> None:
        """Stop listening, and end every connection."""
        if self._listener is not None:
            self._listener.close()
        for link in (*self._newcomers, *self.links.values()):
            link.close("this broker stops")
