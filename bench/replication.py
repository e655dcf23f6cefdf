"""The cost of a second copy: a master alone, with a slave, and waiting for it; and Apache's.

All of it in one run and in turn, so that figures can be compared; the processes of the others are
suspended meanwhile.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from bench.contenders import suspended
from bench.contest import Effort, Row, brief, say
from bench.figures import Figure, Target, at_least, at_most, middle, times_more
from bench.machine import process_cpu_s
from bench.pairs import LogProbe, Pair, apache_pair, sparrow_pair
from tests.interop.cluster import accepts, wait_until

THREADS = 64
PACE = 20_000
"""Messages a second at which the master's processor time and the slave's lag are measured."""
_PACED = {"mode": "async", "threads": 2, "rate": PACE, "topic": "BenchPaced"}
_LONGEST_RUN_S = 5.0
"""All of it takes less than five minutes then, of which the warm-ups are one."""
_LOOK_S = 0.001
_LAGS_APART_S = 0.02
_ALONE, _ASYNC, _SYNC, _APACHE = "alone", "async", "sync", "apache"


@dataclass
class _Runs:
    """Every run, by the pair's name."""

    full: dict[str, list[Row]] = field(default_factory=dict)
    paced: dict[str, list[Row]] = field(default_factory=dict)
    lags_s: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class _CatchUp:
    """An empty slave copied `records` from its master."""

    records: int
    took_s: float
    slave_cpu_s: float


def replication(folder: Path, effort: Effort) -> list[Figure]:
    """Throughput, processor time, lag, and how fast an empty slave catches up."""
    effort = replace(effort, seconds=min(effort.seconds, _LONGEST_RUN_S))
    caught_up = _catch_up(folder / "empty", effort)
    runs = _Runs()
    with ExitStack() as stack:
        pairs = _start_all(stack, folder)
        for pair, _ in _in_turn(pairs, 1):
            # Brokers in Java have a compiler to teach as well.
            warm_s = effort.learn_s / (2 if pair.name == _APACHE else 3)
            say(f"warming up {pair.name} and its client for {warm_s:.0f} s")
            pair.run("send", mode="sync", threads=THREADS, seconds=warm_s, warm=0)
        for pair, run in _in_turn(pairs, effort.runs):
            row = pair.run("send", mode="sync", threads=THREADS, seconds=effort.seconds, warm=0)
            say(f"64 senders, run {run}, {pair.name}: {brief(row)}, errors {row['errors']}")
            runs.full.setdefault(pair.name, []).append(row)
            if pair.name in (_ALONE, _ASYNC):
                row = pair.run("send", **_PACED, seconds=effort.seconds, warm=1)
                say(f"paced, run {run}, {pair.name}: {brief(row)}")
                runs.paced.setdefault(pair.name, []).append(row)
            if pair.name == _ASYNC:
                runs.lags_s += _lags(pair, effort.seconds)
    return [*_sync_figures(runs), *_async_figures(runs), *_catch_up_figures(caught_up)]


def _start_all(stack: ExitStack, folder: Path) -> list[Pair]:
    """Each while the others are suspended, as ever."""
    pairs: list[Pair] = []
    for name, slave, settings in (
        (_ALONE, False, []),
        (_ASYNC, True, ["--replication", "async"]),
        (_SYNC, True, ["--replication", "sync"]),
    ):
        with _at_rest(pairs):
            started = sparrow_pair(name, folder / name, slave=slave, settings=settings)
            pairs.append(stack.enter_context(started))
    with _at_rest(pairs):
        pairs.append(stack.enter_context(apache_pair(folder / _APACHE)))
    return pairs


def _in_turn(pairs: list[Pair], rounds: int) -> Iterator[tuple[Pair, int]]:
    for number in range(1, rounds + 1):
        for pair in pairs:
            with _at_rest([other for other in pairs if other is not pair]):
                pair.settle()
                yield pair, number


@contextmanager
def _at_rest(pairs: list[Pair]) -> Iterator[None]:
    with suspended([pid for pair in pairs for pid in pair.all_pids]):
        yield


def _lags(pair: Pair, seconds: float) -> list[float]:
    """How long the slave takes to have what the master has, under the paced load.

    The master is asked for the end of its log every 20 ms, and the slave until it has as much. The
    first 1.5 s of the load are left out: client and brokers are still getting up to speed.
    """
    pair.start("send", **_PACED, seconds=seconds + 1, warm=1)
    time.sleep(1.5)
    lags = []
    with LogProbe(pair.master_port.address) as master, LogProbe(pair.slave_port.address) as slave:
        over_s = time.monotonic() + seconds
        while time.monotonic() < over_s:
            end, began_s = master.end(), time.monotonic()
            while slave.end() < end:
                time.sleep(_LOOK_S)
            lags.append(time.monotonic() - began_s)
            time.sleep(_LAGS_APART_S)
    pair.client.finish("send")
    say(f"lag: median {1000 * median(lags):.1f} ms, longest {1000 * max(lags):.1f} ms")
    return lags


def _catch_up(folder: Path, effort: Effort) -> list[_CatchUp]:
    """One empty slave after the other copies the same log; nothing else runs meanwhile."""
    with sparrow_pair("empty slave", folder, slave=False, settings=[]) as pair:
        with LogProbe(pair.master_port.address) as master:
            before = master.end()
            pair.run("fill", count=effort.backlog)
            end = master.end()
        record_bytes = (end - before) / effort.backlog
        return [
            _copy_log(pair, f"slave-{run}", end, record_bytes) for run in range(1, effort.runs + 1)
        ]


def _copy_log(pair: Pair, name: str, end: int, record_bytes: float) -> _CatchUp:
    """Timed from the slave's first bytes on."""
    slave, address = pair.add_slave(name), pair.slave_port.address
    wait_until(lambda: accepts(address), "the slave listens", pair.folder)
    with LogProbe(address) as probe:
        while (begin := probe.end()) == 0:
            time.sleep(_LOOK_S)
        began_s, cpu_s = time.monotonic(), -process_cpu_s(slave.pid)
        while probe.end() < end:
            time.sleep(20 * _LOOK_S)
        took_s, cpu_s = time.monotonic() - began_s, cpu_s + process_cpu_s(slave.pid)
    slave.stop(signal.SIGKILL)
    copied = _CatchUp(round((end - begin) / record_bytes), took_s, cpu_s)
    say(f"an empty slave: {copied.records / took_s:,.0f} records/s, {copied}")
    return copied


def _sync_figures(runs: _Runs) -> list[Figure]:
    ours, apache, alone = (runs.full[name] for name in (_SYNC, _APACHE, _ALONE))
    work = f"synchronous replication, {THREADS} senders"
    shares = [own["per_s"] / other["per_s"] for own, other in zip(ours, alone, strict=True)]

    def compared(what: str, unit: str, name: str, target: Target | None = None) -> Figure:
        return Figure(work, what, unit, middle(ours, name), middle(apache, name), target)

    return [
        compared("throughput", "msg/s", "per_s", times_more(1)),
        Figure(work, "throughput ÷ without replication", "", median(shares), None, at_least(0.5)),
        # Cores that other work keeps busy delay every step between the processes, which lowers the
        # share above, and change this one little.
        Figure(work, "CPU of all without replication ÷ CPU of all", "", _cpu(alone) / _cpu(ours)),
        compared("CPU of the master", "µs/msg", "broker_cpu_us"),
        compared("CPU of the slave", "µs/msg", "slave_cpu_us"),
        compared("p99", "ms", "send_p99_ms"),
    ]


def _cpu(rows: list[Row]) -> float:
    """Of client, master and slave per message: with busy cores it decides on the throughput."""
    parts = ("client_cpu_us", "broker_cpu_us", "slave_cpu_us")
    return float(median(sum(row.get(part, 0.0) for part in parts) for row in rows))


def _async_figures(runs: _Runs) -> list[Figure]:
    ours, alone = runs.paced[_ASYNC], runs.paced[_ALONE]
    cpu = middle(ours, "broker_cpu_us")
    pairs = zip(ours, alone, strict=True)
    more = median(own["broker_cpu_us"] / other["broker_cpu_us"] for own, other in pairs)
    lags_ms = sorted(1000 * lag_s for lag_s in runs.lags_s)
    most_ms = lags_ms[len(lags_ms) * 99 // 100]
    work = f"asynchronous replication at {PACE:,} messages/s"
    return [
        Figure(work, "CPU of the master", "µs/msg", cpu),
        Figure(work, "CPU of the master ÷ without a slave", "", more, None, at_most(1.1)),
        Figure(work, "lag of the slave, median", "ms", median(lags_ms)),
        Figure(work, "lag of the slave, 99th percentile", "ms", most_ms),
        Figure(work, "lag of the slave, longest", "ms", lags_ms[-1], None, at_most(100)),
    ]


def _catch_up_figures(runs: list[_CatchUp]) -> list[Figure]:
    speed = median(run.records / run.took_s for run in runs)
    cpu_us = median(1e6 * run.slave_cpu_s / run.records for run in runs)
    work = "an empty slave catches up"
    return [
        Figure(work, "speed", "records/s", speed, None, at_least(100_000)),
        Figure(work, "CPU of the slave", "µs/record", cpu_us),
    ]
