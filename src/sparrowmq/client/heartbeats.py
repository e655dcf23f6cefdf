"""Heartbeats, which tell brokers which members a client has."""

import asyncio
import math
from collections.abc import Collection, Iterable
from contextlib import suppress

from sparrowmq.client.config import ClientConfig
from sparrowmq.client.members import Members
from sparrowmq.client.outage_log import Outages
from sparrowmq.client.route_table import RouteTable
from sparrowmq.client.session_keepalive import send_keepalive
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
    """Registers the members of one client at brokers. Before its first heartbeat a broker knows
    none of them."""

    def __init__(
        self,
        client_id: str,
        members: Members,
        *,
        config: ClientConfig,
        peers: Peers,
        route_table: RouteTable,
        sessions: Sessions,
        tasks: asyncio.TaskGroup,
        outages: Outages,
    ) -> None:
        self._client_id = client_id
        self._members = members
        self._config = config
        self._peers = peers
        self._route_table = route_table
        self._sessions = sessions
        self._tasks = tasks
        self._outages = outages
        self._was_sent: set[str] = set()
        """Addresses of brokers that were sent a heartbeat on their present connection."""
        self._known_s: dict[str, float] = {}
        """Since when each broker has known this client, by address."""

    async def run(self) -> None:
        """Send heartbeats at the regular interval, forever."""
        while True:
            await asyncio.sleep(self._config.heartbeat_s)
            await self.send_everywhere()

    async def send_everywhere(self) -> None:
        """Send a heartbeat to every known broker, skipping those that cannot be reached."""
        addresses = [
            address
            for _, broker_id, address in self._route_table.all_addresses()
            if self._members.consumers or broker_id == MASTER_ID
        ]
        await self.send_to(sorted(set(addresses)))

    async def send_to(self, addresses: Iterable[str]) -> set[str]:
        """Send a heartbeat to these brokers. Returns those that answered."""
        body = self._body()
        brokers = tuple(addresses)
        self._was_sent.update(brokers)
        arrived = await asyncio.gather(*(self._send(address, body) for address in brokers))
        return {address for address, has_it in zip(brokers, arrived, strict=True) if has_it}

    def lost(self, address: str) -> None:
        """A connection closed: when that broker is back, it may know fewer members."""
        self._was_sent.discard(address)
        self._known_s.pop(address, None)

    async def reach_new_brokers(self, route: TopicRoute) -> None:
        """Send a heartbeat to brokers that a route names for the first time, ahead of the regular
        ones."""
        named = {at for broker in route.broker_datas for at in broker.broker_addrs.values()}
        if new := named - self._was_sent:
            await self.send_to(sorted(new))

    def best_informed(self, addresses: Collection[str]) -> list[str]:
        """The brokers among these that know the most members of a group.

        A member finds a new broker by its own poll of the route and sends it a heartbeat no later
        than one heartbeat interval after that. A broker that this client has known for longer than
        both intervals therefore knows every member. If none has been known for that long, those
        known the longest are the best choice.
        """
        known_s = {address: self._known_s.get(address, math.inf) for address in addresses}
        settled_s = self._config.route_poll_s + self._config.heartbeat_s
        latest_s = asyncio.get_running_loop().time() - settled_s
        latest_s = max(latest_s, min(known_s.values(), default=math.inf))
        return [address for address in addresses if known_s[address] <= latest_s]

    async def confirm(self, address: str) -> bool:
        """Ask a broker now whether it knows our members."""
        sessions = self._sessions
        session = sessions.get(address)
        if session is not None:
            await send_keepalive(self._peers, session, sessions.now_s, sessions.ended)
            if not session.is_over:
                return sessions.is_sure(address)
        return await self._send(address, self._body())

    def _body(self) -> bytes:
        return self._members.heartbeat(self._client_id).to_json()

    async def _send(self, address: str, body: bytes) -> bool:
        """Send a heartbeat. Returns whether it arrived."""
        wants_session = bool(self._members.consumers) and self._config.fast_heartbeat
        header = Heartbeat(session=NEW_SESSION if wants_session else None)
        sent_s, now_s = self._sessions.now_s(), asyncio.get_running_loop().time()
        try:
            timeout_s = self._config.call_timeout_s
            response = await self._peers.call(address, header, body, timeout_s=timeout_s)
            answer = response.header(HeartbeatAnswer)
        except (NetError, ProtocolError) as error:
            self._outages.failed(self._route_table.label(address), error)
            self._known_s.pop(address, None)
            self._sessions.unanswered(address)
            return False
        if response.code == ResponseCode.SUCCESS:
            self._known_s.setdefault(address, now_s)
        if self._outages.is_any:
            self._outages.reached(self._route_table.label(address))
        if response.code == ResponseCode.SUCCESS and self._members.consumers:
            life_s = (answer.session_ms or 0) / 1000
            self._sessions.answered(address, answer.session if life_s else None, life_s, sent_s)
        return response.code == ResponseCode.SUCCESS

    async def unregister(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Unregister a group at every broker."""
        if consumer_group and not self._members.consumers:
            self._sessions.end_all()
        header = UnregisterClient(
            client_id=self._client_id,
            producer_group=producer_group or None,
            consumer_group=consumer_group or None,
        )
        for address in {address for _, _, address in self._route_table.all_addresses()}:
            with suppress(NetError):
                await self._peers.call(address, header, timeout_s=self._config.call_timeout_s)

    def unregister_later(self, consumer_group: str) -> None:
        """Like `unregister`, without waiting."""
        unregister = self.unregister(consumer_group=consumer_group)
        try:
            self._tasks.create_task(unregister, name="unregister")
        except RuntimeError:  # the client is ending: brokers notice that its connections close
            unregister.close()
