"""Sends that a limit refused: they stand in line, and the first one asks the broker for all.

```
refused ──▶ in line, in the order in which the sends began ◀─────────────────┐
                │ the time that a broker named has come: the first one asks  │
                ▼                                                            │
            taken: the next one, later two for each that is taken ───── refused
```

A broker says when one message passes, not how many will. So the number of sends that ask at the
same time grows as long as all are taken: what is asked in vain is one request for each wait, or at
most as many as were taken, however many sends wait.
"""

import asyncio
import random
from bisect import insort
from collections.abc import Collection, Iterator
from itertools import count
from typing import NamedTuple

from sparrowmq.backoff import Backoff
from sparrowmq.client.errors import LimitReached
from sparrowmq.client.send_result import SendResult

_CROWD = Backoff(0.05, 1.0)
"""Pauses of a line whose first send was refused again when its time had come: other producers are
waiting too, and together they must not send more requests than the limit justifies."""

Place = tuple[float, int]
"""When a send began, and a number that tells apart those of one moment."""


class _InLine(NamedTuple):
    place: Place
    may_ask: asyncio.Future[bool]
    until_s: float


class _Opening:
    """What one broker said last."""

    __slots__ = ("in_a_row", "opens_s", "refusal")

    def __init__(self, refusal: LimitReached, opens_s: float) -> None:
        self.refusal = refusal
        self.opens_s = opens_s
        """When it is worth another attempt."""
        self.in_a_row = 1
        """How many waits began since it took a message."""


class SendLine:
    """The sends to one topic, or those with a chosen queue on one broker. Times are the loop's."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._limited: dict[str, _Opening] = {}
        self._brokers: Collection[str] = ()
        """The brokers that would do."""
        self._waiting: list[_InLine] = []
        self._asking = 0
        self._taken = 0
        """How many were taken since the last refusal."""
        self._timer: asyncio.TimerHandle | None = None

    def is_limited(self, broker_name: str) -> bool:
        """Whether a limit of this broker would refuse a message again, as far as is known."""
        return self._opens_s([broker_name]) > asyncio.get_running_loop().time()

    def is_over(self) -> bool:
        """Whether no send is in line, and no broker is known to refuse."""
        return not (self._waiting or self._asking or any(map(self.is_limited, self._limited)))

    def refusal(self) -> tuple[str, LimitReached | None]:
        """A broker, and what a new send would hear from it; None if it need not stand in line."""
        now_s = asyncio.get_running_loop().time()
        opens_s = self._opens_s(self._brokers)
        known = [name for name in self._brokers if name in self._limited]
        if not known or not (self._waiting or opens_s > now_s):
            return "", None
        first = min(known, key=lambda name: self._limited[name].opens_s)
        heard = self._limited[first].refusal
        # Not the same exception again: several sends may raise it
        wait_s = max(0.0, self._limited[first].opens_s - now_s)
        return first, LimitReached(heard.address, heard.code, heard.text, wait_s)

    def refused(self, broker_name: str, refusal: LimitReached) -> None:
        """A broker refused a message."""
        now_s = asyncio.get_running_loop().time()
        opens_s = now_s + refusal.retry_after_s
        known = self._limited.get(broker_name)
        if known is None:
            self._limited[broker_name] = _Opening(refusal, opens_s)
        elif now_s < known.opens_s:  # it was on its way when the wait began
            known.refusal, known.opens_s = refusal, max(opens_s, known.opens_s)
        else:
            if known.in_a_row:
                pause_s = _CROWD.wait_s(known.in_a_row) * self._rng.uniform(0.5, 1.0)
                opens_s = max(opens_s, now_s + pause_s)
            known.refusal, known.opens_s = refusal, opens_s
            known.in_a_row += 1
        self._taken = 0
        opens_s = self._opens_s(self._brokers)
        while self._waiting and self._waiting[0].until_s <= opens_s:
            self._waiting.pop(0).may_ask.set_result(False)

    async def turn(self, place: Place, brokers: Collection[str], until_s: float) -> bool:
        """Wait until it is this send's turn to ask one of these brokers that is not limited. It has
        to `leave` then. False if its turn would come too late."""
        loop = asyncio.get_running_loop()
        self._brokers = brokers
        me = _InLine(place, loop.create_future(), until_s)
        insort(self._waiting, me, key=lambda each: each.place)
        self._go_on()
        is_leaving = True
        try:
            if not me.may_ask.done() and self._opens_s(brokers) < until_s:
                await asyncio.wait([me.may_ask], timeout=until_s - loop.time())
            is_leaving = False
        finally:
            if not me.may_ask.done():
                self._waiting.remove(me)
                self._go_on()
            elif is_leaving and me.may_ask.result():
                self.leave("", None)
        return me.may_ask.done() and me.may_ask.result()

    def leave(self, broker_name: str, outcome: SendResult | Exception | None) -> None:
        """A send whose turn it was has asked this broker, or was cancelled."""
        self._asking -= 1
        if isinstance(outcome, LimitReached):
            self.refused(broker_name, outcome)
        elif isinstance(outcome, SendResult):
            self._taken += 1
            if broker_name in self._limited:
                self._limited[broker_name].in_a_row = 0
        self._go_on()

    def _opens_s(self, brokers: Collection[str]) -> float:
        """When the first of these brokers is worth an attempt; 0 if none has refused one."""
        return min(
            (self._limited[name].opens_s if name in self._limited else 0.0 for name in brokers),
            default=0.0,
        )

    def _go_on(self) -> None:
        """Let the sends ask whose turn it is; if there are none yet, look again in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._waiting and self._asking < max(1, self._taken):
            opens_s = self._opens_s(self._brokers)
            if opens_s > loop.time():
                self._timer = loop.call_at(opens_s, self._go_on)
                return
            self._waiting.pop(0).may_ask.set_result(True)
            self._asking += 1


class SendLines:
    """The lines of a producer; false if there are none, which is the usual case."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lines: dict[tuple[str, str | None], SendLine] = {}
        self._numbers: Iterator[int] = count()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def known(self, topic: str, chosen: str | None = None) -> SendLine | None:
        """The line of a topic, or of sends to a chosen broker; None if no send has to wait."""
        line = self._lines.get((topic, chosen))
        if line is not None and line.is_over():
            del self._lines[topic, chosen]
            return None
        return line

    def of(self, topic: str, chosen: str | None) -> SendLine:
        """The same; begins a line where there is none."""
        line = self._lines.get((topic, chosen))
        if line is None:
            line = self._lines[topic, chosen] = SendLine(self._rng)
        return line

    def place(self, began_s: float) -> Place:
        """The place of a send that began then."""
        return began_s, next(self._numbers)


class SendTurns:
    """What one send does in a line: it waits for its turn, asks, and perhaps waits again."""

    def __init__(self, lines: SendLines, topic: str, began_s: float, limit_s: float) -> None:
        self._lines = lines
        self._topic = topic
        self._began_s = began_s
        self._until_s = began_s + limit_s
        self._place: Place | None = None
        self._line: SendLine | None = None
        """Where it has its turn."""
        self._told: Exception | None = None
        """The outcome that its line knows."""

    @property
    def elapsed_s(self) -> float:
        """How long ago the send began."""
        return asyncio.get_running_loop().time() - self._began_s

    @property
    def left_s(self) -> float:
        """How much of the send's time is left."""
        return self._until_s - asyncio.get_running_loop().time()

    async def wait(
        self, failed: str, refusal: object, brokers: Collection[str] | None = None
    ) -> bool:
        """Wait until one of these brokers is worth an attempt after `failed` has refused; without
        `brokers` no other one would do. False if that is too late."""
        self._place = self._place or self._lines.place(self._began_s)
        line = self._lines.of(self._topic, failed if brokers is None else None)
        if isinstance(refusal, LimitReached) and refusal is not self._told:
            line.refused(failed, refusal)
        brokers = (failed,) if brokers is None else brokers
        if not await line.turn(self._place, brokers, self._until_s):
            return False
        self._line = line
        return True

    def end(self, broker_name: str, outcome: SendResult | Exception | None) -> None:
        """An attempt is over; the turn, if it was one, is that of the next send."""
        line, self._line = self._line, None
        if line is not None:
            self._told = outcome if isinstance(outcome, Exception) else None
            line.leave(broker_name, outcome)
