"""A real cluster in this process: name server and brokers on free loopback ports.

    async with async_cluster(brokers=2) as running:
        print(running.name_server)

Each server runs in a separate task. One that fails ends the block with its error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import string
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sparrowmq.admin.admin import Admin
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.restarts import serve_until
from sparrowmq.broker.server import BrokerServer
from sparrowmq.client.argument_checks import check_path, check_whole
from sparrowmq.client.setting_names import unknown_settings
from sparrowmq.clock import Clock, system_clock
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import syncer_for
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.server import NameServer
from sparrowmq.net.workers import ThreadWorkers
from sparrowmq.testing.held_port import LOOPBACK, HeldPort

READ_THREADS = 2
BUSY_LAG_S = 60.0
"""Tests share the CPU and this process: a broker that lags because of that is not busy."""
_ADMIN_TIMEOUT_S = 60.0
"""Large for the same reason: only a stopped broker does not answer."""
_FOLLOW_TIMEOUT_S = 60.0
_LOOK_AGAIN_S = 0.01
_OWN_SETTINGS = {"brokers", "slaves", "data_dir", "clock", "loop_factory"}
"""Settings of the cluster itself: the others are fields of BrokerConfig."""


class ServedBroker:
    """One broker; its next start finds its files and its port in `config`."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self.config = config
        slave = f".{config.broker_id}" if config.is_slave else ""
        self.name = f"{config.broker_name}{slave}"
        """`broker-a`; its first slave is `broker-a.1`."""
        self._clock = clock
        self._log = logging.getLogger(f"sparrowmq.testing.{self.name}")
        self.server: BrokerServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()

    @property
    def address(self) -> str:
        return self.config.address(self.config.port)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Serve in a task of the group. Raises the error that keeps it from serving."""
        if self._task is not None:
            raise RuntimeError(f"broker {self.name} runs already")
        ready = asyncio.get_running_loop().create_future()
        self._stopping = asyncio.Event()
        self._task = tasks.create_task(self._serve(ready), name=self.name)
        await ready

    async def _serve(self, ready: asyncio.Future[None]) -> None:
        def serves(server: BrokerServer) -> None:
            self.server = server
            if not ready.done():
                ready.set_result(None)

        try:
            await serve_until(
                self._stopping, self.config, self._running, ready=serves, log=self._log
            )
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(_only_one_in(error))
        finally:
            self.server = None

    @asynccontextmanager
    async def _running(self, config: BrokerConfig) -> AsyncIterator[BrokerServer]:
        disk = RealDisk(config.data_dir)
        workers, syncer = ThreadWorkers(READ_THREADS, self.name), syncer_for(disk)
        server = BrokerServer(
            config,
            disk=disk,
            clock=self._clock,
            rng=random.Random(),
            workers=workers,
            syncer=syncer,
            pid=os.getpid(),
            log=self._log,
        )
        try:
            async with server.running():
                yield server
        finally:
            workers.close()
            syncer.close()

    def is_followed_by(self, slave: ServedBroker) -> bool:
        """Whether this broker feeds that one."""
        links = () if self.server is None else self.server.broker.replication.feed.links
        return slave.config.broker_id in links

    async def stop(self) -> None:
        """Stop gracefully, as SIGTERM does."""
        if self._task is None:
            raise RuntimeError(f"broker {self.name} does not run")
        self._stopping.set()
        task, self._task = self._task, None
        await task


class AsyncCluster:
    """A cluster on the running loop; `async_cluster` creates one.

    Each broker is a master with `slaves` slaves. `data_dir` is a temporary directory unless given;
    a given one is kept. `clock` gives the brokers the time. `settings` are fields of
    `BrokerConfig`, for every broker.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        slaves: int = 0,
        data_dir: str | Path | None = None,
        clock: Clock = system_clock,
        **settings: Any,
    ) -> None:
        check_whole("brokers", brokers, 1, len(string.ascii_lowercase))
        check_whole("slaves", slaves, 0, 9)
        if data_dir is not None:
            check_path("data_dir", data_dir)
        known = {field.name for field in fields(BrokerConfig)}
        if unknown := settings.keys() - known:
            raise TypeError(unknown_settings("the cluster", unknown, known | _OWN_SETTINGS))
        self.data_dir = Path() if data_dir is None else Path(data_dir)
        self.name_server = ""
        """`host:port` for clients."""
        self._keeps_data = data_dir is not None
        self._clock = clock
        self._settings = settings
        self._masters = [f"broker-{letter}" for letter in string.ascii_lowercase[:brokers]]
        self._slaves = slaves
        self._brokers: dict[str, ServedBroker] = {}
        self._exit = AsyncExitStack()
        self._names: NameServer
        self._tasks: asyncio.TaskGroup

    @property
    def broker_addresses(self) -> dict[str, str]:
        """`host:port` of every broker by its name, including stopped ones; `broker-a.1` is the
        first slave of `broker-a`."""
        return {name: broker.address for name, broker in self._brokers.items()}

    async def start_broker(self, name: str) -> None:
        """Start a stopped broker on its old port and files. A slave whose master runs follows it
        when this returns; raises TimeoutError if it does not within a minute."""
        broker = self._broker(name)
        await broker.start(self._tasks)
        master = self._brokers[broker.config.broker_name]
        if broker is master or master.server is None:
            return
        async with asyncio.timeout(_FOLLOW_TIMEOUT_S):
            # Not an event: either broker may restart meanwhile, and then is a different object.
            while not self._is_known(broker, master):  # noqa: ASYNC110 - see above
                await asyncio.sleep(_LOOK_AGAIN_S)

    def _is_known(self, slave: ServedBroker, master: ServedBroker) -> bool:
        return master.is_followed_by(slave) and slave.address in self._names.table.live

    async def stop_broker(self, name: str) -> None:
        """Stop a broker gracefully; its files stay."""
        await self._broker(name).stop()

    async def create_topic(
        self, topic: str, *, queues: int = 8, attributes: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with `queues` queues on every broker, or change it. Clients find it when
        this returns. Raises AdminError, ValueError."""
        async with Admin(self.name_server, timeout_s=_ADMIN_TIMEOUT_S) as admin:
            await admin.create_topic(topic, queues=queues, attributes=attributes)

    def _broker(self, name: str) -> ServedBroker:
        if name not in self._brokers:
            raise ValueError(f"no broker is called {name!r}; there are {', '.join(self._brokers)}")
        return self._brokers[name]

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def _start(self) -> None:
        if not self._keeps_data:
            directory = tempfile.TemporaryDirectory(prefix="sparrowmq-", ignore_cleanup_errors=True)
            self.data_dir = Path(self._exit.enter_context(directory))
        self._names = NameServer(NameServerConfig(listen_host=LOOPBACK, listen_port=0))
        await self._exit.enter_async_context(self._names.running())
        self.name_server = self._names.address
        self._tasks = await self._exit.enter_async_context(asyncio.TaskGroup())
        self._exit.push_async_callback(self._stop_brokers)
        for broker_id in range(self._slaves + 1):
            for name in self._masters:
                broker = ServedBroker(self._config(name, broker_id), self._clock)
                self._brokers[broker.name] = broker
                await self.start_broker(broker.name)

    async def _stop_brokers(self) -> None:
        # Slaves first: then a master has no slave left to feed.
        for broker in reversed(self._brokers.values()):
            if broker.server is not None:
                await broker.stop()

    def _config(self, name: str, broker_id: int) -> BrokerConfig:
        directory = self.data_dir / (f"{name}.{broker_id}" if broker_id else name)
        directory.mkdir(parents=True, exist_ok=True)
        config = BrokerConfig(
            data_dir=directory,
            broker_name=name,
            broker_id=broker_id,
            name_servers=(self.name_server,),
            listen_host=LOOPBACK,
            port=0,
            vip_alias=False,
            busy_lag_s=BUSY_LAG_S,
        )
        config = replace(config, **self._settings)
        if config.port:
            return config
        # Routes and clients know the port, so a stopped broker keeps it for its next start.
        held = self._exit.enter_context(HeldPort(beside=(-2, 1) if config.vip_alias else (1,)))
        return replace(config, port=held.port)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            # It may come from the group, because a broker failed: then the group raises the cause.
            await self._exit.__aexit__(kind, error, traceback)
        else:
            # The block's own error propagates unchanged; the group would wrap it.
            await self._exit.aclose()


def _only_one_in(error: Exception) -> Exception:
    """The only error of a group: a port in use reads better as OSError than as a group of one."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def async_cluster(
    brokers: int = 1,
    *,
    slaves: int = 0,
    data_dir: str | Path | None = None,
    clock: Clock = system_clock,
    **settings: Any,
) -> AsyncCluster:
    """A cluster for `async with`, on the running loop."""
    return AsyncCluster(brokers=brokers, slaves=slaves, data_dir=data_dir, clock=clock, **settings)
