"""The same cluster for synchronous code: it runs on a loop in a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sparrowmq.clock import Clock, system_clock
from sparrowmq.testing.local_cluster import AsyncCluster

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


class Cluster:
    """A running cluster inside a `with` block; `cluster` creates one."""

    def __init__(self, inner: AsyncCluster, loop_factory: LoopFactory | None = None) -> None:
        self._inner = inner
        self._loop_factory = loop_factory
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name="sparrowmq cluster", daemon=True)

    @property
    def name_server(self) -> str:
        """`host:port` for clients."""
        return self._inner.name_server

    @property
    def broker_addresses(self) -> dict[str, str]:
        """`host:port` of every broker by its name, including stopped ones; `broker-a.1` is the
        first slave of `broker-a`."""
        return self._inner.broker_addresses

    @property
    def data_dir(self) -> Path:
        """The directory of the cluster; each broker has a subdirectory of its name."""
        return self._inner.data_dir

    def start_broker(self, name: str) -> None:
        """Start a stopped broker on its old port and files. A slave whose master runs follows it
        when this returns; raises TimeoutError if it does not within a minute."""
        self._call(self._inner.start_broker(name))

    def stop_broker(self, name: str) -> None:
        """Stop a broker gracefully; its files stay."""
        self._call(self._inner.stop_broker(name))

    def create_topic(
        self, topic: str, *, queues: int = 8, attributes: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic with `queues` queues on every broker, or change it. Clients find it when
        this returns. Raises AdminError, ValueError."""
        self._call(self._inner.create_topic(topic, queues=queues, attributes=attributes))

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.result()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._ended.done():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._ended.result()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._serve())
        except BaseException as error:  # handed to the thread that waits
            first = self._ended if self._started.done() else self._started
            first.set_exception(error)
        finally:
            if not self._ended.done():
                self._ended.set_result(None)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        async with self._inner:
            self._started.set_result(None)
            await self._stopping.wait()


def cluster(
    brokers: int = 1,
    *,
    slaves: int = 0,
    data_dir: str | Path | None = None,
    loop_factory: LoopFactory | None = None,
    clock: Clock = system_clock,
    **settings: Any,
) -> Cluster:
    """A cluster for `with`: real servers on free loopback ports, in this process.

    Each of the brokers is a master with `slaves` slaves, which follow it when the block begins.
    `data_dir` is a temporary directory unless given. `settings` are fields of `BrokerConfig`.
    `loop_factory` creates the servers' loop; asyncio's default unless given. `clock` gives the
    brokers the time.

        with cluster(brokers=2, default_queues=4) as running:
            producer = Producer("orders-svc", name_servers=running.name_server)
    """
    inner = AsyncCluster(brokers=brokers, slaves=slaves, data_dir=data_dir, clock=clock, **settings)
    return Cluster(inner, loop_factory)
