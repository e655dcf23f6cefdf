"""Runs the scenarios for every client on every target, several at once, and compares outcomes."""

import json
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.interop.cluster import Cluster, Settings
from tests.interop.peers import Peer, start_peer
from tests.interop.registry import Scenario
from tests.interop.scene import Scene

APART, QUIET = 3, 7
"""How many of these run in parallel: mostly they wait, for servers and for time to pass."""
LONG = ("exchange", "peers")
"""What takes longest where others do not wait for it: servers start and stop all the time."""
SLOWEST = 15
EXPECTED = Path(__file__).parent / "expected"

Turns = deque[tuple[Scenario, str]]
"""Scenarios and the clients to run them with."""


class Target(Protocol):
    """The servers of either project."""

    NAME: str
    CAPABILITIES: frozenset[str]

    def start(
        self, folder: Path, settings: Settings, name_server: str | None = None
    ) -> Cluster: ...


@dataclass
class Tally:
    """What happened, for the last line."""

    run: int = 0
    failed: int = 0
    skipped: int = 0
    not_yet: int = 0
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Outcomes by client and scenario name."""
    times: list[tuple[float, str]] = field(default_factory=list)
    """Seconds of every scenario."""

    def line(self) -> str:
        """The one line that people and CI read."""
        counts = f"{self.run} run, {self.failed} failed, {self.skipped} skipped"
        tail = f", {self.not_yet} not yet" if self.not_yet else ""
        return f"scenarios × clients × brokers: {counts}{tail}"

    def slowest(self) -> list[str]:
        """A profile of the run, to make it faster."""
        longest = sorted(self.times, reverse=True)[:SLOWEST]
        total_s = sum(seconds for seconds, _ in self.times)
        head = f"{total_s:.0f} s of scenarios one after the other; the longest:"
        return [head, *(f"{seconds:7.1f} s  {what}" for seconds, what in longest)]


def expected(client: str) -> dict[str, Any]:
    """What Apache's broker gave this client, by scenario name."""
    file = EXPECTED / f"{client}.json"
    return dict(json.loads(file.read_text())["outcomes"]) if file.exists() else {}


class Run:
    """One run on one target."""

    def __init__(
        self,
        target: Target,
        folder: Path,
        tally: Tally,
        say: Callable[[str], None],
        *,
        compare: bool = True,
    ) -> None:
        self._target = target
        self._folder = folder / target.NAME
        self._tally = tally
        self._say = say
        self._compare = compare
        self._lock = threading.Lock()
        self._numbers = iter(range(1, 1_000_000))
        self._peers: dict[str, Peer] = {}
        self._able: list[Scenario] = []
        self._clients: list[str] = []

    def run(self, scenarios: list[Scenario], clients: list[str]) -> None:
        """Run everything that the target can do; the rest counts as not yet."""
        self._clients = clients
        self._able = [one for one in scenarios if one.needs in self._target.CAPABILITIES]
        for one in scenarios:
            if one not in self._able:
                self._tally.not_yet += len(set(one.clients) & set(clients))
        cluster = self._start(self._folder / "shared", Settings())
        try:
            shared = {client: self._turns("shared", client) for client in clients}
            apart = self._turns("apart", *clients)
            sides = {f"side-{number}": apart for number in range(APART)}
            self._beside(cluster, shared | sides | {"spark": self._turns("spark", *clients)})
            quiet = self._turns("quiet", *clients)
            self._beside(cluster, {f"side-{number}": quiet for number in range(QUIET)})
            self._beside(cluster, {"alone": self._turns("alone", *clients)})
        finally:
            for peer in self._peers.values():
                peer.close()
            cluster.close()

    def _start(self, folder: Path, settings: Settings) -> Cluster:
        return self._target.start(folder, settings)

    def _turns(self, lane: str, *clients: str) -> Turns:
        """The work of a lane, longest first, so that it does not delay the end of the run."""
        chosen = [one for one in self._able if one.lane == lane]
        chosen.sort(key=lambda one: (-one.lasts_s, one.needs not in LONG))
        return deque((one, client) for one in chosen for client in clients if client in one.clients)

    def _beside(self, cluster: Cluster, sides: dict[str, Turns]) -> None:
        """Work through all turns, with one thread for each side."""
        with ThreadPoolExecutor(len(sides)) as pool:
            for ended in [pool.submit(self._side, cluster, *side) for side in sides.items()]:
                ended.result()

    def _side(self, cluster: Cluster, name: str, turns: Turns) -> None:
        while turns:
            try:
                one, client = turns.popleft()
            except IndexError:  # another side was faster
                return
            self._one(one, client, cluster, name)

    def _peer(self, client: str, side: str) -> Peer:
        # A driver does one thing at a time: each target has separate drivers.
        name = client if side in (client, "alone") else f"{client}-{side}"
        if name not in self._peers:
            self._peers[name] = start_peer(client, self._folder / name)
        return self._peers[name]

    def _one(self, one: Scenario, client: str, cluster: Cluster, side: str) -> None:
        started = time.monotonic()
        with self._lock:
            suffix = f"{client}x{next(self._numbers)}"
        folder = self._folder / suffix
        trouble = ""
        try:
            peer = self._peer(client, side)
            scene = Scene(peer, cluster, suffix, folder, self._start, self._say)
            try:
                outcome = scene.plain(one.run(scene))
            finally:
                scene.close()
            trouble = self._difference(one, client, outcome)
        except Exception as error:
            trouble = _told(error)
        self._report(one, client, time.monotonic() - started, trouble)

    def _difference(self, one: Scenario, client: str, outcome: Any) -> str:
        # Through JSON once, as the recording went: tuples and numbers as keys become what it has.
        outcome = json.loads(json.dumps(outcome))
        with self._lock:
            self._tally.outcomes.setdefault(client, {})[one.name] = outcome
        if not (self._compare and one.is_compared):
            return ""
        known = expected(client)
        if one.name not in known:
            return "no outcome of Apache's broker is recorded; run with --record-apache"
        return _differs(known[one.name], outcome, "")

    def _report(self, one: Scenario, client: str, seconds: float, trouble: str) -> None:
        with self._lock:
            self._tally.run += 1
            self._tally.times.append((seconds, f"{client:6} {one.name}"))
            self._tally.failed += bool(trouble)
            word = "FAILED" if trouble else "ok"
            self._say(f"{word:6} {self._target.NAME:7} {client:5} {seconds:5.1f} s  {one.name}")
            if trouble:
                self._say("       " + trouble.rstrip().replace("\n", "\n       "))


def _told(error: Exception) -> str:
    """The error and the lines of the scenario that led to it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"at {Path(f.filename).name}:{f.lineno}  {f.line}" for f in frames[1:]]
    return "\n".join([f"{type(error).__name__}: {error}", *lines])


def _differs(apache: Any, ours: Any, where: str) -> str:
    """The first places where two outcomes differ, in words."""
    if isinstance(apache, dict) and isinstance(ours, dict):
        names = sorted(apache.keys() | ours.keys())
        parts = [_differs(apache.get(n), ours.get(n), f"{where}.{n}") for n in names]
        return "\n".join(part for part in parts if part)
    if isinstance(apache, list) and isinstance(ours, list) and len(apache) == len(ours):
        pairs = enumerate(zip(apache, ours, strict=True))
        parts = [_differs(one, other, f"{where}[{n}]") for n, (one, other) in pairs]
        return "\n".join([part for part in parts if part][:3])
    if apache != ours:
        return f"{where.lstrip('.')}: Apache gives {_short(apache)}, here {_short(ours)}"
    return ""


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 1200 else f"{text[:1200]}…"
