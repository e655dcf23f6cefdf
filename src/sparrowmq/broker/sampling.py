"""Sampling of the offsets of all queues and groups, from which statistics are derived.

One loop does it, every ten seconds and on request, in slices (`reports.py`): 80,000 queues take 100
ms. Requests only ask for a sample and wait for its end, so samples never overlap, and a sample does
not end with the connection that asked for it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from sparrowmq.broker.statistics import DELIVERED_TIMERS, SAMPLE_MS, Offsets
from sparrowmq.protocol.names import TIMER_TOPIC

if TYPE_CHECKING:
    from sparrowmq.broker.broker import Broker

_FRESH_MS = 1_000


class Sampling:
    """Keeps a broker's statistics up to date."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._is_running = False

    async def run(self, broker: "Broker") -> None:
        """Sample forever."""
        self._is_running = True
        loop = asyncio.get_running_loop()
        due_s = loop.time() + SAMPLE_MS / 1000
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due_s):
                        await self._asked.wait()
                self._asked.clear()
                is_due = loop.time() >= due_s
                if is_due:
                    due_s = loop.time() + SAMPLE_MS / 1000
                    broker.durability.put_times.mark()
                waiting, self._waiting = self._waiting, []
                try:
                    if is_due or not _is_fresh(broker):
                        await _look_in_slices(broker)
                finally:
                    _release(waiting)
        finally:
            self._is_running = False
            _release(self._waiting)

    async def refresh(self, broker: "Broker") -> None:
        """Return when the statistics are up to date for a request: no older than a second, because
        a tool may ask for every topic in turn. Once the broker stops, the last ones suffice."""
        if _is_fresh(broker) or not self._is_running:
            return
        looked = asyncio.get_running_loop().create_future()
        self._waiting.append(looked)
        self._asked.set()
        await looked


def _release(waiting: list[asyncio.Future[None]]) -> None:
    for looked in waiting:
        if not looked.done():  # the request that waits may have ended
            looked.set_result(None)


def _is_fresh(broker: "Broker") -> bool:
    return broker.monotonic() - broker.statistics.sampled_ms < _FRESH_MS


async def _look_in_slices(broker: "Broker") -> None:
    with broker.slices.begin() as turn:
        for _ in _look(broker):
            if turn.is_over:
                await turn.pause()


def sample(broker: "Broker") -> None:
    """Sample in one go, at a time when no request waits."""
    for _ in _look(broker):
        pass


def _look(broker: "Broker") -> Iterator[None]:
    """Sample all offsets, with a step wherever the loop may run."""
    store = broker.store
    now_ms, today_ms, log_offset = broker.monotonic(), broker.clock(), store.max_log_offset
    ends: dict[str, dict[int, int]] = {}
    for topic, queue_id in store.queues():
        ends.setdefault(topic, {})[queue_id] = store.max_offset(topic, queue_id)
        yield
    yield from broker.statistics.look(
        now_ms,
        ends.items(),
        _progress(broker),
        size_of=store.bytes_in,
        log_offset=log_offset,
        today_ms=today_ms,
    )


def _progress(broker: "Broker") -> Offsets:
    yield from broker.offsets.rows()
    delivered = broker.store.max_offset(TIMER_TOPIC, 0) - len(broker.delivery.timers)
    yield DELIVERED_TIMERS, {0: delivered}
