"""Polling name servers for the routes of what members send and read."""

import asyncio
import logging

from sparrowmq.backoff import Backoff
from sparrowmq.client.client_members import Members
from sparrowmq.client.errors import ClientError, NoRoute
from sparrowmq.client.route_table import RouteTable

_FIRST_POLL_S = 0.01


class RoutePolls:
    """Keeps the routes of one client's members fresh."""

    def __init__(
        self,
        members: Members,
        routes: RouteTable,
        *,
        poll_s: float,
        backoff: Backoff,
        log: logging.Logger,
    ) -> None:
        """While no name server answers, `backoff` says when they are asked again."""
        self._members = members
        self._routes = routes
        self._poll_s = poll_s
        self._backoff = backoff
        self._log = log

    async def run(self) -> None:
        """Poll, for ever."""
        await asyncio.sleep(_FIRST_POLL_S)
        failures = 0
        while True:
            failures = 0 if await self._poll() else failures + 1
            await asyncio.sleep(self._backoff.wait_s(failures) if failures else self._poll_s)

    async def _poll(self) -> bool:
        """Ask for the route of every topic a member needs; failures leave what is cached.

        Whether there was a name server to ask.
        """
        now_s = asyncio.get_running_loop().time()
        for topic in sorted(self._members.topics()):
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
