"""Row 20 with real servers: a broker and a name server in separate processes.

Producers and members live in this process, one client each; a Spark stream, where there is one, in
a separate driver. A power cut is kill -9, after which
whatever the store had not marked as durable is taken from its log.
"""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from random import Random
from typing import Any

from sparrowmq.client.client import Client, client_around, core_of
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.clock import system_clock
from sparrowmq.disk.disk import Disk
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.net.calls import Response
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.store.files import StoreFiles
from sparrowmq.store.layout import log_path
from sparrowmq.testing.held_port import HeldPort
from tests.faults.broker_process import BrokerProcess
from tests.faults.campaign import UNSYNCED_S, Judged, Story
from tests.faults.campaign_broker import CLOCK, PLANTED_BUG, STALLS, STEP, beside
from tests.faults.campaign_clients import LEVELS_MS
from tests.faults.campaign_faults import DRAINED_S, FAULTS, KEPT_S, World, run
from tests.faults.campaign_stream import STREAM, Stream
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.faults.watched_loops import stalls_of_service

IMPOSSIBLE = frozenset({"partition", "connections", "stopped-member"})
"""Members share a process with the campaign, and the network is the machine's own."""
KINDS = tuple(kind for kind in FAULTS if kind not in {*IMPOSSIBLE, "driver"})
"""Those of a campaign without a stream."""
_LOG_FILE_BYTES = 1024 * 1024
_OPTIONS = (
    *("--vip-alias", "false", "--store-log-file-size", str(_LOG_FILE_BYTES)),
    *("--transaction-timeout", "2s", "--transaction-check-interval", "3s"),
    *("--store-delay-levels", ",".join(f"{delay_ms}ms" for delay_ms in LEVELS_MS)),
    *("--store-retention", f"{KEPT_S}s"),
)
_ASKED = 40
_SLOW_SYNC_S = 1.0
"""What a busy machine's disk may take for two syncs."""


class ProcessWorld(World):
    """Time passes while the loop runs, and it runs only where the campaign lets time pass."""

    route_poll_s = 5.0
    look_s = 2.0

    def __init__(self, root: Path, story: Story, planted: str) -> None:
        super().__init__(story, root / "offsets", None)
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._data = root / "data"
        self._step_ns = 0
        beside(self._data, CLOCK).write_bytes(STEP.pack(0))
        if planted:
            beside(self._data, PLANTED_BUG).write_text(planted)
        self._flush = ("--flush", "sync" if story.sync_flush else "async")
        self._ports = [HeldPort()]
        self._name_server = NameServerProcess(root, stalls=beside(self._data, STALLS))
        self._broker = self._start()
        self._operator = self.client_on("operator")
        self._wait(self._operator.start())

    def close(self) -> None:
        """End all processes."""
        for life in self._lives.values():
            life.cancel()
        self._wait(asyncio.wait([*self._lives.values()], timeout=60))
        self._wait(self._operator.stop())
        if self.stream is not None:
            self.stream.kill()
        self._broker.kill()
        self._name_server.close()
        for held in self._ports:
            held.close()
        self._runner.close()

    def add_stream(self, folder: Path, *, is_planted: bool) -> None:
        """A Spark stream reads as well; it starts together with the members."""
        self.stream = Stream(self._name_server.address, folder, is_planted=is_planted)

    def _wait(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._loop.run_until_complete(coroutine)

    def _beside(self, function: Callable[[], Any]) -> Any:
        """Run a blocking step while all clients keep running."""
        return self._loop.run_until_complete(self._loop.run_in_executor(None, function))

    def _start(self) -> BrokerProcess:
        servers = ("--name-servers", self._name_server.address)
        port = ("--port", str(self._ports[-1].port))
        options = (*_OPTIONS, *self._flush, *servers, *port)
        module = "tests.faults.campaign_broker"
        started = self._beside(lambda: BrokerProcess(self._data, *options, module=module))
        assert isinstance(started, BrokerProcess)
        return started

    # ---- for clients

    @property
    def now_s(self) -> float:
        return time.monotonic()

    def clock(self) -> int:
        return system_clock() + self._step_ns // 1_000_000

    def client_on(self, name: str) -> Client:
        config = ClientConfig(
            name_servers=(self._name_server.address,),
            instance_name=name,
            route_poll_s=self.route_poll_s,
        )
        return client_around(ClientCore(config, clock=self.clock))

    def spawn(self, name: str, life: Coroutine[Any, Any, None]) -> None:
        self._lives[name] = self._loop.create_task(life, name=name)

    def rng(self, purpose: str) -> Random:
        return Random(f"{self.story.seed} {purpose}")

    # ---- time and servers

    def pass_time(self, seconds: float) -> None:
        self._wait(asyncio.sleep(seconds))

    def call(self, header: RequestHeader, body: bytes = b"") -> Response:
        return self._ask(self._ports[-1].address, header, body)

    def call_name_server(self, header: RequestHeader) -> Response:
        return self._ask(self._name_server.address, header)

    def _ask(self, address: str, header: RequestHeader, body: bytes = b"") -> Response:
        for _ in range(_ASKED):
            try:
                peers = core_of(self._operator).peers
                answer = self._wait(peers.call(address, header, body, timeout_s=5.0))
                assert isinstance(answer, Response)
                return answer
            except NetError:
                self.pass_time(0.5)
        raise AssertionError(f"{header} is not answered")

    @property
    def disk(self) -> Disk:
        return RealDisk(self._data)

    def kill_broker(self, down_s: float, *, port_changes: bool = False) -> None:
        self._beside(self._broker.kill)
        if port_changes:
            self._ports.append(HeldPort())
        self.pass_time(down_s)
        self._broker = self._start()

    def stop_broker(self, down_s: float) -> None:
        self._beside(self._broker.stop)
        self.pass_time(down_s)
        self._broker = self._start()

    def cut_power(self, down_s: float) -> float:
        self._beside(self._broker.kill)
        died_s = self.now_s
        self.log.read(self.disk)
        lose_unsynced(self._data, self.rng(f"cut {len(self.story.cuts)}"))
        self.pass_time(down_s)
        self._broker = self._start()
        return died_s

    def pause_broker(self, seconds: float) -> None:
        os.kill(self._broker.process.pid, signal.SIGSTOP)
        self.pass_time(seconds)
        os.kill(self._broker.process.pid, signal.SIGCONT)

    def lose_name_server(self, seconds: float) -> None:
        self._beside(self._name_server.kill)
        self.pass_time(seconds)
        self._beside(self._name_server.start)

    def step_clock(self, seconds: float) -> None:
        self._step_ns += round(seconds * 1e9)
        with beside(self._data, CLOCK).open("r+b") as file:
            file.write(STEP.pack(self._step_ns))

    # ---- members

    def isolate(self, names: Iterable[str], seconds: float) -> None:
        raise NotImplementedError

    def break_connections(self) -> None:
        raise NotImplementedError

    def pause_member(self, name: str, seconds: float) -> None:
        raise NotImplementedError

    def kill_member(self, name: str) -> None:
        self._lives[name].cancel()
        self._wait(asyncio.wait([self._lives[name]]))

    def dead_members(self) -> dict[str, str]:
        dead = {
            name: "cancelled" if life.cancelled() else repr(life.exception())
            for name, life in self._lives.items()
            if life.done()
        }
        if self.stream is not None and (why := self.stream.why_ended()):
            dead[STREAM] = why
        return dead

    def note_stalls(self) -> None:
        """What held the loops of the broker and of the name server."""
        path = beside(self._data, STALLS)
        if path.exists():
            self.story.stalls += stalls_of_service(path.read_text())


def lose_unsynced(data: Path, rng: Random) -> None:
    """Remove from the log of a dead broker everything not known to be durable.

    Some of it may have reached the disk: all, nothing, or its beginning, torn anywhere.
    """
    files = StoreFiles.at(data)
    mark = files.mark()
    durable = 0 if mark is None else mark.log_offset
    end = durable
    for record in files.records(durable):
        end = record.log_offset + record.size
    kept = durable if end == durable else rng.choice((durable, end, rng.randint(durable, end)))
    size = files.log_file_size()
    for start in files.log_starts():
        first = max(0, kept - start)
        if first < size:
            with (data / log_path(start)).open("r+b") as file:
                file.seek(first)
                file.write(bytes(size - first))


def campaign_in_processes(
    seed: int,
    count: int,
    *,
    sync_flush: bool,
    kinds: Iterable[str] = KINDS,
    drained_s: float = DRAINED_S,
    planted: str = "",
    with_stream: bool = False,
    keep_in: Path | None = None,
) -> Judged:
    """So many faults under the mixed load; a Spark stream can be killed only where there is one."""
    story = Story(seed, sync_flush, unsynced_s=UNSYNCED_S + _SLOW_SYNC_S)
    root = Path(tempfile.mkdtemp(prefix="sparrowmq-campaign-"))
    try:
        world = ProcessWorld(root, story, "" if planted == "driver" else planted)
        if with_stream:
            world.add_stream(root / STREAM, is_planted=planted == "driver")
        try:
            judged = run(world, kinds, count, pause_s=0.03, drained_s=drained_s)
            world.note_stalls()
        finally:
            world.close()
        if not judged and keep_in is not None:
            shutil.copytree(root, keep_in, dirs_exist_ok=True)
            judged.problems.append(f"kept in {keep_in}")
        return judged
    finally:
        shutil.rmtree(root)
