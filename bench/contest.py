"""Both brokers up, the same load on each in turn, and every run kept."""

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.contenders import Contender, start_apache, start_sparrow
from bench.driver import Driver, DriverFailed
from bench.figures import Figure, Target, middle

Row = dict[str, Any]


@dataclass(frozen=True)
class Effort:
    """How much of everything."""

    runs: int = 3
    seconds: float = 6.0
    warm_s: float = 5.0
    """Before each run; a client's first seconds are its compiler's."""
    latency_s: float = 15.0
    backlog: int = 500_000


QUICK = Effort(runs=2, seconds=3.0, warm_s=3.0, latency_s=6.0, backlog=300_000)


@dataclass
class Contest:
    """One pair of brokers and the load between them."""

    driver: Driver
    apache: Contender
    sparrow: Contender
    effort: Effort
    folder: Path
    rows: list[Row] = field(default_factory=list)
    """Every run, as the load reported it, with who, what and how much others disturbed it."""

    def alternate(self, work: str, op: str, **fields: object) -> "Outcome":
        """Apache, SparrowMQ, Apache, SparrowMQ, …: what changes with time hits both.

        Each has a client process of its own for this work, warmed up by it: how fast a client is
        depends on what its compiler saw before, and by a factor of two.
        """
        outcome = Outcome(work)
        with ExitStack() as stack:
            sides = [
                (contender, rows, stack.enter_context(Driver(self.folder / contender.name)))
                for contender, rows in (
                    (self.apache, outcome.apache),
                    (self.sparrow, outcome.ours),
                )
            ]
            for run in range(self.effort.runs):
                for contender, rows, driver in sides:
                    rows.append(self._once(driver, contender, work, op, **fields))
                    say(f"{work}, run {run + 1}, {contender.name}: {brief(rows[-1])}")
        return outcome

    def _once(
        self, driver: Driver, contender: Contender, work: str, op: str, **fields: object
    ) -> Row:
        """One run against one of them. Lost messages are a failure, not a figure."""
        row = driver.run(op, **contender.target(), **fields)
        for lost in ("missing", "errors"):
            if row.get(lost):
                first = row.get("first_error", "")
                say(f"{work}, {contender.name}: {row[lost]} {lost} {first}".rstrip())
        if row.get("missing"):
            raise DriverFailed(f"{work}: {contender.name} did not deliver {row['missing']}")
        self.rows.append({"work": work, "contender": contender.name, "op": op, **fields, **row})
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
        driver = stack.enter_context(Driver(folder / "driver"))
        # Loads the client's classes; nobody listens there.
        driver.run("first_send", name_server="127.0.0.1:1", limit=0)
        both = []
        for name, start in (("apache", start_apache), ("sparrow", start_sparrow)):
            contender = start(folder / name, sync_flush)
            stack.callback(contender.close)
            if not driver.run("first_send", name_server=contender.name_server, limit=60)["sent"]:
                raise DriverFailed(f"{contender.name} took no message in 60 s, see {folder}")
            contender.first_send_s = time.monotonic() - contender.started_s
            say(f"{contender.name} takes messages after {contender.first_send_s:.2f} s")
            both.append(contender)
        yield Contest(driver, both[0], both[1], effort, folder / "clients")


def warm_up(contest: Contest) -> None:
    """Teach the compiler of Apache's JVM and the load's own; not reported."""
    seconds = contest.effort.seconds * 2.5
    for contender in (contest.apache, contest.sparrow):
        say(f"warming up {contender.name}")
        target = contender.target()
        contest.driver.run("send", **target, mode="sync", threads=64, warm=0, seconds=seconds)
        contest.driver.run("send", **target, mode="batch", threads=4, warm=0, seconds=seconds / 4)


def brief(row: Row) -> str:
    """The numbers somebody who waits wants to see."""
    shown = []
    for name, unit in (("per_s", "/s"), ("broker_cpu_us", "µs CPU"), ("e2e_p50_ms", "ms")):
        if name in row:
            shown.append(f"{row[name]:,.{0 if name == 'per_s' else 2}f} {unit}")
    return ", ".join([*shown, f"others used {row.get('other_cpus', 0):.1f} CPUs"])


def say(text: str) -> None:
    """Progress goes to standard error; standard output is the report's."""
    print(f"bench: {text}", file=sys.stderr, flush=True)
