"""A simulated world: hosts on a memory network in virtual time, all randomness from one seed.

    with Simulation(seed=7) as sim:
        server = sim.host("server")
        server.start(serve())
        assert sim.run(ask("server", 9876)) == "answer"

A failure inside the `with` block names the seed; the same seed gives the same run again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from sparrowmq.testing.host import Host
from sparrowmq.testing.memory_listener import Listener, ProtocolFactory
from sparrowmq.testing.memory_network import MemoryNetwork
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.virtual_tasks import SimTask
from sparrowmq.testing.virtual_time import VirtualLoop

T = TypeVar("T")

EPOCH_MS = 1_700_000_000_000


class SimulatedLoop(VirtualLoop):
    """A virtual loop whose connections go through its memory network."""

    def __init__(
        self, rng: random.Random, *, limit_s: float, conditions: Conditions | None
    ) -> None:
        super().__init__(limit_s=limit_s)
        self.network = MemoryNetwork(self, rng, conditions)

    async def create_server(  # type: ignore[override]  # the part of it that servers use
        self,
        protocol_factory: ProtocolFactory,
        host: str | None = None,
        port: int = 0,
        **options: Any,
    ) -> Listener:
        _refuse_real_sockets(options)
        listener = self.network.listen(protocol_factory, host, port)
        if options.get("start_serving", True):
            await listener.start_serving()
        return listener

    async def create_connection(  # type: ignore[override]  # the part of it that clients use
        self, protocol_factory: ProtocolFactory, host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        _refuse_real_sockets(options)
        return await self.network.connect(protocol_factory, host, port)


def _refuse_real_sockets(options: dict[str, Any]) -> None:
    unusable = sorted(name for name in ("ssl", "sock") if options.get(name))
    if unusable:
        raise NotImplementedError(f"the memory network has no {' and '.join(unusable)}")


class Simulation:
    """Drives a simulated world from an ordinary function; see the module's example.

    `limit_s` of virtual time may pass before a run counts as hanging (`TimeLimitReached`).
    """

    def __init__(
        self,
        seed: int,
        *,
        conditions: Conditions | None = None,
        limit_s: float = 24 * 3600.0,
        epoch_ms: int = EPOCH_MS,
    ) -> None:
        self.seed = seed
        self.epoch_ms = epoch_ms
        self.loop = SimulatedLoop(self.rng("network"), limit_s=limit_s, conditions=conditions)
        self.network = self.loop.network
        self.paths = self.network.paths

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.loop.close()
        except Exception as at_end:
            at_end.add_note(self._replay_note())
            if error is None:
                raise
            # The first failure is the one that matters; the rest often follows from it.
            error.add_note(f"then, at the end of the simulation: {at_end!r}")
        finally:
            if error is not None:
                error.add_note(self._replay_note())

    def _replay_note(self) -> str:
        return f"simulation seed {self.seed}, at {self.now_s:.6f} s of virtual time"

    def rng(self, purpose: str) -> random.Random:
        """A separate source of randomness for each purpose, so that they are independent."""
        return random.Random(f"{self.seed} {purpose}")

    def host(self, name: str) -> Host:
        return self.network.host(name)

    @property
    def now_s(self) -> float:
        return self.loop.time()

    def clock(self) -> int:
        """The `Clock` of this world: milliseconds since 1970."""
        return self.epoch_ms + self.monotonic()

    def monotonic(self) -> int:
        """Milliseconds that have passed in this world, unaffected when its clock is set."""
        # A nanosecond is added because the float of, say, 0.29 s lies a little below 290 ms.
        return int((self.now_s + 1e-9) * 1000)

    def set_clock(self, by_ms: int) -> None:
        """Set the clock of all hosts forward, or back."""
        self.epoch_ms += by_ms

    def run(self, coroutine: Coroutine[Any, Any, T], *, on: Host | None = None) -> T:
        """Run the coroutine, on that host if given, to its end and return its result."""
        task: SimTask[T] = self.loop.create_task(coroutine) if on is None else on.start(coroutine)
        return self.loop.run_until_complete(task)

    def wait(self, task: asyncio.Future[T]) -> T:
        """Run until the task is done and return its result."""
        return self.loop.run_until_complete(task)

    def until(self, condition: Callable[[], bool]) -> None:
        """Run until the condition holds. Raises `SimulationStuck` if it no longer can."""
        self.loop.run_until(condition)

    def until_idle(self) -> None:
        """Run until nothing is in flight and every task waits for a timer or for a peer."""
        self.until(lambda: self.loop.is_quiet and self.network.in_flight == 0)

    def advance(self, seconds: float) -> None:
        """Let exactly this much time pass."""
        self.loop.advance(seconds)
