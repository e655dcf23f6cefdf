"""Follow another broker's log: find it, say hello, and copy its bytes.

```
find the master ─▶ hello ─▶ HA connection ─▶ bytes ─▶ whole records into the log ─▶ report
      ▲                                                                                │
      └──────────────── lost, refused, or nothing to follow: again later ◀─────────────┘
```

A report covers what is in the slave's own file, and synced if its flush is synchronous; never what
was merely received. An Apache broker, which does not know the hello, is asked in another way
(`apache_master.py`). A slave follows forever; a master that comes back with a shorter log copies
from a slave until it has everything.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

from sparrowmq.backoff import Backoff
from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.broker.replication.log_description import LogDescription, describe_log, note_owner
from sparrowmq.broker.replication.shown_copy import ShownCopy
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.errors import DiskFull
from sparrowmq.episodes import Causes
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers, split_address
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.ha import (
    Chunk,
    ChunkDecoder,
    HaError,
    encode_offset,
    encode_token,
)
from sparrowmq.protocol.headers.replication import FollowAnswer, FollowMaster, ReadLog
from sparrowmq.protocol.record import RecordError
from sparrowmq.store.epochs import EpochTable, LogStart
from sparrowmq.store.errors import StoreError, StoreStopped
from sparrowmq.store.recovery.put_back import Replacement
from sparrowmq.store.recovery.quarantine import DamagedPlace
from sparrowmq.store.store import Store

REPORT_S = 5.0
"""A follower reports at least this often, so that it is not taken for dead."""
_HELLO_S = 3.0
_CONNECT_S = 3.0
SILENCE_S = 20.0
"""A master that is silent for this long is gone: its heartbeats come every 5 s."""
MAX_CHUNK_BYTES = 4 * 1024 * 1024
_SLICE_BYTES = 64 * 1024
"""How much is appended in one turn of the loop: about 1 ms of small records."""
_TURN_QUEUES = 128
"""After how many queues that have grown a turn ends, with the piece that it appends: 8 µs each."""
_PIECE_BYTES = 16 * 1024
"""How much is appended at once. Smaller pieces cost noticeable time."""
_READ_AHEAD_BYTES = 2 * 1024 * 1024


class NotFollowing(Exception):
    """The other broker cannot be followed now; the text says why."""


class LogsDiverged(NotFollowing):
    """This log has something that the other one does not have, or has differently."""


class MustStartAnew(Exception):
    """This log ends before the master's begins: this broker can only follow with an empty log."""


class MustMend(Exception):
    """What damage took from this log has come from the master: the next start puts it back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approach:
    """How the copying of a log begins."""

    ha_address: str
    start: int
    """The log offset of the first byte to come."""
    master_end: int
    """Where the other log ended when the start was agreed on."""
    greeting: bytes = b""
    """The first bytes on the HA connection, sent before the first offset."""
    is_apache: bool = False
    """The other broker does not know our requests."""


Stranger: TypeAlias = Callable[[str, LogClaim], Awaitable[Approach]]
"""Finds out how to follow a broker, given by its address, that does not know the hello."""


class MasterLink(asyncio.Protocol):
    """The connection to a master: chunks arrive here and wait to be taken."""

    def __init__(self) -> None:
        self._decoder = ChunkDecoder(MAX_CHUNK_BYTES)
        self._chunks: deque[Chunk] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._failure: Exception | None = None
        self._is_paused = False
        self._loop = asyncio.get_running_loop()
        self._heard_s = self._loop.time()
        self._is_report_due = False
        self._clock: asyncio.TimerHandle
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without inheriting from it
        self._transport = cast(asyncio.Transport, transport)
        # Not a timeout around every wait for a chunk: there are thousands of waits a second.
        self._clock = self._loop.call_later(REPORT_S, self._look_at_clock)

    def _look_at_clock(self) -> None:
        now_s = self._loop.time()
        if self._is_paused:  # the master may have sent something that is not being read now
            self._heard_s = now_s
        if now_s - self._heard_s >= SILENCE_S:
            self._fail(TimeoutError(f"the master was silent for {SILENCE_S:.0f} s"))
            return
        self._is_report_due = True
        self._arrived.set()
        self._clock = self._loop.call_later(REPORT_S, self._look_at_clock)

    def data_received(self, data: bytes) -> None:
        self._heard_s = self._loop.time()
        try:
            chunks = self._decoder.feed(data)
        except HaError as error:
            self._fail(error)
            self._transport.abort()
            return
        self._chunks.extend(chunks)
        self._waiting_bytes += sum(len(chunk.body) for chunk in chunks)
        if self._waiting_bytes > _READ_AHEAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        if chunks:
            self._arrived.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._clock.cancel()
        self._fail(exc or ConnectionError("the master closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._arrived.set()

    async def next_chunk(self) -> Chunk | None:
        """The next chunk; None when a report is due. Raises the error that ended the connection, or
        TimeoutError when the master has been silent for too long."""
        while not self._chunks:
            if self._failure is not None:
                raise self._failure
            if self._is_report_due:
                self._is_report_due = False
                return None
            self._arrived.clear()
            await self._arrived.wait()
        chunk = self._chunks.popleft()
        self._waiting_bytes -= len(chunk.body)
        if self._is_paused and self._waiting_bytes <= _READ_AHEAD_BYTES // 2:
            self._is_paused = False
            self._transport.resume_reading()
        return chunk

    @property
    def has_waiting(self) -> bool:
        """Whether a chunk has arrived that was not taken yet."""
        return bool(self._chunks)

    def write(self, data: bytes) -> None:
        """Send a token or a report. The next read reports a lost connection, once everything that
        came before its end has been taken."""
        if not self._transport.is_closing():  # uvloop raises where asyncio ignores it
            self._transport.write(data)

    def close(self) -> None:
        """End the connection."""
        self._transport.abort()


class Follower:
    """Keeps this broker's log equal to that of another broker of its name."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        peers: Peers,
        *,
        port: int,
        log: logging.Logger,
        durability: Durability | None = None,
        shown: ShownCopy | None = None,
        stranger: Stranger | None = None,
        disk: Disk | None = None,
        workers: Workers | None = None,
    ) -> None:
        """`port` is the one that this broker serves. A broker that serves no clients yet has no
        `durability`: it reports what is written, and has no pulls to wake; nor has it `shown`.
        Without `stranger` only brokers that know the hello are followed; without `disk` damage is
        left as it is; without `workers` the loop waits for the disk."""
        self._config = config
        self._store = store
        self._peers = peers
        self._port = port
        self._durability = durability
        self._shown = shown
        self._syncs = durability is not None and config.flush is Flush.SYNC
        """Whether the log is made durable before it is reported."""
        self._log = log
        self._stranger = stranger
        self._disk = disk
        self._workers = workers
        self._damaged = store.recovered.filled if disk is not None else []
        """Places of the log whose bytes no master was asked for yet."""
        self._complaints = Causes()
        self._link: MasterLink | None = None
        self.accepted = asyncio.Event()
        """Set when a master has accepted this broker for the first time."""
        self.session = 0
        """Counts the attempts to follow a master."""
        self._moved = asyncio.Event()
        self.master_address = ""
        """The master that is followed now; empty if there is none."""
        self.follows_apache = False
        """Whether the followed master is Apache's."""
        self.master_end = 0
        """The end of the master's log, as far as it is known."""
        self.heard_s = 0.0
        """When the master was last heard from, by the loop's clock."""
        self.times_followed = 0
        """How often a master has accepted this broker."""
        self.knows_master = False
        """Whether name servers knew a master when they were last asked."""
        self.has_diverged = False
        """Whether the last master that compared the logs refused this one: readers must not get
        what only this broker has."""

    async def run(self, find_master: Callable[[], Awaitable[str | None]]) -> None:
        """Follow the master that `find_master` finds, forever.

        Raises MustStartAnew, MustMend.
        """
        backoff = Backoff(0.1, 5.0)
        failures, last_master = 0, ""
        while True:
            was_following = False
            try:
                # Replication outlives the name servers: without them the last known master counts.
                registered = await find_master()
                self.knows_master = registered is not None
                address = registered or last_master
                if not address:
                    raise NotFollowing("no master is registered under this broker's name")
                await self.copy_from(address)
            except (
                *(NetError, NotFollowing, ProtocolError, OSError, TimeoutError),
                *(DiskFull, StoreStopped, ValueError),
            ) as error:
                # A fault found while following, such as a full disk, will still be there next time.
                is_lasting = isinstance(error, DiskFull | StoreStopped | ProtocolError | ValueError)
                was_following = bool(self.master_address) and not is_lasting
                last_master = self.master_address or last_master
                self._complain(str(error) or type(error).__name__)
            finally:
                self.master_address = ""
                self.session += 1
                self._moved.set()
            failures = 1 if was_following else failures + 1
            await asyncio.sleep(backoff.wait_s(failures))

    async def copy_from(self, address: str, *, until: int | None = None) -> None:
        """Copy the log of the broker at `address`, forever or up to `until`.

        Raises NotFollowing, MustStartAnew, MustMend, or the error that ends the connection.
        """
        # Otherwise master and slave log a connection, and its end, with every attempt.
        self._store.admission.check_copying()
        # The first report covers everything in the log: a connection that broke may have left bytes
        # that were appended but not synced.
        await self._sync()
        self._store.forget_held_bytes()
        approach = await self._approach(address, is_returning=until is not None)
        if until is None and await self._asks_for_damaged(address):
            # The token of the first hello may have expired meanwhile.
            approach = await self._approach(address, is_returning=False)
        host, port = split_address(approach.ha_address)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_S):
            _, link = await loop.create_connection(MasterLink, host, port)
        self._link = link
        try:
            link.write(approach.greeting + encode_offset(approach.start))
            self.master_address = address
            self.follows_apache = approach.is_apache
            self.master_end = max(self.master_end, approach.master_end)
            self.accepted.set()
            self.times_followed += 1
            self._log.info("following %s from log offset %d", address, approach.start)
            if self._disk is not None:
                note_owner(self._disk, self._config)
            await self._copy(link, approach.start, until)
        finally:
            self._link = None
            link.close()

    async def moves_on(self) -> None:
        """Return when the log has grown or another session has begun."""
        self._moved.clear()
        await self._moved.wait()

    def show_to(self, log_offset: int | None) -> None:
        """The followed master says up to where this copy may be shown. Raises OSError."""
        if self._shown is not None:
            self._shown.show_to(log_offset)

    def start_over(self) -> None:
        """The followed master starts again: nothing more will come on the old connection."""
        if self._link is not None:
            self._link.close()

    async def _approach(self, address: str, *, is_returning: bool) -> Approach:
        """Say hello, and take over the epochs of the log that is copied.

        Only an approach that succeeds shows that the logs have not diverged: a master that starts
        or waits refuses without a judgement.
        """
        try:
            approach = await self._say_hello(address, is_returning=is_returning)
        except LogsDiverged:
            self.has_diverged = True
            raise
        self.has_diverged = False
        return approach

    async def _say_hello(self, address: str, *, is_returning: bool) -> Approach:
        own = describe_log(self._config, self._store, self._port).claim
        response = await self._peers.call(
            address, FollowMaster(), own.to_json(), timeout_s=_HELLO_S
        )
        if response.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            if self._stranger is not None:
                approach = await self._stranger(address, own)
                self.show_to(None)  # Apache's brokers say nothing about it
                return approach
            raise NotFollowing(
                f"{address} does not support the hello of SparrowMQ's brokers; set"
                " replication_peer to apache to follow a master of Apache's"
            )
        if response.code != ResponseCode.SUCCESS:
            has_diverged = response.code == ResponseCode.NO_PERMISSION
            raise (LogsDiverged if has_diverged else NotFollowing)(
                f"{address} refuses: {response.remark}"
            )
        answer = response.header(FollowAnswer)
        if answer.must_start_anew:
            raise MustStartAnew(response.remark)
        source = LogDescription.from_json(response.body)
        # A slave that was master meanwhile has epochs that a returning master does not know.
        if not is_returning or _last_start(source.claim.lineage) > _last_start(own.lineage):
            await self._adopt(source.epochs)
        else:
            self._store.epochs.take_starts(source.claim.lineage, own.end)
        self._store.epochs.save()
        if not is_returning:
            self.show_to(source.slaves_show_to)
        return Approach(
            ha_address=answer.ha_address,
            start=answer.start,
            master_end=source.claim.end,
            greeting=encode_token(bytes.fromhex(answer.token)),
        )

    async def _adopt(self, table: EpochTable) -> None:
        epochs = self._store.epochs
        draft = epochs.draft(table)
        if draft is not None and self._workers is not None:
            await self._workers.run(epochs.write, draft)
        epochs.adopt(table, draft)

    async def _asks_for_damaged(self, address: str) -> bool:
        """Ask a master, which has accepted this log as a copy of its own, for what damage took from
        it; whether there was something to ask for. Raises MustMend when it had some of it."""
        asked, got = self._damaged, 0
        for place in asked:
            what = f"the damaged bytes {place.start:,} to {place.end:,} of the log"
            try:
                await self._fetch(address, place)
                self._log.info("restored %s from %s", what, address)
                got += 1
            except (RecordError, NotFollowing, StoreError) as error:
                # Nothing is cut: what follows the damage may be on this broker only.
                self._log.error("could not restore %s from %s: %s", what, address, error)
        self._damaged = []
        if got:
            raise MustMend(f"starting again to put back {got} damaged parts of the log")
        return bool(asked)

    async def _fetch(self, address: str, place: DamagedPlace) -> None:
        """Keep a place's bytes for the next start. Raises RecordError, NotFollowing, NetError."""
        assert self._disk is not None
        replacement = Replacement(self._disk, self._store.config.log_file_size, place)
        try:
            while replacement.missing:
                size = min(_SLICE_BYTES, replacement.missing)
                header = ReadLog(start=replacement.next_offset, size=size)
                answer = await self._peers.call(address, header, timeout_s=_HELLO_S)
                if answer.code != ResponseCode.SUCCESS or not answer.body:
                    raise NotFollowing(answer.remark or "its log ends before them")
                replacement.add(answer.body[:size])
            replacement.finish()
        finally:
            replacement.close()

    async def _copy(self, link: MasterLink, start: int, until: int | None) -> None:
        expected, unsynced, is_first = start, 0, True
        loop = asyncio.get_running_loop()
        while until is None or self._store.max_log_offset < until:
            chunk = await link.next_chunk()
            if chunk is not None:
                self.heard_s = loop.time()
                if chunk.log_offset != expected:
                    raise HaError(f"got log offset {chunk.log_offset}, expected {expected}")
                await self._take(chunk)
                self._moved.set()
                expected += len(chunk.body)
                self.master_end = max(self.master_end, expected)
                unsynced += len(chunk.body)
                if link.has_waiting and unsynced < _READ_AHEAD_BYTES:
                    await asyncio.sleep(0)  # requests come in between
                    continue  # one sync and one report for everything that has come
                if unsynced:
                    await self._sync()
                unsynced = 0
            # A blank record ends the file here before the rest of the file was sent: the master
            # would reject a report past what it sent.
            link.write(encode_offset(min(self.safe_end, expected)))
            if is_first:
                self._complaints.end("master")
                is_first = False
            if link.has_waiting:
                await asyncio.sleep(0)  # requests come in between

    async def _take(self, chunk: Chunk) -> None:
        """Append a chunk in turns, so that requests are answered in between."""
        taken = grown = 0
        for at in range(0, len(chunk.body), _PIECE_BYTES):
            if taken >= _SLICE_BYTES or grown >= _TURN_QUEUES:
                await asyncio.sleep(0)
                taken = grown = 0
            grown += self._append(chunk.log_offset + at, chunk.body[at : at + _PIECE_BYTES])
            taken += _PIECE_BYTES

    def _append(self, log_offset: int, data: bytes) -> int:
        """Append bytes, announce what they bring, and return in how many queues it is."""
        try:
            self._store.append_raw(log_offset, data)
        except RecordError as error:
            text = (
                f"the master sent no record for log offset {error.position:,} ({error.reason});"
                " if it does so again, its log is damaged there: stop it and run sparrowmq"
                " store repair"
            )
            raise HaError(text) from error
        grown = list(self._store.take_copied())
        if self._shown is not None:
            self._shown.grew(grown)
        if self._durability is not None and not self._syncs:
            # A sync announces by itself what it makes visible.
            for topic, queue_id in grown:
                self._durability.announce(topic, queue_id)
        return len(grown)

    async def _sync(self) -> None:
        if self._durability is not None and self._syncs:
            await self._durability.make_durable()

    @property
    def safe_end(self) -> int:
        """The end that may be reported: whole records in the file, synced under synchronous
        flush."""
        return self._store.durable_log_offset if self._syncs else self._store.max_log_offset

    def _complain(self, reason: str) -> None:
        """Log once per cause, then once a minute: a master may be away for days."""
        if self._complaints.occurs("master", reason, asyncio.get_running_loop().time()):
            self._log.warning("not following a master: %s", reason)


def _last_start(lineage: Sequence[LogStart]) -> int:
    return lineage[-1].number if lineage else 0
