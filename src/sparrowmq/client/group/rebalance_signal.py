"""What the next rebalance round waits for: a time, a change, or something that is possible now."""

import asyncio
from contextlib import suppress

MERGE_S = 1.0
"""Changes closer together than this share one round."""
AT_ONCE_S = 0.02
"""Queues that become free together, or can be given up together, do so within this time."""


class RebalanceSignal:
    """Set by everything that notices a change; the rebalance loop alone waits for it.

    Two urgencies, because their causes differ. Members that join or leave, and new routes, come in
    bursts: a group of a hundred that starts would rebalance a hundred times, so rounds are at least
    MERGE_S apart. A queue that has become free is different: its messages wait until it is taken,
    and there is nothing else to wait for.
    """

    def __init__(self) -> None:
        self._changed = asyncio.Event()
        self._possible = asyncio.Event()
        self._has_changed = False

    def change(self) -> None:
        """Something has changed: run a round soon."""
        self._has_changed = True
        self._changed.set()

    def ready(self) -> None:
        """Something the last round had to leave undone is now possible: do it at once."""
        self._possible.set()
        self._changed.set()

    def begin_round(self) -> None:
        """Clear all signals: the round that begins takes them into account."""
        self._has_changed = False
        self._changed.clear()
        self._possible.clear()

    def round_was_complete(self) -> None:
        """The round left nothing undone: it has already used what became possible meanwhile."""
        if not self._has_changed:
            self.begin_round()

    async def wait(self, began_s: float, next_s: float) -> None:
        """Return when the next round is due, `next_s` at the latest. `began_s` is when the last
        round began; both are times of the loop."""
        if not await _is_set_by(self._changed, next_s):
            return
        early_s = min(began_s + MERGE_S, next_s)
        is_early = asyncio.get_running_loop().time() < early_s
        if is_early and await _is_set_by(self._possible, early_s):
            await asyncio.sleep(AT_ONCE_S)


async def _is_set_by(event: asyncio.Event, at_s: float) -> bool:
    """Wait for an event until a time of the loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(at_s):
            await event.wait()
    return event.is_set()
