"""What slaves confirm and when consumers may see it; used only if sends wait for slaves.

```
appended ──▶ marked: where the log ended, and which queues had grown
         ──▶ confirmed by enough slaves, or given up because they are missing or late
         ──▶ durable here too, if flush is synchronous or it was given up
         ──▶ shown: parked pulls are woken, sends that waited are answered
```

A mark is set once per turn of the loop, not per message. Messages whose senders do not wait, and
those that the broker itself stores (due messages, messages sent back, committed transactions), are
marked like all others: they are shown when they are confirmed or `slave_timeout_s` has passed.

What consumers see survives a power cut of the master: its slaves have it, or its own disk. So after
a start that has heard of enough slaves no queue is shorter than what consumers saw of it.

A start may find messages that no slave has confirmed: it was killed before that. They are marked,
too, and nothing is shown past them before they are confirmed or late, though slaves that are about
to come back are missing at first.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.broker.replication.replicas import Copies, Replicas
from sparrowmq.broker.replication.shown_end import ShownEnd
from sparrowmq.store.store import Grown, Store

_WATCH_S = 1.0


class _Mark(NamedTuple):
    """The log ended at `log_offset` when these queues ended there."""

    log_offset: int
    deadline_s: float
    grown: Grown


class Confirmation:
    """Follows records of the log from appended to shown."""

    def __init__(
        self,
        config: BrokerConfig,
        store: Store,
        arrivals: Arrivals,
        replicas: Replicas,
        shown: ShownEnd,
    ) -> None:
        """Hides what the replicas have not confirmed or given up."""
        self._shown = shown
        self._store = store
        self._arrivals = arrivals
        self.replicas = replicas
        self._waits_for_flush = config.flush is Flush.SYNC
        self._timeout_s = config.slave_timeout_s
        self._name = config.broker_name
        self._loop = asyncio.get_running_loop()
        self._marks: deque[_Mark] = deque()
        self.feed: Callable[[], None] = lambda: None
        """Called to feed slaves what was added to the log."""
        self.request_flush: Callable[[], None] = lambda: None
        """Called when consumers wait for the disk alone."""
        self._tail_until_s = 0.0
        """Until then nothing is given up, because of what the start found."""
        if replicas.visible_end < store.max_log_offset:
            self._tail_until_s = self._loop.time() + self._timeout_s
            hidden = store.hide_from(replicas.visible_end)
            self._marks.append(_Mark(store.max_log_offset, self._tail_until_s, hidden))

    @property
    def confirmed(self) -> int:
        """Messages before this log offset are on enough brokers."""
        return self.replicas.confirmed

    @property
    def given_up(self) -> int:
        """Messages before this log offset no longer wait for copies."""
        return self.replicas.given_up

    def mark(self) -> None:
        """Mark what has been appended so far, to show it when slaves have it.

        If too few slaves follow closely, it is given up at once.
        """
        end = self._store.max_log_offset
        grown = self._store.take_grown()
        if grown:
            self._marks.append(_Mark(end, self._loop.time() + self._timeout_s, grown))
        if self.replicas.copies_of(end, end) is Copies.MISSING:
            self.give_up(end)
        else:
            self.show()

    def give_up(self, end_offset: int) -> None:
        """Copies are missing or late, and senders are answered so."""
        self.replicas.give_up(end_offset)
        self.show()
        if self._marks and self._marks[0].log_offset <= self._given_up:
            self.request_flush()

    def show(self) -> None:
        """Show consumers what they may see by now."""
        durable = self._store.durable_log_offset
        shown_to = max(self.replicas.confirmed, min(self._given_up, durable))
        if self._waits_for_flush:
            shown_to = min(shown_to, durable)
        if shown_to > self._shown.log_offset:
            self._shown.advance(shown_to)
        while self._marks and self._marks[0].log_offset <= shown_to:
            for topic, queue_id in self._store.show(self._marks.popleft().grown):
                self._arrivals.announce(topic, queue_id)

    @property
    def _given_up(self) -> int:
        """`given_up` as far as consumers may see it."""
        return 0 if self._loop.time() < self._tail_until_s else self.replicas.given_up

    async def watch(self) -> None:
        """Give up what has waited too long, and refuse messages while there are too few copies."""
        while True:
            await asyncio.sleep(_WATCH_S)
            self.mark()  # what the broker itself stored, without a waiting sender
            self.feed()
            self.check()

    def check(self) -> None:
        """What `watch` does every second; called at once when a slave comes or goes."""
        now_s = self._loop.time()
        late = [mark.log_offset for mark in self._marks if mark.deadline_s <= now_s]
        if late:
            self.give_up(late[-1])
        self._decide_refusal()

    def _decide_refusal(self) -> None:
        replicas, end = self.replicas, self._store.max_log_offset
        if replicas.accepts(end):
            self._store.admission.hold("copies", None)
            return
        self._store.admission.hold(
            "copies",
            f"in-sync replicas not enough: broker {self._name} has {replicas.in_sync(end)} of"
            f" {replicas.least} copies in sync (min_in_sync_replicas); start a slave, or wait for"
            " one to catch up",
        )
