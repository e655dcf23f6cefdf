"""A topic whose queue went back after it was read: what is left of it, and what came since.

kept 0 … 3 | lost 4 … 9      went back      kept 0 … 3 | new 4 …
                       ^ a checkpoint, learned here
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparrowmq.admin.admin import Admin
from sparrowmq.clock import system_clock
from sparrowmq.store.config import StoreConfig
from sparrowmq.store.epochs import EPOCHS
from sparrowmq.store.layout import ABORT
from sparrowmq.testing import Cluster, cluster
from tests.spark.admin import create_topic
from tests.spark.stream_readers import ALL, stream_readers
from tests.spark.topics import fill

TOPIC, BROKER = "orders", "broker-a"
KEPT, READ = 4, 10
SMALL = StoreConfig(
    log_file_size=1 << 20, queue_file_units=1000, index_slots=100, index_entries=400
)
"""Whole files are copied here."""


@dataclass
class World:
    """One broker, whose clock goes a minute further with each start."""

    running: Cluster
    copy: Path
    ahead_ms: list[int]
    checkpoint: dict[str, Any] = field(default_factory=dict)
    """Where a stream was before the queue went back."""
    kept: int = KEPT
    """Messages that are left of those before."""
    new: list[bytes] = field(default_factory=list)
    """What was acknowledged since, sorted."""

    @property
    def store(self) -> Path:
        return self.running.data_dir / BROKER

    def latest(self) -> dict[str, Any]:
        """Where a stream is that has read everything."""
        with stream_readers() as open_reader:
            reader = open_reader(self.running.name_server, TOPIC)
            return reader.latestOffset(reader.initialOffset(), ALL)

    def send(self, count: int) -> list[bytes]:
        """New messages; no two of a world have the same body."""
        sent = fill(self.running, TOPIC, count, first=100 + len(self.new))
        self.new += sent
        return sent

    def stop(self) -> None:
        self.running.stop_broker(BROKER)

    def start(self) -> None:
        self.ahead_ms[0] += 60_000
        self.running.start_broker(BROKER)

    def restart(self) -> None:
        """In order: nothing is lost, and an epoch begins."""
        self.stop()
        self.start()

    def restore(self) -> None:
        """The store is an older copy of itself."""
        self.stop()
        shutil.rmtree(self.store)
        shutil.copytree(self.copy, self.store)
        self.start()

    def lose_power(self) -> None:
        """The log ends where it was last synced; which epochs have begun is always synced."""
        self.stop()
        epochs = (self.store / EPOCHS).read_bytes()
        shutil.rmtree(self.store)
        shutil.copytree(self.copy, self.store)
        (self.store / EPOCHS).write_bytes(epochs)
        (self.store / ABORT).write_bytes(b"")
        self.start()

    def recreate(self) -> None:
        """The topic is deleted and created again."""

        async def delete() -> None:
            async with Admin(self.running.name_server) as admin:
                await admin.delete_topic(TOPIC)

        asyncio.run(delete())
        create_topic(self.running, TOPIC, 1)
        self.kept = 0


WAYS: dict[str, Callable[[World], None]] = {
    "power cut": World.lose_power,
    "topic recreated": World.recreate,
    "older copy restored": World.restore,
}


@contextmanager
def read_world(folder: Path) -> Iterator[World]:
    """A queue of which KEPT messages are in a copy of the store, and which was read up to READ."""
    ahead_ms = [0]
    data, copy = folder / "data", folder / "copy"

    def clock() -> int:
        return system_clock() + ahead_ms[0]

    with cluster(data_dir=data, clock=clock, store=SMALL) as running:
        world = World(running, copy, ahead_ms)
        create_topic(running, TOPIC, 1)
        fill(running, TOPIC, KEPT)
        world.stop()
        shutil.copytree(world.store, copy)
        world.start()
        fill(running, TOPIC, READ - KEPT, first=KEPT)
        world.checkpoint = world.latest()
        yield world
