"""Rebalance rounds: per topic look who is there, allocate, drop, take, tell.

A round that fails for one topic changes nothing there and never stops the others.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress

from sparrowmq.client.broker_calls import group_members
from sparrowmq.client.client import Client
from sparrowmq.client.errors import ClientError
from sparrowmq.client.rebalance import RebalancePlan, plan_rebalance
from sparrowmq.client.route_table import subscribe_queues
from sparrowmq.client.strategies import Strategy
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.message import MessageQueue

INTERVAL_S = 20.0
MERGE_S = 1.0
"""Wake-ups closer together than this share one round; a round that missed its target repeats."""


class Rebalancing:
    """Runs rounds when the timer, the broker, a route or the user says so."""

    def __init__(
        self,
        client: Client,
        group: str,
        strategy: Strategy,
        *,
        is_broadcasting: bool,
        topics: Callable[[], Iterable[str]],
        held: Callable[[], set[MessageQueue]],
        drop: Callable[[MessageQueue], Awaitable[bool]],
        take: Callable[[MessageQueue], Awaitable[bool]],
        changed: Callable[[str, list[MessageQueue]], Awaitable[None]],
        log: logging.Logger,
    ) -> None:
        self._client = client
        self._group = group
        self._strategy = strategy
        self._is_broadcasting = is_broadcasting
        self._topics = topics
        self._held = held
        self._drop = drop
        self._take = take
        self._changed = changed
        self._log = log
        self._wake_up = asyncio.Event()

    def wake(self) -> None:
        """Something changed: look again soon."""
        self._wake_up.set()

    async def run(self) -> None:
        """Rounds for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake_up.clear()
            last_s = loop.time()
            is_settled = await self.round()
            wait_s = INTERVAL_S if is_settled else MERGE_S
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake_up.wait()
            too_early_s = MERGE_S - (loop.time() - last_s)
            if too_early_s > 0:
                await asyncio.sleep(too_early_s)

    async def round(self) -> bool:
        """One round over all topics; whether every topic reached its target."""
        is_settled = True
        topics = set(self._topics())
        for topic in sorted(topics):
            try:
                is_settled &= await self._balance(topic)
            except (ClientError, NetError, ValueError) as error:
                self._log.info("no rebalance of %s for %s: %s", topic, self._group, error)
                is_settled = False
        for queue in sorted(self._held()):
            if queue.topic not in topics:
                is_settled &= await self._drop(queue)
        return is_settled

    async def _balance(self, topic: str) -> bool:
        route = await self._client.route_table.fetch(topic)
        if route is None:
            # A retry topic exists only when something failed: nothing to wait for.
            return True
        queues = sorted(subscribe_queues(topic, route))
        assigned = queues
        if not self._is_broadcasting:
            members = sorted(await group_members(self._client, topic, self._group))
            assigned = self._strategy(self._group, self._client.client_id, queues, members)
        held = {queue for queue in self._held() if queue.topic == topic}
        return await self._apply(topic, plan_rebalance(held, set(assigned)), queues)

    async def _apply(self, topic: str, plan: RebalancePlan, queues: list[MessageQueue]) -> bool:
        is_settled = True
        has_changed = False
        for queue in sorted(plan.drop):
            dropped = await self._drop(queue)
            has_changed |= dropped
            is_settled &= dropped
        for queue in sorted(plan.take):
            taken = await self._take(queue)
            has_changed |= taken
            is_settled &= taken
        if has_changed:
            await self._changed(topic, queues)
        return is_settled
