"""A whole broker: it opens its parts in order, serves, and stops in order.

Dependencies dictate the order of a start:

```
bind        the port, which records and name servers carry, may be chosen by the system
role        open the store; a master that lost messages gets them back from its slaves
open        tables, then what waits in the store; without a single await until `serve`
serve       connections are accepted from here on
register    name servers send clients from here on
```

A stop goes in the opposite order; see `shutdown`.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial

from sparrowmq.broker import housekeeping, shutdown
from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.broker import Broker, BrokerState
from sparrowmq.broker.cluster_queues import ClusterQueues
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.delivery import delivery
from sparrowmq.broker.delivery.dead_letter_log import DeadLetterLog
from sparrowmq.broker.delivery.delivery import Delivery
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.environment import Environment
from sparrowmq.broker.handlers import (
    assignment,
    broker_admin,
    clients,
    connections,
    drain,
    groups,
    member_calls,
    messages,
    offset_tables,
    offsets,
    pull,
    reply,
    send,
    send_back,
    statistics,
    topics,
    transactions,
)
from sparrowmq.broker.handlers import replication as replication_handlers
from sparrowmq.broker.lifecycle_log import log_start, log_stop
from sparrowmq.broker.offset_saving import OffsetSaving
from sparrowmq.broker.open_tables import OpenTables
from sparrowmq.broker.positions import Positions
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.rebalance_notices import RebalanceNotices
from sparrowmq.broker.registration import BrokerNameTaken, BrokerRegistration
from sparrowmq.broker.replication.confirmation import Confirmation
from sparrowmq.broker.replication.current_role import CurrentRole
from sparrowmq.broker.replication.frozen_master import FreezeWatch
from sparrowmq.broker.replication.read_places import MasterReads, SlaveReads, WaitingReads
from sparrowmq.broker.replication.replication import (
    Replication,
    Role,
    StartAgain,
    open_in_role,
)
from sparrowmq.broker.replication.returning_master import is_kept_by_waiting_master
from sparrowmq.broker.replication.role_change import RoleChanger
from sparrowmq.broker.replication.table_following import TableFollowing
from sparrowmq.broker.sampling import sample
from sparrowmq.broker.statistics import Statistics
from sparrowmq.clock import Clock, Zone, cpu_clock, monotonic_clock, utc
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import Syncer
from sparrowmq.net.endpoint import Endpoint
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Routes
from sparrowmq.net.server import Server
from sparrowmq.net.slices import Slices
from sparrowmq.net.tasks import Loop, Uncancellable, running
from sparrowmq.net.workers import Workers

_NAME_S = 15.0
"""How long a starting master waits for one that keeps its name and takes no messages."""
_NAME_AGAIN_S = 1.0

routes: Routes[Broker] = Routes()
for capability in (
    *(send, send_back, transactions, pull, clients, offsets, topics, groups, messages),
    *(assignment, member_calls, connections, reply, broker_admin, offset_tables, statistics),
    *(replication_handlers, drain),
):
    routes.include(capability.routes)


class BrokerServer:
    """One broker. Everything that touches the outside world is passed in: tests replace it."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk,
        clock: Clock,
        rng: random.Random,
        workers: Workers,
        syncer: Syncer,
        pid: int,
        log: logging.Logger,
        monotonic: Clock = monotonic_clock,
        boot: str = "",
        cpu: Clock = cpu_clock,
        zone: Zone = utc,
    ) -> None:
        self.config = config
        self.port = 0
        self.broker: Broker
        self.registration: BrokerRegistration
        self.endpoint: Endpoint[Broker]
        """The state that its connections share."""
        self.metrics_port = 0
        """The port of its monitoring pages; 0 if they are not served."""
        self._stopping_ms: int | None = None
        self._env = Environment(
            disk=disk,
            clock=clock,
            monotonic=monotonic,
            cpu=cpu,
            zone=zone,
            boot=boot,
            rng=rng,
            workers=workers,
            syncer=syncer,
            pid=pid,
            log=log,
        )

    @property
    def address(self) -> str:
        """host:port that clients connect to."""
        return self.config.address(self.port)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["BrokerServer"]:
        """Serve while the block runs. Raises, as a group, the errors that prevented it from
        starting or continuing, such as BrokerNameTaken."""
        current_role = CurrentRole.load(self._env.disk, self.config.broker_id)
        # Everything below sees the broker's current id.
        config = self.config = current_role.applied_to(self.config)
        log = self._env.log
        async with asyncio.TaskGroup() as tasks, AsyncExitStack() as opened:
            server: Server[Broker] = Server(None, routes, tasks, log=log, limits=config.limits)
            self.endpoint = server.endpoint
            # Closes anything only after a failed start: otherwise `drain` has already closed it.
            opened.push_async_callback(server.close)
            self.port = await server.bind(config.listen_host, config.port)
            peers = Peers(tasks, log=log)
            began_ms = self._env.monotonic()
            opened.push_async_callback(peers.close)
            in_role = await open_in_role(
                config, self._env, peers, self.port, took_over_at=current_role.took_over_at
            )
            if in_role.role is Role.MASTER:
                current_role.note_first_service()
            replication = Replication(config, self._env, in_role, peers, tasks, self.port)
            self.broker = broker = open_broker(config, self._env, peers, replication, self.port)
            opened.push_async_callback(self._close, broker)
            log_start(broker, began_ms)
            server.serve(
                broker, closed=broker.connection_closed, is_in_use=broker.arrivals.has_pulls_of
            )
            opened.callback(replication.close)
            with _port_for("slaves copy from it: --ha-port, or port + 1"):
                await replication.listen()
            await server.accept()
            broker.state = BrokerState.SERVING
            if config.vip_alias and config.port:
                with _port_for("the VIP port of older clients: port - 2, or --vip-alias false"):
                    await server.listen(config.listen_host, config.port - 2)
            self.registration = registration = broker.registration = BrokerRegistration(
                config,
                broker.topics,
                broker.drain,
                peers,
                port=self.port,
                ha_address=replication.ha_address,
                monotonic=broker.monotonic,
                log=log,
            )
            replication.role_change = RoleChanger(broker, current_role, registration, peers)
            replication.role_change.begin()
            if replication.has_rival:
                registration.withhold(replication.reason)
            elif not config.is_slave:  # a slave registers when its master has accepted it
                await _take_name(broker, current_role, peers)
                replication.admit_slaves()
            loops = _loops(broker, registration, self._env.cpu)
            if replication.is_master and config.name_servers:
                loops.append(FreezeWatch(broker, registration, peers).run)
            async with running(loops, broker.uncancellable):
                try:
                    yield self
                finally:
                    self._stopping_ms = self._env.monotonic()
                    await shutdown.drain(registration, server, peers)

    async def _close(self, broker: Broker) -> None:
        await shutdown.close(broker)
        if self._stopping_ms is not None:  # it has been serving
            log_stop(broker, self._stopping_ms)


def open_broker(
    config: BrokerConfig, env: Environment, peers: Peers, replication: Replication, port: int
) -> Broker:
    """Open or create everything that a broker listening on `port` needs.

    Raises StoreCorrupted, TableMissing, DiskFull or OSError.
    """
    store, uncancellable = replication.store, Uncancellable()
    opened = OpenTables.open(config, env, replication, uncancellable)
    notices = RebalanceNotices(
        opened.consumers,
        opened.groups,
        opened.watched,
        is_enabled=config.notify_consumer_ids_changed,
    )
    loop = asyncio.get_running_loop()
    arrivals = Arrivals(loop, store, max_waiting=config.max_waiting_pulls)
    durability = _durability(config, env, replication, arrivals, uncancellable)
    slave_reads = None
    if replication.follower is not None:
        slave_reads = SlaveReads(config, replication, replication.follower, env.monotonic)
    slices = Slices()
    broker = Broker(
        config=config,
        port=port,
        clock=env.clock,
        monotonic=env.monotonic,
        rng=env.rng,
        log=env.log,
        workers=env.workers,
        disk=env.disk,
        store=store,
        tables=opened.files,
        uncancellable=uncancellable,
        saving=opened.saving,
        topics=opened.topics,
        groups=opened.groups,
        request_modes=opened.modes,
        offsets=opened.offsets,
        offset_saving=OffsetSaving(
            config, env, opened.offsets, opened.files.offsets, uncancellable, slices
        ),
        slices=slices,
        arrivals=arrivals,
        durability=durability,
        replication=replication,
        reads=slave_reads or MasterReads(config, replication),
        slave_reads=slave_reads,
        held_reads=slave_reads
        or (WaitingReads(store) if replication.role is Role.WAITING else None),
        positions=Positions(store.epochs),
        delivery=Delivery.open(config, env, store, opened.offsets, opened.saving),
        dead_letters=DeadLetterLog(env.log, env.monotonic),
        drain=opened.drain,
        consumers=opened.consumers,
        notices=notices,
        watched=opened.watched,
        locks=QueueLocks(notices, clock=env.monotonic, timeout_s=config.lock_timeout_s),
        cluster_queues=ClusterQueues(config, opened.topics, peers, env.monotonic),
        statistics=Statistics.open(config, env),
        unique_ids=env.unique_ids(store.config.store_host),
    )
    if replication.follower is not None:
        broker.table_following = TableFollowing(broker, replication.follower, peers)
    broker.traffic.follow(broker)
    sample(broker)  # the first sample: statistics count from here
    return broker


def _durability(
    config: BrokerConfig,
    env: Environment,
    replication: Replication,
    arrivals: Arrivals,
    uncancellable: Uncancellable,
) -> Durability:
    """When sends are safe: on this disk, and on slaves if they wait for those."""
    copies = None
    if replication.is_master and config.copies_wanted > 1:
        copies = Confirmation(
            config, replication.store, arrivals, replication.replicas, replication.shown
        )
    durability = Durability(config, replication.store, env.syncer, arrivals, uncancellable, copies)
    replication.attach(durability, arrivals)
    return durability


def _loops(broker: Broker, registration: BrokerRegistration, cpu: Clock) -> list[Loop]:
    """The loops that a broker runs while it serves."""
    copies = broker.durability.copies
    return [
        broker.durability.run,
        broker.saving.run,
        partial(_keep_registered, broker, registration),
        partial(_guard_name, broker, registration),
        partial(housekeeping.tick, broker, cpu),
        partial(housekeeping.read_slots_ahead, broker),
        partial(housekeeping.clean_store, broker),
        partial(housekeeping.empty_trash, broker),
        broker.offset_saving.run,
        partial(housekeeping.forget_silent_clients, broker),
        partial(housekeeping.end_silent_sessions, broker),
        partial(broker.sampling.run, broker),
        partial(broker.traffic.run, broker),
        broker.dead_letters.run,
        broker.drain.run,
        *([] if copies is None else [copies.watch]),
        broker.replication.role_change.run,
        # A slave does not deliver by itself: it copies what its master delivers.
        *(delivery.loops(broker) if broker.replication.is_master else [broker.replication.run]),
        *([] if broker.table_following is None else [broker.table_following.run]),
    ]


@contextmanager
def _port_for(purpose: str) -> Iterator[None]:
    """Say what an unavailable port is for: it may not be one that the operator configured."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror or error} ({purpose})") from error


async def _take_name(broker: Broker, current_role: CurrentRole, peers: Peers) -> None:
    """Register a master. Raises BrokerNameTaken, or StartAgain for one that was a slave a moment
    ago: nobody has sent it anything yet."""
    registration, until_s = broker.registration, broker.monotonic() / 1000 + _NAME_S
    while True:
        try:
            await registration.register_at_start()
            break
        except BrokerNameTaken as error:
            # One that waits leaves the name as soon as it has heard of this master, which it asks.
            is_left = broker.monotonic() / 1000 < until_s
            if not is_left or not await is_kept_by_waiting_master(broker.config, peers):
                if current_role.step_back():
                    raise StartAgain(f"this broker stays a slave: {error}") from error
                raise
            _refuse_without_name(broker, f"{error}; it waits, and should leave the name")
            await asyncio.sleep(_NAME_AGAIN_S)
    _refuse_without_name(broker, "")
    current_role.note_takeover()


def _refuse_without_name(broker: Broker, reason: str) -> None:
    broker.refuse_sends("name", reason)
    broker.store.admission.hold("name", reason or None)


async def _keep_registered(broker: Broker, registration: BrokerRegistration) -> None:
    """Register forever; on a slave, starting when a master has accepted it."""
    follower = broker.replication.follower
    if follower is not None:
        await follower.accepted.wait()
    await registration.run()


async def _guard_name(broker: Broker, registration: BrokerRegistration) -> None:
    """Refuse messages while another master has the name. Raises StartAgain when this one has the
    name again: a master asks its slaves before it serves, and the other may now be one of them."""
    await registration.lost_name.wait()
    name = broker.config.broker_name
    text = f"this is no longer the master of {name}: {registration.rivals}"
    _refuse_without_name(broker, text)
    await registration.has_name.wait()
    raise StartAgain(f"regained the name {name}: restarting")
