"""A broker and one connection to it, both in this process and without sockets."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.broker.server import BrokerServer, routes
from sparrowmq.broker.topics import plain_topic
from sparrowmq.clock import Clock
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.disk.syncer import InlineSyncer
from sparrowmq.net.connection import Connection
from sparrowmq.net.endpoint import Endpoint
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import decode_plain
from tests.guard import frames

QUEUES = 8
_NOW_MS = 1_794_741_940_696


class NoTransport(asyncio.Transport):
    """Keeps what is written, so that answers can be looked at afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 4242)


class Wired:
    """A client's end of the connection."""

    def __init__(self, broker: Broker, connection: Connection, transport: NoTransport) -> None:
        self.broker = broker
        self.receive = connection.data_received
        self._transport = transport

    def feed(self, requests: list[bytes]) -> None:
        """Each frame in a separate read callback, as from clients that wait for answers."""
        for frame in requests:
            self.receive(frame)

    def join(self) -> None:
        """Be a member since some seconds ago, so that pulls wait for no previous owner."""
        self.receive(frames.heartbeat(1))
        for group in tuple(self.broker.watched.rebalancing):
            self.broker.watched.end_rebalance(group)

    def limit(self, **per_second: int) -> None:
        """Give the topic a quota; none without."""
        self.configure({f"sparrowmq.quota.{unit}": str(rate) for unit, rate in per_second.items()})

    def limit_senders(self, **per_second: int) -> None:
        """Give every client, and the producer group of all sends, a quota; none without."""
        scopes = ("client.{}", f"producer.{{}}.{frames.PRODUCER_GROUP}")
        attributes = {
            f"sparrowmq.quota.{scope.format(unit)}": str(rate)
            for unit, rate in per_second.items()
            for scope in scopes
        }
        self.configure(attributes, self.broker.config.broker_name)

    def configure(self, attributes: dict[str, str], name: str = frames.TOPIC) -> None:
        """Give a topic these attributes and no others; made if it is not there."""
        topic = msgspec.structs.replace(plain_topic(name, QUEUES), attributes=attributes)
        self.broker.topics.put(topic)
        self.broker.topics.was_saved(self.broker.topics.table())
        self.broker.traffic.follow(self.broker, [topic])

    def wake(self) -> None:
        """What the loop does at the end of its turn for pulls whose queue grew."""
        self.broker.arrivals.wake_touched()

    @property
    def written(self) -> bytes:
        """What was answered since the last call of `answers`, as bytes."""
        return b"".join(self._transport.written)

    def answers(self) -> list[int]:
        """The codes that were answered since the last call."""
        written, self._transport.written = self.written, []
        replies = FrameDecoder().feed(written)
        return [decode_plain(binary, header).code for binary, header, _ in replies]


@asynccontextmanager
async def wired(
    folder: Path, monotonic: Clock = lambda: _NOW_MS, clock: Clock = lambda: _NOW_MS
) -> AsyncIterator[Wired]:
    """The broker runs on the real disk; what is counted never gives the loop a turn."""
    disk = RealDisk(folder)
    log = logging.getLogger("guard")
    server = BrokerServer(
        # The loop gets few turns here, which is not being busy.
        BrokerConfig(data_dir=folder, port=0, busy_lag_s=3600.0),
        disk=disk,
        clock=clock,
        monotonic=monotonic,
        rng=random.Random(1),
        workers=InlineWorkers(),
        syncer=InlineSyncer(disk),
        pid=1,
        log=log,
    )
    async with server.running(), asyncio.TaskGroup() as tasks:
        # A topic that a send creates would keep it waiting for the table to be saved.
        server.broker.topics.put(plain_topic(frames.TOPIC, QUEUES))
        await server.broker.saving.save()
        endpoint = Endpoint(server.broker, routes, tasks, log=log)
        connection, transport = Connection(endpoint), NoTransport()
        connection.connection_made(transport)
        yield Wired(server.broker, connection, transport)
        connection.connection_lost(None)
        server.broker.connection_closed(connection)
