"""The name server process: its parts, its listener, and the watch over silent brokers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Self

from sparrowmq.clock import Clock, monotonic_clock
from sparrowmq.config_fields import ConfigError
from sparrowmq.disk.atomic_file import AtomicFile, disk_and_path
from sparrowmq.nameserver.brokers import LiveBroker, Registration
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.handlers import clusters, key_values, registration, settings, topics
from sparrowmq.nameserver.kv_config import KvConfig
from sparrowmq.nameserver.lost_brokers import LostBrokers
from sparrowmq.nameserver.routing_table import RoutingTable
from sparrowmq.nameserver.silent_masters import watch_masters
from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Endpoint
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Routes
from sparrowmq.net.server import Server
from sparrowmq.net.slices import Slices
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.errors import BodyError

log = logging.getLogger(__name__)


class NameServer:
    """Everything the handlers work with.

        async with NameServer(NameServerConfig(listen_port=0)).running() as server:
            print(server.address)

    `clock` measures how long brokers are silent; the time of day is not needed.
    `kv_file` replaces the file at `config.kv_config_path`, for tests.
    """

    def __init__(
        self,
        config: NameServerConfig,
        *,
        clock: Clock = monotonic_clock,
        kv_file: AtomicFile | None = None,
    ) -> None:
        self.config = config
        self.clock = clock
        self.table = RoutingTable(config.route_cache_bytes)
        self.lost = LostBrokers()
        self.slices = Slices()
        self.kv = _kv_config(config, kv_file)
        self.port = 0
        self.endpoint: Endpoint[NameServer]
        """What its connections share."""
        self.metrics_port = 0
        """The port of the monitoring pages; 0 if they are not served."""
        self._started_ms = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Self]:
        """Listen until the block ends. Raises OSError, ConfigError for a broken key-value file."""
        self._load_kv_config()
        self._started_ms = self.clock()
        failure: Exception | None = None
        async with asyncio.TaskGroup() as tasks:
            server: Server[NameServer] = Server(
                self,
                all_routes(),
                tasks,
                log=log,
                limits=self.config.limits,
                closed=self._connection_closed,
                is_in_use=lambda connection: bool(self.table.of_session(connection)),
            )
            self.endpoint = server.endpoint
            watches = [
                tasks.create_task(self._watch(), name="watch over silent brokers"),
                tasks.create_task(watch_masters(self), name="watch over silent masters"),
            ]
            try:
                self.port = await server.listen(self.config.listen_host, self.config.listen_port)
                log.info("serving at %s, key-value configuration %s", self.address, self._kv_text())
                yield self
                log.info("stopping with %d brokers registered", len(self.table.live))
            except Exception as error:
                failure = error  # raised below: the task group would wrap it in an exception group
            finally:
                for watch in watches:
                    watch.cancel()
                await server.close()
        if failure is not None:
            raise failure

    def _load_kv_config(self) -> None:
        try:
            self.kv.load()
        except BodyError as error:
            path = self.config.kv_config_path
            allowed = (
                f"must be a key-value configuration: {error}; fix the file, or move it away to"
                " start without one"
            )
            raise ConfigError("kv_config_path", str(path), allowed) from error

    def _kv_text(self) -> str:
        path = self.config.kv_config_path
        return f"in {path}" if path is not None else "in memory only"

    @property
    def address(self) -> str:
        """The `host:port` it listens on."""
        host = self.config.listen_host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    @property
    def is_in_service(self) -> bool:
        """Whether routes are served."""
        if not self.config.need_wait_for_service:
            return True
        return self.clock() - self._started_ms >= self.config.wait_seconds_for_service * 1000

    def register(self, registration: Registration, connection: Connection) -> LiveBroker | None:
        """Apply a broker's registration; returns its master if it is a slave and has one."""
        is_new = registration.address not in self.table.live
        forget_missing = self.config.delete_topic_with_broker_registration
        master = self.table.register(
            registration, connection, self.clock(), forget_missing=forget_missing
        )
        self.lost.forget(registration.broker_name)
        if is_new:
            name, number = registration.broker_name, registration.broker_id
            log.info("broker %s %d registered at %s", name, number, registration.address)
        return master

    def check_room(self, broker_name: str, topics: Collection[str]) -> None:
        """Raises RequestRefused if these topics would be too many for one broker name."""
        known, most = self.table.topics.of_broker(broker_name), self.config.max_topics_per_broker
        if len(known) + len(topics) <= most:
            return
        count = len(known | set(topics))
        if count > most:
            text = f"broker {broker_name} would have {count} topics, at most {most} allowed"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)

    def note_alive(self, address: str) -> None:
        """Note that the broker at this address is alive."""
        broker = self.table.live.get(address)
        if broker is not None:
            broker.last_seen_ms = self.clock()

    def unregister(self, broker_name: str, address: str) -> None:
        """Remove a broker that leaves; does nothing if it has left already."""
        broker = self.table.live.get(address)
        if broker is not None and broker.broker_name == broker_name:
            self._lose(broker, "left", self.clock())
            log.info("broker %s at %s unregistered", broker_name, address)

    def _lose(self, broker: LiveBroker, how: str, since_ms: int) -> None:
        """Drop a broker; topics go with the last one of its name."""
        name = broker.broker_name
        topics = frozenset(self.table.topics.of_broker(name))
        self.table.drop(broker)
        if name not in self.table.groups:
            self.lost.remember(name, broker.address, how, since_ms, topics)

    def _connection_closed(self, connection: Connection) -> None:
        for broker in self.table.of_session(connection):
            log.warning("broker %s at %s disconnected", broker.broker_name, broker.address)
            self._lose(broker, "disconnected", self.clock())

    async def _watch(self) -> None:
        """Drop silent brokers, but not those that were silent while this process was frozen."""
        before_ms = self.clock()
        while True:
            interval_s = self.config.scan_interval_s
            await asyncio.sleep(interval_s)
            now_ms = self.clock()
            lost_ms = now_ms - before_ms - round(interval_s * 1000)
            if lost_ms > interval_s * 1000:
                # This process was suspended, or the machine slept.
                self.table.excuse_silence(lost_ms, now_ms)
            before_ms = now_ms
            for broker in self.table.silent(now_ms):
                self.drop_silent(broker, f"was silent for {broker.timeout_ms} ms")

    def drop_silent(self, broker: LiveBroker, why: str) -> None:
        """Drop a broker that gives no sign of life."""
        log.warning("broker %s at %s %s", broker.broker_name, broker.address, why)
        self._lose(broker, "fell silent", broker.last_seen_ms)
        self.end_session(broker)

    def end_session(self, broker: LiveBroker) -> None:
        """Close the connection of a broker that is no longer live, unless others use it."""
        if not self.table.of_session(broker.session):
            assert isinstance(broker.session, Connection)
            broker.session.close()


def all_routes() -> Routes[NameServer]:
    """Every request that a name server answers."""
    routes: Routes[NameServer] = Routes()
    routes.include(
        registration.routes,
        topics.routes,
        clusters.routes,
        key_values.routes,
        settings.routes,
    )
    return routes


def _kv_config(config: NameServerConfig, file: AtomicFile | None) -> KvConfig:
    if file is None and config.kv_config_path is not None:
        file = AtomicFile(*disk_and_path(config.kv_config_path))
    return KvConfig(file)
