"""Periodic work of a broker: write-behind, retention, silent clients, and detecting overload."""

import asyncio
import logging
from functools import partial
from itertools import count

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.live_clients import SCANS
from sparrowmq.clock import Clock, cpu_clock
from sparrowmq.disk.errors import DiskFull, NoDescriptors
from sparrowmq.episodes import Episode
from sparrowmq.net.slices import in_slices
from sparrowmq.store.errors import AppendsHeld

_TICK_S = 0.05
"""Index entries lag behind the log by at most twice this."""
_TICKS_IF_FULL = 10
"""On a full disk the store tries to write every so many ticks. Each attempt makes a log file and
removes it again."""
_SLOTS_S = 1.0
"""Less than a checkpoint takes, which comes between an index entry and its slot."""
_CLEAN_S = 10.0
_TRASH_S = 1.0
_CLIENTS_S = 10.0


async def tick(broker: Broker, cpu: Clock = cpu_clock) -> None:
    """Twenty times a second: write what the store keeps in memory (tails of consume queues, index
    entries), and look whether the loop lags. `cpu` is the CPU time that this process has used.

    One loop does both, because waking up is most of what a broker without work does.
    """
    refusals = RefusalLog(broker.log, broker.monotonic)
    lag = LoopLag(broker, cpu)
    for ticks in count(1):
        await asyncio.sleep(_TICK_S)
        lag.judge()
        admission = broker.store.admission
        if broker.replication.is_master:  # others refuse all messages anyway
            # A planned change of roles is logged as one, and is over in a moment.
            refusals.note(None if broker.is_handing_over else admission.refusal)
        if not admission.lacks_space or ticks % _TICKS_IF_FULL == 0:
            # Even if nothing waits: the sooner a clock step is noticed, the better.
            broker.store.tick(broker.delivery.clock.now_ms(), broker.monotonic)


class LoopLag:
    """Refuses sends while the loop lags or the disk stalls: a busy answer beats a late one.

    A stall of the disk counts from half of the flush timeout on. Sends wait for shorter ones, as in
    Apache's broker: a client's three tries would be over before the disk is back.
    """

    def __init__(self, broker: Broker, cpu: Clock) -> None:
        self._broker = broker
        self._cpu = cpu
        self._loop = asyncio.get_running_loop()
        self._before_s = 0.0
        self._wait()

    def _wait(self) -> None:
        self._expected_s = self._loop.time() + _TICK_S
        self._used_ms = self._cpu()

    def judge(self) -> None:
        """Call it every tick, and at once when the tick begins."""
        # Only lag that our own work caused counts. If other processes had the CPU, refusing sends
        # would not make this broker any faster.
        used_s = (self._cpu() - self._used_ms) / 1000
        now_lag_s = min(self._loop.time() - self._expected_s, used_s)
        # Two late turns in a row: a single one may be a hiccup that is already over.
        lag_s, self._before_s = min(now_lag_s, self._before_s), now_lag_s
        self._wait()
        durability = self._broker.durability
        if durability.is_stalled:
            wait_s = durability.oldest_wait_s
            text = f"the disk is slow: sends wait {wait_s:.1f} s for their flush; send again later"
            _set_busy(self._broker, text)
            # Senders that were just answered may send again now, not after the next check.
            durability.on_next_flush = partial(_set_busy, self._broker, "")
        elif lag_s > self._broker.config.busy_lag_s:
            text = f"the broker lags {lag_s:.1f} s; send again later"
            _set_busy(self._broker, text)
        else:
            _set_busy(self._broker, "")


async def read_slots_ahead(broker: Broker) -> None:
    """Keep the slots of the index in memory while they are written: a cold one blocks the loop."""
    while True:
        await asyncio.sleep(_SLOTS_S)
        read_ahead = broker.store.slots_ahead()
        if read_ahead is not None:
            await broker.workers.run(read_ahead)


class RefusalLog:
    """Logs that the store refuses messages: when that begins, every minute, and when it ends."""

    def __init__(self, log: logging.Logger, monotonic: Clock) -> None:
        self._log = log
        self._monotonic = monotonic
        self._current: Episode | None = None

    def note(self, refusal: Exception | None) -> None:
        """Why messages are refused now; None while they are taken."""
        current = self._current
        if refusal is None and current is None:
            return
        now_s = self._monotonic() / 1000
        if refusal is not None:
            if current is None:
                current = self._current = Episode(now_s)
            if current.occurs(now_s):
                self._log.error("messages are refused: %s%s", refusal, _remedy(refusal))
        elif current is not None:
            self._current = None
            self._log.warning("accepting messages again after %.0f s", current.lasted_s(now_s))


def _remedy(refusal: Exception) -> str:
    match refusal:
        case NoDescriptors():
            return "; close connections or raise the limit (ulimit -n), and they are accepted again"
        case DiskFull() if not isinstance(refusal, AppendsHeld):
            return "; make room on the disk, and they are accepted again"
        case _:
            return ""


async def clean_store(broker: Broker) -> None:
    """Delete expired log files, and watch the disk."""
    while True:
        await asyncio.sleep(_CLEAN_S)
        try:
            await clean(broker)
        except DiskFull as error:
            broker.log.warning("expired messages are not deleted: %s", error)


async def empty_trash(broker: Broker) -> None:
    """Free the space of deleted files; no deletion waits for it, except one that needs space."""
    while True:
        if broker.store.trash.is_filled:
            await broker.workers.run(broker.store.trash.empty)
        await asyncio.sleep(_TRASH_S)


async def clean(broker: Broker, *, any_hour: bool = False) -> list[int]:
    """Delete log files whose messages were kept for long enough; returns what was deleted.

    With `any_hour` they need not wait for the deletion hour.
    """
    clock, store = broker.delivery.clock, broker.store
    deleted: list[int] = []
    while starts := store.clean_some(
        clock.now_ms(),
        any_hour=any_hour,
        set_forward=clock.since,
        needed_from=broker.replication.needed_from,
    ):
        deleted += starts
        await broker.workers.run(store.trash.empty)
    return deleted


async def forget_silent_clients(broker: Broker) -> None:
    """Close connections of clients without a heartbeat for two minutes; remove ended locks."""
    while True:
        await asyncio.sleep(_CLIENTS_S)
        before_ms = broker.monotonic() - int(broker.config.client_timeout_s * 1000)
        silent = broker.consumers.silent_since(before_ms) + broker.producers.silent_since(before_ms)
        for connection, client_id in {each.connection: each.client_id for each in silent}.items():
            broker.log.info("closing %s: no heartbeat in time", client_id)
            connection.close()
        await in_slices(broker.locks.forgetting_free(), broker.slices)


async def end_silent_sessions(broker: Broker) -> None:
    """Close connections without keep-alives: frees their queues and notifies other members."""
    life_s = broker.config.session_timeout_s
    while life_s:
        await asyncio.sleep(life_s / SCANS)
        for connection in broker.sessions.scan():
            broker.log.warning("closing %s: no keep-alive for %g s", connection.peer, life_s)
            # Not `close`, which would wait for the peer to read what was written to it.
            connection.abort()


def _set_busy(broker: Broker, reason: str) -> None:
    if bool(reason) != bool(broker.busy_reason):
        level = logging.WARNING if reason else logging.INFO
        broker.log.log(level, reason or "no longer busy")
    broker.busy_reason = reason
