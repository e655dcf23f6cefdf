"""A whole broker: opens the store, makes the parts, serves, and stops in order."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial

from sparrowmq.broker import housekeeping, shutdown
from sparrowmq.broker.arrivals import Arrivals
from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.broker.delivery import delivery as delivery_loops
from sparrowmq.broker.delivery.delivery import Delivery
from sparrowmq.broker.durability import Durability
from sparrowmq.broker.groups import Groups, RequestModes
from sparrowmq.broker.handlers import (
    assignment,
    broker_admin,
    clients,
    connections,
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
from sparrowmq.broker.name_servers import Registration, TopicRoutes
from sparrowmq.broker.offset_saving import OffsetSaving
from sparrowmq.broker.positions import Positions
from sparrowmq.broker.queue_locks import QueueLocks
from sparrowmq.broker.statistics import Statistics, keep_sampling, sample
from sparrowmq.broker.table_saving import TableSaving
from sparrowmq.broker.tables import BrokerTables
from sparrowmq.broker.topics import Topics, own_topics, system_topics
from sparrowmq.clock import Clock, cpu_clock, monotonic_clock
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import Syncer
from sparrowmq.net.connection import Connection
from sparrowmq.net.peers import Peers
from sparrowmq.net.routes import Routes
from sparrowmq.net.server import Server
from sparrowmq.net.tasks import Loop, WholeSteps, running
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.ids import UniqueIds
from sparrowmq.protocol.properties import CLUSTER, encode_properties
from sparrowmq.protocol.trace import TRACE_FIELDS
from sparrowmq.store.messages import Damage
from sparrowmq.store.store import Store

routes: Routes[Broker] = Routes()
for capability in (
    *(send, send_back, transactions, pull, clients, offsets, topics, groups, messages),
    *(assignment, member_calls, connections, reply, broker_admin, offset_tables, statistics),
):
    routes.include(capability.routes)


class BrokerServer:
    """One broker. Everything that touches the world is handed in, so that tests can replace it."""

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
    ) -> None:
        self.config = config
        self.port = 0
        self.broker: Broker
        self._disk = disk
        self._clock = clock
        self._monotonic = monotonic
        self._boot = boot
        self._rng = rng
        self._workers = workers
        self._syncer = syncer
        self._pid = pid
        self._log = log
        self._cpu = cpu
        self._is_open = False

    @property
    def address(self) -> str:
        """host:port as clients are told."""
        return self.config.address(self.port)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["BrokerServer"]:
        """Serve while the block runs. Raises what made it impossible to go on, as a group."""
        async with asyncio.TaskGroup() as tasks, AsyncExitStack() as opened:
            server: Server[Broker] = Server(
                None,  # type: ignore[arg-type]  # replaced before the first request is read
                routes,
                tasks,
                log=self._log,
                limits=self.config.limits,
                closed=self._closed,
                is_in_use=self._is_in_use,
            )
            # What a failed start has opened is closed by this; a served one said goodbye before.
            opened.push_async_callback(server.close)
            self.port = await server.listen(self.config.listen_host, self.config.port)
            # No await from here on until the broker exists: nobody is served half-made parts.
            tables = BrokerTables(self._disk, self._report)
            peers = Peers(tasks, log=self._log)
            self.broker = broker = self._open(tables, peers)
            opened.push_async_callback(self._close, broker, tables)
            opened.push_async_callback(peers.close)
            server.endpoint.context = broker
            self._is_open = True
            if self.config.vip_alias and self.config.port:
                await server.listen(self.config.listen_host, self.config.port - 2)
            registration = Registration(
                self.config,
                broker.topics,
                peers,
                address=self.address,
                ha_address=self.config.address(self.config.ha_port),
                log=self._log,
            )
            await registration.register_everywhere()
            broker.topics.changed = registration.topics_changed
            async with running(self._loops(broker, tables, registration), broker.steps):
                try:
                    yield self
                finally:
                    await shutdown.leave(registration, server, tables)

    def _closed(self, connection: Connection) -> None:
        if self._is_open:  # somebody may connect while the store is being opened, and leave again
            self.broker.connection_closed(connection)

    def _is_in_use(self, connection: Connection) -> bool:
        return self._is_open and self.broker.arrivals.has_pulls_of(connection)

    def _loops(
        self, broker: Broker, tables: BrokerTables, registration: Registration
    ) -> list[Loop]:
        return [
            broker.durability.run,
            broker.saving.run,
            registration.run,
            partial(housekeeping.tick_store, broker),
            partial(housekeeping.clean_store, broker),
            broker.offset_saving.run,
            partial(housekeeping.forget_silent_clients, broker),
            partial(housekeeping.end_silent_sessions, broker),
            partial(housekeeping.watch_lag, broker, self._cpu),
            partial(keep_sampling, broker),
            *delivery_loops.loops(broker),
        ]

    def _open(self, tables: BrokerTables, peers: Peers) -> Broker:
        config, clock = self.config, self._clock
        store_host = config.store_host(self.port)
        window = 0 if config.flush is Flush.SYNC else config.store.unsynced_window
        store = Store.open(
            replace(config.store, store_host=store_host, unsynced_window=window),
            self._disk,
            clock(),
            self._report,
        )
        is_used = store.max_log_offset > 0
        steps = WholeSteps()
        saving = TableSaving(self._workers, steps, self._log)
        topic_table = Topics(
            tables.load_topics(store_is_used=is_used),
            clock=clock,
            file=tables.topics,
            saving=saving,
        )
        topic_table.add_missing(
            system_topics(
                cluster_name=config.cluster_name,
                broker_name=config.broker_name,
                default_queues=config.default_queues,
                auto_create=config.auto_create_topic,
            )
        )
        group_table = Groups(
            tables.load_groups(store_is_used=is_used),
            clock=clock,
            file=tables.groups,
            saving=saving,
            auto_create=config.auto_create_group,
            max_groups=config.max_groups,
        )
        group_table.add_missing_system_groups()
        topic_table.add_missing(own_topics(store.queues(), group_table))
        loop = asyncio.get_running_loop()
        arrivals = Arrivals(
            loop,
            retry=lambda parked: pull.retry_parked(broker, parked),
            give_up=lambda parked: pull.give_up_parked(broker, parked),
            visible_range=store.visible_range,
            max_waiting=config.max_waiting_pulls,
        )
        durability = Durability(
            store,
            self._syncer.sync,
            arrivals,
            flush=config.flush,
            flush_interval_s=config.flush_interval_s,
            flush_timeout_s=config.flush_timeout_s,
            log=self._log,
            steps=steps,
        )
        consumer_offsets = tables.offsets.load(store_is_used=is_used)
        for key, queue_id, was, end in tables.offsets.take_back(consumer_offsets, store.max_offset):
            self._log.warning(
                "%s stood at %d of queue %d, which ends at %d after the last stop; set to its end",
                key,
                was,
                queue_id,
                end,
            )
        ip = store_host[:-4]
        broker = Broker(
            config=config,
            clock=clock,
            monotonic=self._monotonic,
            rng=self._rng,
            log=self._log,
            workers=self._workers,
            store=store,
            topics=topic_table,
            groups=group_table,
            offsets=consumer_offsets,
            arrivals=arrivals,
            durability=durability,
            positions=Positions(store.epochs),
            steps=steps,
            delivery=Delivery.open(
                config,
                self._disk,
                store,
                consumer_offsets,
                clock,
                self._monotonic,
                self._boot,
                self._report,
            ),
            request_modes=RequestModes(
                tables.load_request_modes(), file=tables.modes, saving=saving
            ),
            saving=saving,
            offset_saving=OffsetSaving(
                config, consumer_offsets, tables.offsets, self._workers, steps, self._log
            ),
            statistics=Statistics(
                self._monotonic(),
                cluster=config.cluster_name,
                today_ms=clock(),
                utc_offset_ms=config.store.utc_offset_ms,
            ),
            topic_routes=TopicRoutes(
                config.name_servers,
                peers,
                clock=self._monotonic,
                own_queues=lambda topic: topic_table.read_queues(topic, config.broker_name),
            ),
            disk=self._disk,
            address=self.address,
            locks=QueueLocks(
                clock=self._monotonic,
                timeout_ms=int(config.lock_timeout_s * 1000),
                tell_freed=lambda group, client_ids: broker.tell_freed(group, client_ids),
            ),
            unique_ids=UniqueIds(clock, ip=ip, pid=self._pid, instance=self._rng.getrandbits(32)),
            store_host=store_host,
            id_prefix=store_host.hex().upper(),
            # As SendMessageProcessor adds them: tracing clients read the region.
            cluster_property=encode_properties(TRACE_FIELDS | {CLUSTER: config.cluster_name}),
        )
        last = tables.load_last_subscriptions()
        # A clock that was set back meanwhile must not keep them longer.
        left_ms = min(last.until_ms - clock(), int(config.client_timeout_s * 1000))
        broker.consumers.remember(last.by_name(), self._monotonic() + left_ms)
        sample(broker)
        return broker

    async def _close(self, broker: Broker, tables: BrokerTables) -> None:
        """Make everything durable; a store that failed stays as it is for recovery."""
        if not broker.store.has_failed:
            await broker.durability.flush()
            await delivery_loops.close(broker)
            await broker.saving.save()
            await tables.offsets.save(broker.offsets, self._workers)
        broker.delivery.close()
        tables.offsets.close()
        broker.store.close()

    def _report(self, found: object) -> None:
        level = logging.WARNING if isinstance(found, Damage) else logging.INFO
        self._log.log(level, "store: %s", found)
