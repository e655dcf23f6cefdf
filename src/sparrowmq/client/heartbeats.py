"""Telling brokers who lives here: heartbeats while members run, a goodbye when one leaves."""

import asyncio
import logging
import math
from collections.abc import Collection, Iterable
from contextlib import suppress

from sparrowmq.client.config import ClientConfig
from sparrowmq.client.members import Members
from sparrowmq.client.route_table import RouteTable
from sparrowmq.client.session_keepalive import beat
from sparrowmq.client.sessions import Sessions
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.clients import (
    NEW_SESSION,
    Heartbeat,
    HeartbeatAnswer,
    UnregisterClient,
)
from sparrowmq.protocol.route import MASTER_ID, TopicRoute


class Heartbeats:
    """What one client tells brokers of its members. Until then they count nobody of them."""

    def __init__(
        self,
        client_id: str,
        members: Members,
        *,
        config: ClientConfig,
        peers: Peers,
        routes: RouteTable,
        sessions: Sessions,
        tasks: asyncio.TaskGroup,
        log: logging.Logger,
    ) -> None:
        self._client_id = client_id
        self._members = members
        self._config = config
        self._peers = peers
        self._routes = routes
        self._sessions = sessions
        self._tasks = tasks
        self._log = log
        self._met_s: dict[str, float] = {}
        """When each broker was sent its first heartbeat, by address."""

    async def run(self) -> None:
        """Tell everybody at the regular times, for ever."""
        while True:
            await asyncio.sleep(self._config.heartbeat_s)
            await self.send_everywhere()

    async def send_everywhere(self) -> None:
        """Tell every known broker; one that cannot be reached is skipped."""
        addresses = [
            address
            for _, broker_id, address in self._routes.all_addresses()
            if self._members.consumers or broker_id == MASTER_ID
        ]
        await self.send_to(sorted(set(addresses)))

    async def send_to(self, addresses: Iterable[str]) -> set[str]:
        """Tell these brokers; those that have heard it."""
        body = self._body()
        told = tuple(addresses)
        now_s = asyncio.get_running_loop().time()
        for address in told:
            self._met_s.setdefault(address, now_s)
        heard = await asyncio.gather(*(self._send(address, body) for address in told))
        return {address for address, has_heard in zip(told, heard, strict=True) if has_heard}

    async def meet(self, route: TopicRoute) -> None:
        """Tell brokers that a route has brought, before the next regular heartbeat."""
        everybody = {at for broker in route.broker_datas for at in broker.broker_addrs.values()}
        if strangers := everybody.difference(self._met_s):
            await self.send_to(sorted(strangers))

    def best_informed(self, addresses: Collection[str]) -> list[str]:
        """Those of these brokers that know most members of a group.

        A member finds a new broker by its own poll of the route and sends it a heartbeat no later
        than one heartbeat interval after that. A broker that this client has known for longer than
        both intervals therefore knows every member. Where none has been known for that long, the
        ones that have been known longest are the best there are.
        """
        met_s = {address: self._met_s.get(address, math.inf) for address in addresses}
        settled_s = self._config.route_poll_s + self._config.heartbeat_s
        latest_s = asyncio.get_running_loop().time() - settled_s
        latest_s = max(latest_s, min(met_s.values(), default=math.inf))
        return [address for address in addresses if met_s[address] <= latest_s]

    async def confirm(self, address: str) -> bool:
        """Whether a broker that was asked just now knows who lives here."""
        sessions = self._sessions
        session = sessions.get(address)
        if session is not None:
            await beat(self._peers, session, sessions.now_s, sessions.ended)
            if not session.is_over:
                return sessions.is_sure(address)
        return await self._send(address, self._body())

    def _body(self) -> bytes:
        return self._members.heartbeat(self._client_id).to_json()

    async def _send(self, address: str, body: bytes) -> bool:
        """Whether it arrived."""
        wants_session = bool(self._members.consumers) and self._config.fast_heartbeat
        header = Heartbeat(session=NEW_SESSION if wants_session else None)
        sent_s = self._sessions.now_s()
        try:
            timeout_s = self._config.call_timeout_s
            response = await self._peers.call(address, header, body, timeout_s=timeout_s)
            answer = response.header(HeartbeatAnswer)
        except (NetError, ProtocolError) as error:
            self._log.info("no heartbeat to %s: %s", address, error)
            return False
        if response.code == ResponseCode.SUCCESS and self._members.consumers:
            life_s = (answer.session_ms or 0) / 1000
            self._sessions.answered(address, answer.session if life_s else None, life_s, sent_s)
        return response.code == ResponseCode.SUCCESS

    async def unregister(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Say goodbye for a group everywhere."""
        if consumer_group and not self._members.consumers:
            self._sessions.end_all()
        header = UnregisterClient(
            client_id=self._client_id,
            producer_group=producer_group or None,
            consumer_group=consumer_group or None,
        )
        for address in {address for _, _, address in self._routes.all_addresses()}:
            with suppress(NetError):
                await self._peers.call(address, header, timeout_s=self._config.call_timeout_s)

    def unregister_later(self, consumer_group: str) -> None:
        """The same without waiting."""
        goodbye = self.unregister(consumer_group=consumer_group)
        try:
            self._tasks.create_task(goodbye, name="goodbye")
        except RuntimeError:  # everything ends already, and brokers see that
            goodbye.close()
