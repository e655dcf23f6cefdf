"""A simulated machine: an address, one process at a time, and what can happen to them."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from sparrowmq.testing.memory_stream import Signal
from sparrowmq.testing.process import Process, ProcessState
from sparrowmq.testing.virtual_tasks import SimTask

if TYPE_CHECKING:
    from sparrowmq.testing.memory_network import MemoryNetwork

T = TypeVar("T")

FIRST_FREE_PORT = 40_000


class Host:
    """Created by `MemoryNetwork.host`; code runs on it through `start`."""

    def __init__(self, network: MemoryNetwork, name: str, ip: str) -> None:
        self.name = name
        self.ip = ip
        self.is_up = True
        self._network = network
        self._process = Process(name)
        self._ports = FIRST_FREE_PORT

    def __repr__(self) -> str:
        return f"<Host {self.name} {self.ip}>"

    @property
    def process(self) -> Process:
        """The running process; a new one if the last one was killed."""
        if self._process.state is ProcessState.DEAD:
            self._process = Process(self.name)
        return self._process

    def start(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> SimTask[T]:
        """Run a coroutine in this host's process; everything it starts belongs to it too."""
        if not self.is_up:
            coroutine.close()
            raise RuntimeError(f"host {self.name} is powered off")
        loop = self._network.loop
        return loop.watch(loop.create_task(coroutine, name=name, context=self.process.context()))

    def pause(self) -> None:
        """Like SIGSTOP: nothing runs any more, and peers only notice the silence."""
        self._network.record("pause", self)
        self._process.stop()

    def resume(self) -> None:
        """Like SIGCONT: what came due meanwhile runs now."""
        self._network.record("resume", self)
        self._network.loop.resume(self._process)

    def kill(self) -> None:
        """Like kill -9: none of its code runs any more, and the kernel closes its connections."""
        self._network.record("kill", self)
        self._network.loop.kill(self._process)
        self._network.forget_process(self, Signal.RST)

    def power_off(self) -> None:
        """The machine vanishes: its process is gone, and nothing is closed or answered."""
        self._network.record("power off", self)
        self._network.loop.kill(self._process)
        self._network.forget_process(self, None)
        self.is_up = False

    def power_on(self) -> None:
        """The machine is back without any process; it resets connections it does not know."""
        self._network.record("power on", self)
        self.is_up = True
        self._network.paths_opened()

    def free_port(self) -> int:
        self._ports += 1
        return self._ports
