"""A broker that comes and goes, and a gate that holds a query in the middle of a batch."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sparrowmq.admin.admin import Admin
from sparrowmq.testing.held_port import LOOPBACK, HeldPort
from tests.faults.broker_process import BrokerProcess

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

NAME = "broker-z"
DEADLINE_S = 300.0


class OtherBroker:
    """A broker in a separate process, in addition to those that the name server has already.

    It keeps its port while it is away.
    """

    def __init__(self, name_server: str, folder: Path) -> None:
        self.name_server = name_server
        self._data = folder / NAME
        self._held = HeldPort()
        self._process: BrokerProcess | None = None

    def start(self) -> None:
        """Another life on the same port and files."""
        where = ("--broker-name", NAME, "--name-servers", self.name_server)
        port = ("--port", str(self._held.port), "--vip-alias", "false")
        self._process = BrokerProcess(self._data, *where, *port)

    def end(self, how: signal.Signals) -> None:
        """SIGTERM or SIGKILL; gone when this returns."""
        assert self._process is not None
        process, self._process = self._process, None
        process.stop() if how == signal.SIGTERM else process.kill()

    def create_topic(self, topic: str, queues: int) -> None:
        """A topic that only this broker has."""

        async def create() -> None:
            async with Admin(self.name_server) as admin:
                await admin.create_topic(topic, queues=queues, brokers=[NAME])

        asyncio.run(create())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
        self._held.close()


class Gate:
    """Where tasks stop in front of chosen rows, until they are let through."""

    def __init__(self, before: Collection[bytes]) -> None:
        self._before = frozenset(before)
        self._listener = socket.create_server((LOOPBACK, 0))
        self._listener.settimeout(DEADLINE_S)
        self._waiting: socket.socket | None = None

    def reached(self) -> None:
        """Return when a task stands in front of the next of the rows."""
        self._waiting, _ = self._listener.accept()

    def open(self) -> None:
        """Resume that task."""
        if self._waiting is not None:
            self._waiting.close()
            self._waiting = None

    def through(self, frame: DataFrame) -> DataFrame:
        """The same rows, by way of the gate."""
        before, port = self._before, self._listener.getsockname()[1]

        def watch(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                first = 0
                for at, body in enumerate(batch.column("body").to_pylist()):
                    if body[:6] in before:
                        yield batch.slice(first, at - first)
                        first = at
                        with socket.create_connection(("127.0.0.1", port)) as gate:
                            gate.recv(1)
                yield batch.slice(first)

        return frame.mapInArrow(watch, frame.schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.open()
        self._listener.close()
