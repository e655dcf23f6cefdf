"""Queues that the application chose by itself: held until it chooses others, whoever has them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection

from sparrowmq.client.group.assignment import Assignment
from sparrowmq.protocol.message import MessageQueue


class ByHand:
    """Choices take turns, so that the last one is what is held. What could not be given up or taken
    at once, and what an operator's reset dropped, follows in the rounds of the rebalance."""

    def __init__(self, assignment: Assignment) -> None:
        self._assignment = assignment
        self._chosen: frozenset[MessageQueue] = frozenset()
        self._turn = asyncio.Lock()

    async def choose(
        self, queues: Collection[MessageQueue], look_up: Callable[[], Awaitable[None]]
    ) -> float:
        """Hold exactly these; when to try again what did not succeed. Nothing changes where
        `look_up` raises."""
        async with self._turn:
            await look_up()
            self._chosen = frozenset(queues)
            return await self._settle()

    async def settle(self) -> float:
        """Hold what was chosen; when to try again what did not succeed."""
        async with self._turn:
            return await self._settle()

    async def _settle(self) -> float:
        assignment = self._assignment
        gone = assignment.held.keys() - self._chosen | assignment.leaving()
        given_up = await assignment.give_up(gone, "not assigned any more")
        taken = await assignment.take(self._chosen)
        return min(given_up.again_s, taken.again_s)
