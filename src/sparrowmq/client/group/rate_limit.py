"""How many messages a second a consumer takes: peak shaving.

    tickets   1   2   3   4   5   6   7 …          one per message, in the order of requests
              ▲ issued grows with time, at the limit's rate
    a message goes to its handler when its ticket is issued

Tickets keep the order of requests without a queue of waiters, and a new rate also applies to those
already waiting: each checks again when its ticket comes. What is not used is lost, except for a
bucket of a tenth of a second (at least one message), so no burst is larger than that.

A group's limit is divided by queues: limit × queues held ÷ queues of all topics subscribed. Every
member computes its share on its own; together the shares never exceed the limit. A topic whose
messages are in only a few of its queues stays below it.
"""

import asyncio
import math
from contextlib import suppress
from dataclasses import dataclass

from sparrowmq.client.argument_checks import check_flags, check_number

BUCKET_S = 0.1
"""A consumer that was idle may catch up this much of its rate at once."""
_EXACT = 1e-6
"""A ticket that lacks less than this counts as issued: sums of times are not exact."""
_SLOWEST = 0.001
_FASTEST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """The configured rate: messages per second, for the consumer or for its whole group."""

    per_second: float
    is_shared: bool = False
    """Whether the members of the group share it."""

    def __post_init__(self) -> None:
        check_number("max_per_second", self.per_second, _SLOWEST, _FASTEST)
        check_flags(share_rate=self.is_shared)

    def __str__(self) -> str:
        whose = "the group" if self.is_shared else "this member"
        return f"{whose} takes at most {self.per_second:,.10g} messages/s"


def chosen_rate(
    max_per_second: float | None, is_shared: bool, *, is_broadcasting: bool, has_topics: bool
) -> Rate | None:
    """The limit that a consumer's settings ask for. Raises ValueError."""
    check_flags(share_rate=is_shared)
    if max_per_second is None:
        if is_shared:
            raise ValueError("share_rate needs max_per_second: the limit that is shared")
        return None
    rate = Rate(max_per_second, is_shared)
    check_shares(rate, is_broadcasting=is_broadcasting, has_topics=has_topics)
    return rate


def check_shares(rate: Rate | None, *, is_broadcasting: bool, has_topics: bool) -> None:
    """Raises ValueError for a shared limit of a member that has no share of any queues: it would
    wait forever."""
    if rate is None or not rate.is_shared:
        return
    if is_broadcasting:
        raise ValueError(
            "share_rate needs the CLUSTERING model: BROADCASTING members share no messages,"
            " so give each of them its own max_per_second"
        )
    if not has_topics:
        raise ValueError(
            "share_rate needs subscribed topics, whose queues the group shares: give this consumer"
            " topics instead of single queues, or each member its own max_per_second"
        )


class RateLimit:
    """Lets messages through at a rate, in the order in which they were requested.

    Times are the event loop's, so it belongs to one loop. Without a rate it lets everything
    through.
    """

    def __init__(self, rate: Rate | None) -> None:
        self._rate = rate
        self._share = 1.0
        self._taken = 0.0
        """The last ticket that was requested."""
        self._issued = 0.0
        self._issued_s: float | None = None
        """When `issued` was computed; None before the first request, which finds a full bucket."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop of the first request; `change` may be called from outside it."""
        self._changed = asyncio.Event()
        self._waiting = 0

    @property
    def rate(self) -> Rate | None:
        """The limit in force, or None."""
        return self._rate

    @property
    def reason(self) -> str:
        """Why messages have to wait now; empty if they do not."""
        if not self._waiting or self._rate is None:
            return ""
        if not self._rate.is_shared:
            return str(self._rate)
        if not self._share:
            return f"{self._rate}, and this member holds none of its queues"
        return f"{self._rate}, {self._per_second:,.4g} of them here"

    @property
    def _per_second(self) -> float:
        if self._rate is None:
            return math.inf
        return self._rate.per_second * (self._share if self._rate.is_shared else 1.0)

    # ---- changes

    def change(self, rate: Rate | None) -> None:
        """Set another limit, also for messages already waiting."""
        self._close_rate()
        self._rate = rate
        self._look_again()

    def share_out(self, held: int, queues: int) -> None:
        """The member holds `held` of the `queues` that its group shares; at least one."""
        assert queues > 0, "a share of 0 means that the queues are other members'"
        share = held / queues
        if share != self._share:
            self._close_rate()
            self._share = share
            self._look_again()

    def _close_rate(self) -> None:
        """Issue what the present rate has yielded so far, if anything was requested yet."""
        if self._issued_s is not None:
            self._advance()

    def _look_again(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # ---- taking

    async def take(self, messages: int) -> None:
        """Return when this many messages may be handled."""
        if self._rate is None:
            return
        self._advance()
        self._taken += messages
        await self._until_issued(self._taken)

    async def some(self, most: int) -> int:
        """Wait until one message may be handled. Returns how many may be handled now, at most
        `most`. Those count as taken: `give_back` what is not used."""
        while self._rate is not None:
            await self._until_issued(self._taken + 1)
            free = min(most, math.floor(self._issued - self._taken + _EXACT))
            if free >= 1:  # else another caller was faster
                self._taken += free
                return free
        return most

    def give_back(self, messages: int) -> None:
        """Return messages that `some` let through and that were not used."""
        if self._rate is not None:
            self._taken -= messages

    async def _until_issued(self, ticket: float) -> None:
        self._waiting += 1
        try:
            while (wait_s := self._wait_s(ticket)) > 0:
                changed = self._changed
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait_s if wait_s < math.inf else None):
                        await changed.wait()
        finally:
            self._waiting -= 1

    def _wait_s(self, ticket: float) -> float:
        self._advance()
        missing = ticket - self._issued
        if missing < _EXACT or self._rate is None:
            return 0.0
        return missing / self._per_second if self._per_second else math.inf

    def _advance(self) -> None:
        """Issue the tickets of the time that has passed."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        now_s = self._loop.time()
        if self._rate is not None:
            bucket = max(1.0, self._per_second * BUCKET_S)
            passed = math.inf if self._issued_s is None else now_s - self._issued_s
            grown = self._issued + passed * self._per_second if self._per_second else self._issued
            self._issued = min(grown, self._taken + bucket)
        self._issued_s = now_s
