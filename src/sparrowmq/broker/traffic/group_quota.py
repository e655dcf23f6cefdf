"""The quota of a consumer group: its pulls are served in turn, as far as the quota goes.

A pull that would exceed the quota is parked like one that finds nothing, and retried when some
quota is left. Queues are served in the order in which their pulls were held, so that no member
takes what another has been waiting for longer.

    pull ─┬─ something is left, and no other queue waits ─▶ read, at most what is left
          └─ held ── its turn came ─▶ read      ── its time is up ─▶ answered: nothing found
"""

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from sparrowmq.broker.traffic.meter import Meter
from sparrowmq.clock import Clock
from sparrowmq.protocol.limits import Quota, Scope

if TYPE_CHECKING:
    from sparrowmq.broker.arrivals import Arrivals, QueueKey

PACE_MS = 50
"""Held pulls are retried at most this often: many small answers cost more than few large ones."""
_NO_LIMIT = 2**31


class GroupQuota:
    """What one group may still get, and the queues whose pulls wait for more."""

    def __init__(self, group: str, quota: Quota, monotonic: Clock) -> None:
        self.meter = Meter(Scope.CONSUMER_GROUP, group, quota, monotonic())
        self._monotonic = monotonic
        # A dict serves as an ordered set: the queue that waits longest is served first.
        self._waiting: dict[QueueKey, None] = {}
        self._called: set[QueueKey] = set()
        """Queues whose turn it is."""
        self._timer: asyncio.TimerHandle | None = None
        self._arrivals: Arrivals | None = None

    def change(self, quota: Quota) -> None:
        """Change the limit, or remove it; held pulls are retried at once."""
        self.meter.buckets.change(quota, self._monotonic())
        if self._timer is not None:
            self._timer.cancel()
            self._call_next()

    def allowance(self, key: "QueueKey") -> int:
        """How many messages the pull of a queue may get now."""
        now_ms, buckets = self._monotonic(), self.meter.buckets
        is_called = key in self._called
        if (self._waiting and not is_called) or buckets.wait_ms(now_ms):
            return 0
        self._called.discard(key)
        return _NO_LIMIT if buckets.messages is None else buckets.messages.tokens(now_ms)

    def take(self, count: int, size_bytes: int) -> None:
        """Count messages that were handed out."""
        self.meter.buckets.take(count, size_bytes)

    def hold(self, key: "QueueKey", arrivals: "Arrivals") -> None:
        """Make a pull wait; `arrivals` retries it when its turn comes."""
        self._arrivals = arrivals
        self._called.discard(key)
        if key not in self._waiting:
            self._waiting[key] = None
            self.meter.refusals.add(1, self._monotonic())
        if self._timer is None:
            self._schedule()

    def _schedule(self) -> None:
        wait_ms = max(PACE_MS, self.meter.buckets.wait_ms(self._monotonic()))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(wait_ms / 1000, self._call_next)

    def _call_next(self) -> None:
        assert self._arrivals is not None, "something was held"
        self._timer = None
        now_ms, buckets = self._monotonic(), self.meter.buckets
        if not buckets.wait_ms(now_ms):
            left = _NO_LIMIT if buckets.messages is None else buckets.messages.tokens(now_ms)
            # Each takes at least one message; those that went away meanwhile take none.
            called = list(islice(self._waiting, left))
            self._called = set(called)
            for key in called:
                del self._waiting[key]
                self._arrivals.announce(*key)
        if self._waiting:
            self._schedule()
