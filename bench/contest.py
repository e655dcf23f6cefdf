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
    """Before the first run; a client's first seconds are its compiler's."""
    latency_s: float = 15.0
    backlog: int = 500_000


QUICK = Effort(runs=3, seconds=2.0, warm_s=4.0, latency_s=4.0)


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
        """All runs of one broker, then all of the other, each by a client process of its own, the
        other broker suspended meanwhile.

        Work without a `warm` of its own is done once more at first, unreported.

        The client is warmed up once and keeps its producer from run to run, as programs do. How
        fast both JVMs are depends on what their compilers saw before, by a factor of two: read the
        single runs beside the medians.
        """
        outcome = Outcome(work)
        both = (
            (self.apache, self.sparrow, outcome.apache),
            (self.sparrow, self.apache, outcome.ours),
        )
        for contender, other, rows in both:
            with other.at_rest(), Driver(self.folder / contender.name) as driver:
                if "warm" not in fields:
                    driver.run(op, **contender.target(), **fields)
                for run in range(self.effort.runs):
                    warm = {"warm": 0} if run else {}
                    rows.append(self._once(driver, contender, work, op, **fields | warm))
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
    """Teach the compiler of Apache's JVM; not reported. Ours has nothing to learn."""
    say("warming up Apache")
    seconds, target = contest.effort.seconds * 2.5, contest.apache.target()
    contest.driver.run("send", **target, mode="sync", threads=32, warm=0, seconds=seconds)
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
