"""Keeps the routes of a client fresh.

poll         every topic a member needs, every `poll_s`
lost broker  the topics whose routes named it, at once; if it is gone from a route or cannot be
             reached, again after 1, 2, 4, … s until it is back, since a broker that restarts is
             away for seconds, and may have another address then; every 4 s for some minutes if a
             slave stands in for it and ordered queues wait
"""

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import count

from sparrowmq.backoff import Backoff
from sparrowmq.client.errors import ClientError, NoRoute
from sparrowmq.client.members import Members
from sparrowmq.client.outage_log import Outages
from sparrowmq.client.route_table import RouteTable
from sparrowmq.protocol.names import AUTO_CREATE_TOPIC

_FIRST_POLL_S = 0.01
_SPREAD_S = (0.1, 0.5)
"""How long to wait after a loss before asking name servers. They have to notice it too, connections
lost together share one request, and all clients of a broker lose it at the same moment."""
_MASTER_S = 4.0
_MASTER_ROUNDS = 75
"""How long to look for a master more often than by polls: five minutes."""


class RoutePolls:
    """Keeps the routes of one client's members fresh."""

    def __init__(
        self,
        members: Members,
        route_table: RouteTable,
        *,
        outages: Outages,
        poll_s: float,
        rng: random.Random,
        log: logging.Logger,
    ) -> None:
        self._members = members
        self._route_table = route_table
        self._outages = outages
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
        """Poll forever."""
        await asyncio.sleep(_FIRST_POLL_S)
        failures = 0
        while True:
            failures = 0 if await self._refresh(self._members.topics()) else failures + 1
            await asyncio.sleep(self._unanswered.wait_s(failures) if failures else self._poll_s)

    def lost(self, address: str) -> None:
        """A connection closed: if it led to a broker, check whether that is still there."""
        topics = self._route_table.topics_naming(address)
        if topics:
            self._lost[address] = topics
            self._loss.set()

    async def follow_losses(self) -> None:
        """Forever refresh the routes that name lost brokers."""
        away: dict[str, set[str]] = {}
        while True:
            await self._loss.wait()
            await asyncio.sleep(self._rng.uniform(*_SPREAD_S))
            self._loss.clear()
            lost, self._lost = self._lost, {}
            away = await self._find_again(away | lost)

    async def _find_again(self, away: dict[str, set[str]]) -> dict[str, set[str]]:
        """Ask until these brokers are in their routes again and can be reached there, or polls ask
        as often anyway. Returns those that are still away when another broker is lost."""
        for rounds in count(1):
            polled = self._members.topics()
            asked = self._to_ask(set().union(*away.values()) & polled)
            await self._refresh(asked)
            # A topic of which it was the only broker has no route now, and keeps its last one.
            gone = {topic for topic in polled | asked if self._route_table.is_gone(topic)}
            away = {
                address: topics
                for address, topics in away.items()
                if topics & gone
                or not topics <= self._route_table.topics_naming(address)
                or self._outages.is_away(self._route_table.label(address))
            }
            pause_s = self._away.wait_s(rounds)
            if rounds <= _MASTER_ROUNDS and self._lacks_a_master(away):
                pause_s = min(pause_s, _MASTER_S)
            if not away or pause_s >= self._poll_s:
                return {}
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._loss.wait()
                    break
        return away

    def _to_ask(self, topics: set[str]) -> set[str]:
        """The topics whose routes show where the brokers of these are: those that use the default
        topic's route must keep it for now, but its brokers may be elsewhere."""
        now_s = asyncio.get_running_loop().time()
        lent = {topic for topic in topics if self._route_table.is_lent(topic, now_s)}
        return topics - lent | {AUTO_CREATE_TOPIC} if lent else topics

    def _lacks_a_master(self, away: Mapping[str, set[str]]) -> bool:
        routes = (self._route_table.get(topic) for topics in away.values() for topic in topics)
        return any(
            data.master_addr is None
            for route in routes
            if route is not None
            for data in route.broker_datas
        )

    async def _refresh(self, topics: Iterable[str]) -> bool:
        """Fetch routes; failures leave the cache as it is. Returns whether a name server could be
        asked."""
        now_s = asyncio.get_running_loop().time()
        for topic in sorted(topics):
            if self._route_table.is_lent(topic, now_s):
                continue
            try:
                await self._route_table.refresh(topic)
            except NoRoute as error:
                self._log.debug("%s; the cached route stays", error)
                return False
            except ClientError as error:
                self._log.warning("route of %s not refreshed: %s", topic, error)
        return True
