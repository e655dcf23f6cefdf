"""Runs the same load on both brokers in turn and keeps every result."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contenders import Contender, Start, start_apache, start_sparrow, suspended
from bench.driver import Driver, DriverFailed
from bench.figures import Figure, Target, middle

Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much of everything."""

    runs: int = 3
    seconds: float = 6.0
    learn_s: float = 30.0
    """Before anything is measured: the first seconds of a JVM are its compiler's."""
    warm_s: float = 3.0
    """Before the first run of every kind of work."""
    latency_s: float = 15.0
    backlog: int = 500_000
    """Messages that consumers take."""
    stored: int = 10_000_000
    """Messages that lie in the log and change nothing."""


QUICK = Effort(
    seconds=1.25, learn_s=8.0, warm_s=0.75, latency_s=2.5, backlog=400_000, stored=1_000_000
)


@dataclass
class Side:
    """A broker with a client of its own."""

    broker: Contender
    client: Driver
    first_send_s: float
    """From the start of the broker's process until a message was stored."""

    @property
    def name(self) -> str:
        """Whose broker."""
        return self.broker.name

    @property
    def pids(self) -> list[int]:
        """The broker's processes."""
        return self.broker.pids

    def run(self, op: str, **fields: object) -> Row:
        """Let the client do something."""
        return self.client.run(op, **self.broker.target(), **fields)

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Suspended: an idle JVM broker takes a tenth of a core, which the other would pay for."""
        with suspended([*self.broker.all_pids, self.client.pid]):
            yield


@dataclass
class Contest:
    """Apache's broker and ours."""

    apache: Side
    sparrow: Side
    effort: Effort
    rows: list[Row] = field(default_factory=list)
    """Every run, as the load reported it, with who, what and how much others disturbed it."""

    def __iter__(self) -> Iterator[Side]:
        """Each in turn, the other one suspended meanwhile."""
        for side, other in ((self.apache, self.sparrow), (self.sparrow, self.apache)):
            with other.at_rest():
                yield side

    def alternate(self, work: str, op: str, **fields: object) -> "Outcome":
        """A run against the one, a run against the other, and again; a first one is not reported.

        Clients last from work to work and keep what they opened, as programs do. How fast a JVM is
        depends on what its compiler saw before, by a factor of two: read the single runs beside
        the medians.
        """
        outcome = Outcome(work)
        first = {"seconds": self.effort.warm_s} if "seconds" in fields else {}
        for side in self:
            side.run(op, **fields | first)
        for run in range(self.effort.runs):
            for side in self:
                row = self._once(side, work, op, **fields)
                (outcome.apache if side is self.apache else outcome.ours).append(row)
                say(f"{work}, run {run + 1}, {side.name}: {brief(row)}")
        return outcome

    def _once(self, side: Side, work: str, op: str, **fields: object) -> Row:
        """One run against one of them. Lost messages are a failure, not a figure."""
        row = side.run(op, **fields)
        for lost in ("missing", "errors"):
            if row.get(lost):
                first = row.get("first_error", "")
                say(f"{work}, {side.name}: {row[lost]} {lost} {first}".rstrip())
        if row.get("missing"):
            raise DriverFailed(f"{work}: {side.name} did not deliver {row['missing']}")
        self.rows.append({"work": work, "contender": side.name, "op": op, **fields, **row})
        return row


@dataclass
class Outcome:
    """The runs of one kind of work."""

    work: str
    apache: list[Row] = field(default_factory=list)
    ours: list[Row] = field(default_factory=list)

    def figure(self, name: str, what: str, unit: str, target: Target | None = None) -> Figure:
        """The medians of one number, side by side."""
        ours, apache = middle(self.ours, name), middle(self.apache, name)
        return Figure(self.work, what, unit, ours, apache, target)


@contextmanager
def contest(folder: Path, effort: Effort, *, sync_flush: bool = False) -> Iterator[Contest]:
    """Start both brokers, each alone, and measure how long until a message can be sent."""
    with ExitStack() as stack:
        apache = _side(stack, folder / "apache", start_apache, sync_flush)
        sparrow = _side(stack, folder / "sparrow", start_sparrow, sync_flush)
        yield Contest(apache, sparrow, effort)


def _side(stack: ExitStack, folder: Path, start: Start, sync_flush: bool) -> Side:
    client = stack.enter_context(Driver(folder / "client"))
    # Loads the client's classes; no server listens there.
    client.run("first_send", name_server="127.0.0.1:1", limit=0)
    broker = start(folder / "broker", sync_flush)
    stack.callback(broker.close)
    waited = time.monotonic() - broker.started_s
    row = client.run("first_send", name_server=broker.name_server, limit=60)
    if not row["sent"]:
        raise DriverFailed(f"{broker.name} took no message in 60 s, see {folder}")
    say(f"{broker.name} takes messages after {waited + row['took_s']:.2f} s")
    return Side(broker, client, waited + row["took_s"])


def learn(contest: Contest) -> None:
    """Teach the compilers of the JVMs, Apache's and those of the clients; not reported."""
    seconds = contest.effort.learn_s
    for side in contest:
        say(f"warming up {side.name} and its client for {seconds:.0f} s")
        for mode, threads, part in (("sync", 64, 0.6), ("async", 2, 0.2), ("batch", 4, 0.2)):
            side.run("send", mode=mode, threads=threads, seconds=seconds * part, warm=0)


def brief(row: Row) -> str:
    """The figures shown while a run is in progress."""
    shown = []
    for name, unit in (("per_s", "/s"), ("broker_cpu_us", "µs CPU"), ("e2e_p50_ms", "ms")):
        if name in row:
            shown.append(f"{row[name]:,.{0 if name == 'per_s' else 2}f} {unit}")
    return ", ".join([*shown, f"others used {row.get('other_cpus', 0):.1f} CPUs"])


def say(text: str) -> None:
    """Progress goes to standard error; standard output is the report's."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
