"""What producers and consumers of one process share: connections, routes, heartbeats."""

import asyncio
import itertools
import logging
import math
import os
import random
from collections.abc import Callable, Iterable
from contextlib import suppress

from sparrowmq.client.backoff import Backoff
from sparrowmq.client.beats import BeatPlace, Beats, OwnThread, beat
from sparrowmq.client.client_members import ConsumerMember, Member, ProducerMember
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.errors import ClientError, NoRoute, NotStarted
from sparrowmq.client.members_here import MEMBERS_OF_PROCESS, MembersHere
from sparrowmq.client.name_servers import NameServers
from sparrowmq.client.own_address import find_own_address, packed
from sparrowmq.client.route_table import RouteTable
from sparrowmq.client.sessions import Sessions
from sparrowmq.clock import Clock, system_clock
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Routes
from sparrowmq.net.task_owner import TaskOwner
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import ProtocolError
from sparrowmq.protocol.headers.clients import (
    NEW_SESSION,
    Heartbeat,
    HeartbeatAnswer,
    UnregisterClient,
)
from sparrowmq.protocol.heartbeat import HeartbeatData, ProducerData
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.protocol.route import TopicRoute

_FIRST_POLL_S = 0.01
_numbers = itertools.count()


class Client:
    """One client id. Started once, shared by any number of producers and consumers.

    Calls that brokers make (rebalance notices, transaction checks, …) go to `routes` with this
    client as the context, where members are found by group. Left out, all of them are served.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        routes: Routes["Client"] | None = None,
        clock: Clock = system_clock,
        rng: random.Random | None = None,
        log: logging.Logger | None = None,
        pid: int | None = None,
        beats_from: BeatPlace | None = None,
        members_here: MembersHere | None = None,
    ) -> None:
        """Beats of consumers come from a thread of their own unless `beats_from` says otherwise.
        `members_here` are the consumers of this process, of which simulations have several."""
        self.config = config
        self.clock = clock
        self.rng = rng if rng is not None else random.Random()
        self.log = log if log is not None else logging.getLogger("sparrowmq.client")
        self.pid = os.getpid() if pid is None else pid
        self.client_id = ""
        self.producers: dict[str, ProducerMember] = {}
        self.consumers: dict[str, ConsumerMember] = {}
        self._backoff = Backoff(longest_s=config.route_poll_s, rng=self.rng)
        self.unique_ids: UniqueIds
        self.peers: Peers
        self.name_servers: NameServers
        self.route_table: RouteTable
        self._owner = TaskOwner()
        self._home: asyncio.AbstractEventLoop | None = None
        self._routes: Routes[Client] = routes if routes is not None else _all_routes()
        self.members_here = MEMBERS_OF_PROCESS if members_here is None else members_here
        place = beats_from if beats_from is not None else OwnThread()
        self.sessions = Sessions(place.now_s)
        self._beats = Beats(self.sessions, place)
        self._met_s: dict[str, float] = {}
        """When brokers were first told who lives here, by address."""
        self._closed_listeners: list[Callable[[str], None]] = [self.sessions.closed]

    @property
    def tasks(self) -> asyncio.TaskGroup:
        """Owns every task of this client's members."""
        return self._owner.tasks

    @property
    def is_running(self) -> bool:
        """Whether it was started and not stopped."""
        return self._owner.is_running

    async def start(self) -> None:
        """Make connections possible and begin to poll routes and send heartbeats.

        Raises ValueError when it runs already, NotStarted when it was stopped."""
        if self._owner.is_running:
            raise ValueError("this client is running already, it is started once")
        if self._owner.is_over:
            raise NotStarted("what was stopped cannot be started again: make another one")
        servers = self.config.name_servers
        ip = self.config.client_ip or await find_own_address(servers[0])
        self._home = asyncio.get_running_loop()
        await self._owner.start()
        self.peers = Peers(
            self.tasks,
            log=self.log,
            context=self,
            routes=self._routes,
            connect_timeout_s=self.config.connect_timeout_s,
            closed=self._peer_closed,
        )
        self.name_servers = NameServers(
            self.peers,
            servers,
            first=self.rng.randrange(len(servers)),
            timeout_s=self.config.name_server_timeout_s,
        )
        self.route_table = RouteTable(self.name_servers)
        self._beats.start(self.peers, self.tasks)
        self.client_id = self._make_client_id(ip)
        self.unique_ids = UniqueIds(
            self.clock, ip=packed(ip), pid=self.pid, instance=self.rng.getrandbits(32)
        )
        self.tasks.create_task(self._poll_routes(), name="route poll")
        self.tasks.create_task(self._send_heartbeats(), name="heartbeats")

    async def stop(self) -> None:
        """End connections and tasks. Members leave before. Does nothing when not started."""
        if not self._owner.is_running:
            return
        self._beats.stop()
        try:
            await self.peers.close()
        finally:
            await self._owner.stop()

    def check_loop(self) -> None:
        """Raises NotStarted on another loop than the one it was started on: connections belong to
        theirs, and calls would fail in ways that explain nothing."""
        if self._home is not asyncio.get_running_loop():
            raise NotStarted(
                "started on another event loop: start one in each asyncio.run, or use"
                " sparrowmq.blocking"
            )

    async def make_ready(self, *, is_own: bool) -> None:
        """For a member that starts: run, if this client is the member's own. Raises NotStarted
        where it is somebody else's and does not run."""
        if self.is_running:
            return
        if not is_own:
            raise NotStarted("the client is not running: await its start() first")
        await self.start()

    def _make_client_id(self, ip: str) -> str:
        # pid#number as Java's changeInstanceNameToPID, so that two clients never share an id
        # The random part tells containers apart that share an address, a pid and a start time.
        own = f"{self.clock()}{next(_numbers)}{self.rng.getrandbits(32)}"
        name = self.config.instance_name or f"{self.pid}#{own}"
        unit = f"@{self.config.unit_name}" if self.config.unit_name else ""
        return f"{ip}@{name}{unit}"

    # ---- heartbeats

    async def heartbeat_everywhere(self) -> None:
        """Tell every known broker who lives here; one that cannot be reached is skipped."""
        addresses = [
            address
            for _, broker_id, address in self.route_table.all_addresses()
            if self.consumers or broker_id == 0
        ]
        await self.heartbeat_to(sorted(set(addresses)))

    async def heartbeat_to(self, addresses: Iterable[str]) -> set[str]:
        """Tell these brokers who lives here; those that have heard it."""
        body = self._heartbeat().to_json()
        told = tuple(addresses)
        now_s = asyncio.get_running_loop().time()
        for address in told:
            self._met_s.setdefault(address, now_s)
        heard = await asyncio.gather(*(self._heartbeat_to(address, body) for address in told))
        return {address for address, has_heard in zip(told, heard, strict=True) if has_heard}

    async def meet(self, route: TopicRoute) -> None:
        """Tell brokers that a route has brought, before the next regular heartbeat, who lives here:
        until then they count nobody of us among the members of a group."""
        everybody = {at for broker in route.broker_datas for at in broker.broker_addrs.values()}
        if strangers := everybody.difference(self._met_s):
            await self.heartbeat_to(sorted(strangers))

    def has_met_all(self, address: str) -> bool:
        """Whether a broker has been known for so long that others must have heard of it too: each
        finds it by its own polls of the route, and tells it of itself no later than a beat after.
        """
        since_s = asyncio.get_running_loop().time() - self._met_s.get(address, math.inf)
        return since_s >= self.config.route_poll_s + self.config.heartbeat_s

    def _heartbeat(self) -> HeartbeatData:
        datas = (member.consumer_data() for member in self.consumers.values())
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=tuple(ProducerData(group_name=group) for group in self.producers),
            consumer_data_set=tuple(data for data in datas if data is not None),
        )

    async def confirm(self, address: str) -> bool:
        """Whether a broker that was asked just now knows who lives here."""
        session = self.sessions.get(address)
        if session is not None:
            await beat(self.peers, session, self.sessions.now_s, self.sessions.ended)
            if not session.is_over:
                return self.sessions.is_sure(address)
        return await self._heartbeat_to(address, self._heartbeat().to_json())

    async def _heartbeat_to(self, address: str, body: bytes) -> bool:
        """Whether it arrived."""
        wants_session = bool(self.consumers) and self.config.fast_heartbeat
        header = Heartbeat(session=NEW_SESSION if wants_session else None)
        sent_s = self.sessions.now_s()
        try:
            timeout_s = self.config.call_timeout_s
            response = await self.peers.call(address, header, body, timeout_s=timeout_s)
            answer = response.header(HeartbeatAnswer)
        except (NetError, ProtocolError) as error:
            self.log.info("no heartbeat to %s: %s", address, error)
            return False
        if response.code == ResponseCode.SUCCESS and self.consumers:
            life_s = (answer.session_ms or 0) / 1000
            self.sessions.answered(address, answer.session if life_s else None, life_s, sent_s)
        return response.code == ResponseCode.SUCCESS

    async def unregister(self, *, producer_group: str = "", consumer_group: str = "") -> None:
        """Say goodbye for a group everywhere."""
        if consumer_group and not self.consumers:
            self.sessions.end_all()
        header = UnregisterClient(
            client_id=self.client_id,
            producer_group=producer_group or None,
            consumer_group=consumer_group or None,
        )
        for address in {address for _, _, address in self.route_table.all_addresses()}:
            with suppress(NetError):
                await self.peers.call(address, header, timeout_s=self.config.call_timeout_s)

    def unregister_later(self, consumer_group: str) -> None:
        """The same without waiting."""
        goodbye = self.unregister(consumer_group=consumer_group)
        try:
            self.tasks.create_task(goodbye, name="goodbye")
        except RuntimeError:  # everything ends already, and brokers see that
            goodbye.close()

    async def _send_heartbeats(self) -> None:
        while True:
            await asyncio.sleep(self.config.heartbeat_s)
            await self.heartbeat_everywhere()

    # ---- routes

    async def _poll_routes(self) -> None:
        await asyncio.sleep(_FIRST_POLL_S)
        failures = 0
        while True:
            failures = 0 if await self.refresh_routes() else failures + 1
            poll_s = self.config.route_poll_s
            await asyncio.sleep(self._backoff.wait_s(failures) if failures else poll_s)

    async def refresh_routes(self) -> bool:
        """Ask for the route of every topic a member needs; failures leave what is cached.

        Whether there was a name server to ask.
        """
        members: list[Member] = [*self.producers.values(), *self.consumers.values()]
        now_s = asyncio.get_running_loop().time()
        for topic in sorted(set[str]().union(*(member.topics() for member in members))):
            if self.route_table.is_lent(topic, now_s):
                continue
            try:
                await self.route_table.refresh(topic)
            except NoRoute as error:
                self.log.info("%s; the cached route stays", error)
                return False
            except ClientError as error:
                self.log.warning("route of %s not refreshed: %s", topic, error)
        return True

    def when_peer_closes(self, listener: Callable[[str], None]) -> None:
        """Be told the address of every connection that ends."""
        self._closed_listeners.append(listener)

    def _peer_closed(self, address: str) -> None:
        for listener in self._closed_listeners:
            listener(address)


def _all_routes() -> Routes[Client]:
    """What producers and consumers answer: a client that is shared may get either."""
    from sparrowmq.client.group import consumer_calls  # they need this module
    from sparrowmq.client.sending import producer_calls

    routes: Routes[Client] = Routes()
    routes.include(consumer_calls.routes, producer_calls.routes)
    return routes
