"""Servers on simulated hosts: started, stopped, killed and restarted on the state they left."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, Protocol, TypeVar

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.replication.replication import StartAgain
from sparrowmq.broker.server import BrokerServer
from sparrowmq.clock import Clock
from sparrowmq.disk.syncer import SyncPlan, sync_plan
from sparrowmq.nameserver.config import NameServerConfig
from sparrowmq.nameserver.server import NameServer
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.simulation import Simulation
from sparrowmq.testing.virtual_tasks import SimTask

FIRST_PID = 1000


class Runnable(Protocol):
    """What this package needs of a server to run it."""

    def running(self) -> AbstractAsyncContextManager[Any]: ...


S = TypeVar("S", bound=Runnable)


class Node(ABC, Generic[S]):
    """A host and the server on it. `server` is the current one, or the last one that ran."""

    server: S

    def __init__(self, sim: Simulation, name: str) -> None:
        self.name = name
        self.host = sim.host(name)
        self.starts = 0
        self._sim = sim
        self._task: SimTask[None] | None = None
        self._stopping = asyncio.Event()

    @abstractmethod
    def _make(self) -> S:
        """Create a new server on the state that the host has kept."""

    def start(self) -> None:
        """Start the server and run until it serves. Raises the server's error."""
        assert self._task is None or not self.is_running, f"{self.name} runs already"
        self.starts += 1
        self.server = self._make()
        self._stopping = asyncio.Event()
        ready = asyncio.Event()
        task = self._task = self.host.start(self._serve(ready), name=f"{self.name} server")
        self._sim.until(lambda: ready.is_set() or task.done())
        if task.done():
            task.result()

    async def _serve(self, ready: asyncio.Event) -> None:
        is_wanted = True
        while is_wanted:
            is_wanted = False
            try:
                async with self.server.running():
                    ready.set()
                    await self._stopping.wait()
            except* StartAgain:
                task = asyncio.current_task()
                # A task group that ends with an error swallows a cancellation.
                is_cancelled = task is not None and task.cancelling() > 0
                is_wanted = not (self._stopping.is_set() or is_cancelled)
                self.server = self._make()

    @property
    def is_running(self) -> bool:
        """Whether there is a live process with a server that has not ended."""
        task = self._task
        return task is not None and not task.done() and task.process is self.host.process

    @property
    def has_ended(self) -> bool:
        """Whether the server ended although it was neither stopped nor killed."""
        task = self._task
        return task is not None and task.done()

    def stop(self) -> None:
        """Stop gracefully, as SIGTERM does."""
        self.begin_stop()
        self.wait_for_end()

    def begin_stop(self) -> None:
        """Ask the server to stop, as SIGTERM does; it has not stopped when this returns."""
        assert self._task is not None, f"{self.name} does not run"
        self._stopping.set()

    def wait_for_end(self) -> None:
        """Run until the server has ended. Raises the server's error."""
        assert self._task is not None, f"{self.name} does not run"
        self._sim.wait(self._task)
        self._task = None

    def kill(self) -> None:
        """Kill the process; everything it wrote is there when it starts again."""
        self.host.kill()
        self._task = None

    def restart(self) -> None:
        """Kill the server if it runs, and start it again."""
        if self.is_running:
            self.kill()
        self.start()


class NameServerNode(Node[NameServer]):
    """A name server on its own host."""

    def __init__(self, sim: Simulation, name: str, **settings: Any) -> None:
        super().__init__(sim, name)
        self.config = NameServerConfig(listen_host="0.0.0.0", **settings)

    @property
    def address(self) -> str:
        return f"{self.host.ip}:{self.config.listen_port}"

    def _make(self) -> NameServer:
        return NameServer(self.config, clock=self._sim.monotonic)


class BrokerNode(Node[BrokerServer]):
    """A broker on its own host, with a disk that survives it."""

    def __init__(self, sim: Simulation, config: BrokerConfig, name: str | None = None) -> None:
        super().__init__(sim, name or config.broker_name)
        self.config = config
        self.disk = RecordingDisk()
        self.clock: Clock = sim.clock
        """The time of day that the next start will use."""
        self.sync_s = 0.0
        """How long a sync takes."""
        self._boots = 0
        self.cpu_ms = 0
        """CPU time it has used. In virtual time nothing takes any, except `work`."""

    @property
    def address(self) -> str:
        return f"{self.host.ip}:{self.config.port}"

    @property
    def broker(self) -> Broker:
        """The running broker's parts."""
        return self.server.broker

    def _make(self) -> BrokerServer:
        return BrokerServer(
            self.config,
            disk=self.disk,
            clock=self.clock,
            monotonic=self._sim.monotonic,
            boot=f"boot {self._boots}",
            rng=self._sim.rng(f"{self.name} {self.starts}"),
            workers=InlineWorkers(),
            syncer=self,
            pid=FIRST_PID + self.starts,
            log=logging.getLogger(f"sparrowmq.sim.{self.name}"),
            cpu=lambda: self.cpu_ms,
        )

    async def sync(self, plan: SyncPlan) -> None:
        """Carry out a sync plan of the broker, making it durable."""
        if self.sync_s:
            await asyncio.sleep(self.sync_s)
        sync_plan(self.disk, plan)

    def close(self) -> None:
        """Nothing to do: the broker will not sync any more."""

    def work(self, seconds: float) -> None:
        """Keep its loop busy with one callback for this long; what comes meanwhile waits."""
        self.host.pause()
        self._sim.advance(seconds)
        self.cpu_ms += round(seconds * 1000)
        self.host.resume()

    def kill(self) -> None:
        super().kill()
        self.disk = self.disk.killed()

    def lose_power(self) -> None:
        """Power off the machine: closes no connection, and loses what its disk had not synced."""
        self.host.power_off()
        self._boots += 1
        self._task = None
        self.disk = self.disk.crashed(self._sim.rng(f"{self.name} power cut {self.starts}"))

    def start(self) -> None:
        if not self.host.is_up:
            self.host.power_on()
        super().start()
