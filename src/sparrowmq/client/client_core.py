"""The internals of a `Client` that its members use: connections, routes, heartbeats, tasks."""

import asyncio
import ipaddress
import itertools
import logging
import os
import random
import socket
from collections.abc import Callable
from typing import Any

from sparrowmq.backoff import Backoff
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.errors import BrokerRefused, NotStarted
from sparrowmq.client.failures import Loop, keep_running
from sparrowmq.client.heartbeats import Heartbeats
from sparrowmq.client.members import CONSUMERS_OF_PROCESS, Members, ProcessConsumers
from sparrowmq.client.name_servers import NameServers
from sparrowmq.client.outage_log import Outages
from sparrowmq.client.route_polls import RoutePolls
from sparrowmq.client.route_table import RouteTable
from sparrowmq.client.session_keepalive import KeepalivePlace, KeepaliveThread, SessionKeepalive
from sparrowmq.client.sessions import Sessions
from sparrowmq.clock import Clock, system_clock
from sparrowmq.net.errors import CallTimedOut, ConnectionLost
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Routes
from sparrowmq.net.tasks import TaskOwner
from sparrowmq.protocol.ids import UniqueIds

_ANOTHER_LOOP = (
    "started on another event loop: start one in each asyncio.run, or use sparrowmq.blocking"
)
_STOPPED = "the client was stopped before its producers and consumers: create a new one"


class ClientCore:
    """One client id. Started once, shared by any number of producers and consumers.

    Requests from brokers (rebalance notices, transaction checks, …) go to `routes` with this
    client as the context; the handlers find members by group. Without `routes`, the client serves
    all of these requests.
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        routes: Routes["ClientCore"] | None = None,
        clock: Clock = system_clock,
        rng: random.Random | None = None,
        log: logging.Logger | None = None,
        pid: int | None = None,
        keepalive_from: KeepalivePlace | None = None,
        process_consumers: ProcessConsumers | None = None,
    ) -> None:
        """A dedicated thread sends session keep-alives unless `keepalive_from` says otherwise.
        `process_consumers` are the consumers of this process; a simulation has one such object per
        host."""
        self.config = config
        self.clock = clock
        self.rng = rng if rng is not None else random.Random()
        self.log = log if log is not None else logging.getLogger("sparrowmq.client")
        self.pid = os.getpid() if pid is None else pid
        self.client_id = ""
        self._members = Members()
        self.producers = self._members.producers
        self.consumers = self._members.consumers
        self.unique_ids: UniqueIds
        self.peers: Peers
        self.name_servers: NameServers
        self.route_table: RouteTable
        self.heartbeats: Heartbeats
        self.failure: BaseException | None = None
        """What ended the client's tasks without `stop`; after that its members do nothing."""
        self._owner = TaskOwner(self._died)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._home: asyncio.AbstractEventLoop | None = None
        """The loop, while calls on it are possible, so that each call needs one comparison."""
        self._routes: Routes[ClientCore] = routes if routes is not None else _all_routes()
        self.process_consumers = (
            CONSUMERS_OF_PROCESS if process_consumers is None else process_consumers
        )
        place = keepalive_from if keepalive_from is not None else KeepaliveThread()
        self.sessions = Sessions(place.now_s)
        self._keepalive = SessionKeepalive(self.sessions, place)
        self._closed_listeners: list[Callable[[str], None]] = [self.sessions.closed]

    @property
    def tasks(self) -> asyncio.TaskGroup:
        """Owns every task of this client's members."""
        return self._owner.tasks

    @property
    def is_running(self) -> bool:
        """Whether the client was started and has not been stopped."""
        return self._owner.is_running

    @property
    def is_ending(self) -> bool:
        """Whether its tasks are being cancelled, by `stop` or because one of them failed."""
        return self._owner.is_ending

    def keep(
        self, loop: Loop, name: str, *, may_end: Callable[[], bool] = lambda: True
    ) -> asyncio.Task[None]:
        """Run a loop in the background until it is cancelled: an exception is logged, and the loop
        starts again."""
        backoff = Backoff(rng=self.rng)
        kept = keep_running(loop, name, log=self.log, backoff=backoff, may_end=may_end)
        return self.tasks.create_task(kept, name=name)

    async def start(self) -> None:
        """Set up connections and start polling routes and sending heartbeats.

        Raises ValueError if the client is already running, NotStarted if it was stopped."""
        if self._owner.is_running:
            raise ValueError("this client is already running; start() can be called once")
        if self._owner.is_over:
            raise NotStarted("what was stopped cannot be started again: create a new one")
        ip = self.config.client_ip or await find_own_address(self.config.name_servers[0])
        self._loop = self._home = asyncio.get_running_loop()
        await self._owner.start()
        self._connect()
        self._choose_ids(ip)
        self._start_loops()

    def _connect(self) -> None:
        servers = self.config.name_servers
        self.peers = Peers(
            self.tasks,
            log=self.log,
            context=self,
            routes=self._routes,
            connect_timeout_s=self.config.connect_timeout_s,
            closed=self._peer_closed,
        )
        self.outages = Outages(self.log, asyncio.get_running_loop().time)
        self.name_servers = NameServers(
            self.peers,
            servers,
            outages=self.outages,
            origin=self.config.name_servers_from,
            first=self.rng.randrange(len(servers)),
            timeout_s=self.config.name_server_timeout_s,
        )
        self.route_table = RouteTable(self.name_servers)
        self._keepalive.start(self.peers, self.tasks)

    def _choose_ids(self, ip: str) -> None:
        self.client_id = make_client_id(
            self.config, ip=ip, pid=self.pid, now_ms=self.clock(), rng=self.rng
        )
        self.unique_ids = UniqueIds(
            self.clock, ip=packed(ip), pid=self.pid, instance=self.rng.getrandbits(32)
        )

    def _start_loops(self) -> None:
        self.heartbeats = Heartbeats(
            self.client_id,
            self._members,
            config=self.config,
            peers=self.peers,
            route_table=self.route_table,
            sessions=self.sessions,
            tasks=self.tasks,
            outages=self.outages,
        )
        polls = RoutePolls(
            self._members,
            self.route_table,
            outages=self.outages,
            poll_s=self.config.route_poll_s,
            rng=self.rng,
            log=self.log,
        )
        self.when_peer_closes(polls.lost)
        self.when_peer_closes(self.heartbeats.lost)
        self.keep(polls.run, "route poll")
        self.keep(polls.follow_losses, "routes of lost brokers")
        self.keep(self.heartbeats.run, "heartbeats")

    def broker_failed(self, error: Exception) -> bool:
        """Note that a broker could not be reached. Returns whether this is part of its outage,
        which is logged once for the whole client, however many of its parts meet it. So is a
        refusal by a broker that has just come back and does not know our members yet."""
        if not isinstance(error, ConnectionLost | CallTimedOut | BrokerRefused):
            return False
        broker = self.route_table.label(error.address)
        if isinstance(error, BrokerRefused):
            if not self.outages.is_away(broker):
                return False
            self.heartbeats.lost(error.address)  # or it would be told with the next regular one
        self.outages.failed(broker, error)
        return True

    def broker_answered(self, address: str) -> None:
        """A broker answered. Callers ask `outages.is_any` first, so that it costs nothing."""
        self.outages.reached(self.route_table.label(address))

    def _died(self, error: BaseException) -> None:
        """Log the end of the tasks: if no caller is waiting for them, it would go unnoticed."""
        self.failure = error
        self._home = None
        members = [*self.producers, *self.consumers]
        is_failure = not isinstance(error, asyncio.CancelledError | KeyboardInterrupt | SystemExit)
        self.log.log(
            logging.ERROR if is_failure else logging.WARNING,
            "client %s has ended without stop(), and with it groups %s: %s",
            self.client_id,
            ", ".join(members) or "(none)",
            self._cause(error),
            exc_info=error if is_failure else None,
        )

    def _cause(self, error: BaseException) -> str:
        """Most often the main function of a first program returned right after start()."""
        if not isinstance(error, asyncio.CancelledError):
            return repr(error)
        forever = "; to consume until then, await run()" if self.consumers else ""
        return (
            "its tasks were cancelled, as when the event loop ends; before that call stop(), or use"
            f" `async with`{forever}"
        )

    async def ended(self) -> None:
        """Return when the client's tasks have ended, for whatever reason."""
        await self._owner.ended()

    async def stop(self) -> None:
        """Close connections and end tasks, after the members have left. Does nothing if not
        started."""
        if not self._owner.is_running:
            return
        self._home = None
        self._keepalive.stop()
        self.outages.end()
        try:
            await self.peers.close()
        finally:
            await self._owner.stop()

    def check_loop(self) -> None:
        """Raises NotStarted if the client has died or was stopped, or if this is not the event loop
        it was started on: connections belong to their loop, and calls from another one would fail
        with errors that explain nothing."""
        if self._home is not asyncio.get_running_loop():
            self.check_alive()
            raise NotStarted(_STOPPED if self._owner.is_over else _ANOTHER_LOOP)

    def check_alive(self) -> None:
        """Raises NotStarted if the client ended without `stop`; the text names the cause."""
        if self.failure is None:
            return
        text = f"the client has ended without stop(): {self.failure!r}; create a new one"
        is_end_of_loop = self._loop is not None and self._loop.is_closed()
        raise NotStarted(_ANOTHER_LOOP if is_end_of_loop else text) from self.failure

    async def make_ready(self, *, is_own: bool) -> None:
        """Called by a member that starts: start this client if only that member uses it. Raises
        NotStarted if the client is shared and not running."""
        if self.is_running:
            return
        if not is_own:
            raise NotStarted("the client is not running: await its start() first")
        await self.start()

    def when_peer_closes(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with the address of every connection that closes."""
        self._closed_listeners.append(listener)

    def _peer_closed(self, address: str) -> None:
        for listener in self._closed_listeners:
            listener(address)


def _all_routes() -> Routes[ClientCore]:
    """Handlers for broker requests to producers and consumers: a shared client may have both."""
    from sparrowmq.client.group.broker_requests import routes as consumer_routes
    from sparrowmq.client.sending.broker_requests import routes as producer_routes

    routes: Routes[ClientCore] = Routes()
    routes.include(consumer_routes, producer_routes)
    return routes


# ---- identity

_numbers = itertools.count()


def make_client_id(
    config: ClientConfig, *, ip: str, pid: int, now_ms: int, rng: random.Random
) -> str:
    """`ip@instance`, plus `@unit` if one is set; unique unless the instance is named.

    `pid#number` is the form that Java's changeInstanceNameToPID produces. The random part
    distinguishes containers that share an address, a pid and a start time.
    """
    own = f"{now_ms}{next(_numbers)}{rng.getrandbits(32)}"
    name = config.instance_name or f"{pid}#{own}"
    unit = f"@{config.unit_name}" if config.unit_name else ""
    return f"{ip}@{name}{unit}"


async def find_own_address(name_server: str) -> str:
    """The address of this machine for client and message ids. A host name is resolved in a thread,
    since that takes time."""
    host = name_server.rpartition(":")[0].strip("[]")
    try:
        ipaddress.ip_address(host)
    except ValueError:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, own_address, name_server)
    return own_address(name_server)


def own_address(name_server: str) -> str:
    """The local address that reaches a name server: a connected UDP socket sends nothing."""
    host, _, port = name_server.rpartition(":")
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            address: Any = probe.getsockname()
            return str(address[0])
    except (OSError, ValueError):
        return "127.0.0.1"


def packed(ip: str) -> bytes:
    """An IP address as four or sixteen bytes; a host name becomes 127.0.0.1."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    except OSError:
        return bytes((127, 0, 0, 1))
