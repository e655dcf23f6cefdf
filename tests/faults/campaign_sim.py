"""Row 20 in virtual time: a whole cluster on simulated hosts, with a disk that loses power."""

import asyncio
import tempfile
from collections.abc import Coroutine, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from sparrowmq.broker.config import BrokerConfig, Flush
from sparrowmq.client.client import Client
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.testing.sim_cluster import SMALL_STORE, RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.virtual_tasks import SimTask
from tests.faults.campaign import Judged, Story
from tests.faults.campaign_clients import LEVELS_MS
from tests.faults.campaign_faults import DRAINED_S, FAULTS, KEPT_S, World, run

IMPOSSIBLE = frozenset({"driver"})
"""Spark has no simulated host."""
KINDS = tuple(kind for kind in FAULTS if kind not in IMPOSSIBLE)
_LONGEST_SYNC_S = 0.05
_ASKED = 20
STORE = replace(
    SMALL_STORE, log_file_size=128 * 1024, delay_levels_ms=LEVELS_MS, retention_ms=KEPT_S * 1000
)


class SlowDiskNode(BrokerNode):
    """A broker whose disk takes its time: what is written meanwhile is not durable."""

    async def sync(self, plan: SyncPlan) -> None:
        """Return when everything in the plan is durable."""
        await asyncio.sleep(self._sim.rng(f"sync at {self._sim.now_s}").random() * _LONGEST_SYNC_S)
        await super().sync(plan)


class SimWorld(World):
    """Everything on simulated hosts."""

    def __init__(self, sim: RunningCluster, story: Story, offsets_dir: Path) -> None:
        super().__init__(story, offsets_dir, InlineWorkers())
        self._sim = sim
        self._lives: dict[str, SimTask[None]] = {}
        self._node = self._make_broker()

    def _make_broker(self) -> SlowDiskNode:
        host = self._sim.host("broker-a")
        config = BrokerConfig(
            data_dir=Path("/simulated/broker-a"),
            broker_name="broker-a",
            name_servers=self._sim.name_server_addresses,
            listen_host="0.0.0.0",
            advertise_host=host.ip,
            flush=Flush.SYNC if self.story.sync_flush else Flush.ASYNC,
            transaction_timeout_s=3.0,
            transaction_check_interval_s=5.0,
            store=STORE,
        )
        node = SlowDiskNode(self._sim, config)
        self._sim.brokers["broker-a"] = node
        node.start()
        return node

    # ---- for clients

    @property
    def now_s(self) -> float:
        return self._sim.now_s

    def clock(self) -> int:
        return self._sim.clock()

    def client_on(self, name: str) -> Client:
        return self._sim.client_on(name)

    def spawn(self, name: str, life: Coroutine[Any, Any, None]) -> None:
        self._lives[name] = self._sim.host(name).start(life, name=name)

    def rng(self, purpose: str) -> Random:
        return self._sim.rng(purpose)

    # ---- time and servers

    def pass_time(self, seconds: float) -> None:
        self._sim.advance(seconds)

    def call(self, header: RequestHeader, body: bytes = b"") -> Response:
        return self._ask(self._node.address, header, body)

    def call_name_server(self, header: RequestHeader) -> Response:
        return self._ask(self._sim.name_server_addresses[0], header)

    def _ask(self, address: str, header: RequestHeader, body: bytes = b"") -> Response:
        for _ in range(_ASKED):
            try:
                return self._sim.wait(self._sim.client.call(header, body, address=address))
            except NetError:
                self.pass_time(0.5)
        raise AssertionError(f"{header} is not answered")

    @property
    def disk(self) -> Disk:
        return self._node.disk

    def kill_broker(self, down_s: float, *, port_changes: bool = False) -> None:
        self._node.kill()
        if port_changes:
            self._node.config = replace(self._node.config, port=self._node.config.port + 4)
        self.pass_time(down_s)
        self._node.start()

    def stop_broker(self, down_s: float) -> None:
        self._node.stop()
        self.pass_time(down_s)
        self._node.start()

    def cut_power(self, down_s: float) -> float:
        died_s = self.now_s
        self.log.read(self.disk)
        self._node.lose_power()
        self.pass_time(down_s)
        self._node.start()
        return died_s

    def pause_broker(self, seconds: float) -> None:
        self._node.host.pause()
        self.pass_time(seconds)
        self._node.host.resume()

    def lose_name_server(self, seconds: float) -> None:
        server = next(iter(self._sim.name_servers.values()))
        server.kill()
        self.pass_time(seconds)
        server.start()

    def step_clock(self, seconds: float) -> None:
        self._sim.set_clock(round(seconds * 1000))

    def keep_files(self, directory: Path) -> None:
        """Write the broker's files to a directory for inspection."""
        for path, data in self._node.disk.files().items():
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)

    # ---- hosts of members

    def isolate(self, names: Iterable[str], seconds: float) -> None:
        self._sim.paths.partition([self._sim.host(name) for name in names], [self._node.host])
        self.pass_time(seconds)
        self._sim.paths.heal()

    def break_connections(self) -> None:
        self._sim.network.reset_connections(self._node.host)

    def pause_member(self, name: str, seconds: float) -> None:
        self._sim.host(name).pause()
        self.pass_time(seconds)
        self._sim.host(name).resume()

    def kill_member(self, name: str) -> None:
        self._sim.host(name).kill()

    def dead_members(self) -> dict[str, str]:
        return {
            name: repr(life.exception())
            for name, life in self._lives.items()
            if name in self.members and life.done()
        }


def campaign_in_simulation(
    seed: int,
    count: int,
    *,
    sync_flush: bool,
    kinds: Iterable[str] = KINDS,
    drained_s: float = DRAINED_S,
    keep_in: Path | None = None,
) -> Judged:
    """So many faults under the mixed load; the broker's files are kept where it fails."""
    story = Story(seed, sync_flush)
    with (
        tempfile.TemporaryDirectory(prefix="sparrowmq-campaign-") as directory,
        SimCluster(seed, brokers=0, limit_s=100 * 3600.0).run() as sim,
    ):
        world = SimWorld(sim, story, Path(directory))
        judged = run(world, kinds, count, drained_s=drained_s)
        if not judged and keep_in is not None:
            world.keep_files(keep_in / f"{seed}")
            judged.problems.append(f"kept in {keep_in / f'{seed}'}")
        return judged
