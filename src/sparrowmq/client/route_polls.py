"""Asking name servers for the routes of what members send and read: polls, and after a loss.

poll         every topic a member needs, every `poll_s`
lost broker  the topics whose routes named it, at once; where it is gone from a route, again after
             1, 2, 4, … s until it is back, for a broker that restarts is away for seconds
"""

import asyncio
import logging
import random
from collections.abc import Iterable
from contextlib import suppress
from itertools import count

from sparrowmq.backoff import Backoff
from sparrowmq.client.client_members import Members
from sparrowmq.client.errors import ClientError, NoRoute
from sparrowmq.client.route_table import RouteTable

_FIRST_POLL_S = 0.01
_SPREAD_S = (0.1, 0.5)
"""How long after a loss name servers are asked. They have to notice it too, connections that are
lost together are one question, and all clients of a broker lose it in the same moment."""


class RoutePolls:
    """Keeps the routes of one client's members fresh."""

    def __init__(
        self,
        members: Members,
        routes: RouteTable,
        *,
        poll_s: float,
        rng: random.Random,
        log: logging.Logger,
    ) -> None:
        self._members = members
        self._routes = routes
        self._poll_s = poll_s
        self._unanswered = Backoff(longest_s=poll_s, rng=rng)
        """While no name server answers."""
        self._away = Backoff(longest_s=poll_s)
        """While a lost broker is away."""
        self._rng = rng
        self._log = log
        self._lost: dict[str, set[str]] = {}
        """Addresses of brokers to which a connection has ended, and the topics they served."""
        self._loss = asyncio.Event()

    async def run(self) -> None:
        """Poll, for ever."""
        await asyncio.sleep(_FIRST_POLL_S)
        failures = 0
        while True:
            failures = 0 if await self._refresh(self._members.topics()) else failures + 1
            await asyncio.sleep(self._unanswered.wait_s(failures) if failures else self._poll_s)

    def lost(self, address: str) -> None:
        """A connection ended: if it led to a broker, look whether that is still there."""
        topics = self._routes.topics_naming(address)
        if topics:
            self._lost[address] = topics
            self._loss.set()

    async def follow_losses(self) -> None:
        """Refresh the routes that name lost brokers, for ever."""
        away: dict[str, set[str]] = {}
        while True:
            await self._loss.wait()
            await asyncio.sleep(self._rng.uniform(*_SPREAD_S))
            self._loss.clear()
            lost, self._lost = self._lost, {}
            away = await self._find_again(away | lost)

    async def _find_again(self, away: dict[str, set[str]]) -> dict[str, set[str]]:
        """Ask until these brokers are in their routes again or polls come as often; those that are
        still away when another one is lost."""
        for rounds in count(1):
            await self._refresh(set().union(*away.values()) & self._members.topics())
            away = {
                address: topics
                for address, topics in away.items()
                if not topics <= self._routes.topics_naming(address)
            }
            pause_s = self._away.wait_s(rounds)
            if not away or pause_s >= self._poll_s:
                return {}
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._loss.wait()
                    break
        return away

    async def _refresh(self, topics: Iterable[str]) -> bool:
        """Ask for routes; failures leave what is cached. Whether there was a name server to ask."""
        now_s = asyncio.get_running_loop().time()
        for topic in sorted(topics):
            if self._routes.is_lent(topic, now_s):
                continue
            try:
                await self._routes.refresh(topic)
            except NoRoute as error:
                self._log.info("%s; the cached route stays", error)
                return False
            except ClientError as error:
                self._log.warning("route of %s not refreshed: %s", topic, error)
        return True
