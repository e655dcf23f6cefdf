"""What a second copy costs: a master alone, with a slave, waiting for it; Apache's for comparison.

All in one run and in turn, so that figures can be compared: the processes of the others are
suspended meanwhile. The load comes from Java's client, 64 threads.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from bench.contenders import BROKER_NAME, apache_broker, apache_names
from bench.contest import Effort, brief, say
from bench.driver import Driver
from bench.figures import Figure, at_least, at_most
from bench.machine import family
from sparrowmq.broker.replication.own_log import LogDescription
from sparrowmq.net.errors import NetError
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.replication import DescribeLog
from sparrowmq.testing.held_port import HeldPort
from tests.interop.cluster import BROKER_PORTS, Server, accepts, wait_until

THREADS = 64
PACE = 20_000
"""Messages a second at which the master's processor time and the slave's lag are measured."""


@dataclass
class Pair:
    """A master, perhaps with a slave, and the client that sends to it."""

    name: str
    folder: Path
    name_server: HeldPort
    master_port: HeldPort
    slave_port: HeldPort
    servers: list[Server]
    client: Driver

    @property
    def pids(self) -> list[int]:
        """The master's processes."""
        return family(self.servers[1].pid)

    @property
    def all_pids(self) -> list[int]:
        """Everything that has to stand still while others are measured."""
        return [pid for server in self.servers for pid in family(server.pid)] + [self.client.pid]

    def run(self, op: str, **fields: object) -> dict[str, float]:
        """Let the client do something."""
        pids = ",".join(map(str, self.pids))
        return self.client.run(op, name_server=self.name_server.address, pids=pids, **fields)


def replication(folder: Path, effort: Effort) -> list[Figure]:
    """Throughput, processor time, lag, and how fast an empty slave catches up."""
    from bench.contenders import suspended

    with ExitStack() as stack:
        alone = stack.enter_context(_sparrow(folder / "alone", slaves=0))
        followed = stack.enter_context(_sparrow(folder / "async", slaves=1))
        waiting = stack.enter_context(_sparrow(folder / "sync", slaves=1, replication="sync"))
        apache = stack.enter_context(_apache(folder / "apache"))
        pairs = (alone, followed, waiting, apache)
        rows: dict[str, list[dict[str, float]]] = {pair.name: [] for pair in pairs}
        paced: dict[str, list[dict[str, float]]] = {pair.name: [] for pair in pairs}
        lags: list[float] = []
        for run in range(effort.runs + 1):
            for pair in pairs:
                with ExitStack() as others:
                    for other in pairs:
                        if other is not pair:
                            others.enter_context(suspended(other.all_pids))
                    seconds = effort.seconds if run else effort.learn_s / 2
                    row = pair.run("send", mode="sync", threads=THREADS, seconds=seconds, warm=0)
                    if run == 0:
                        continue
                    say(f"{pair.name}, run {run}: {brief(row)}")
                    rows[pair.name].append(row)
                    if pair in (alone, followed):
                        paced[pair.name].append(_paced(pair, effort.seconds))
                    if pair is followed:
                        lags += _lags(pair)
        caught_up = _catch_up(followed, stack)
    return _figures(rows, paced, lags, caught_up)


def _figures(
    rows: dict[str, list[dict[str, float]]],
    paced: dict[str, list[dict[str, float]]],
    lags: list[float],
    caught_up: float,
) -> list[Figure]:
    def rate(name: str) -> float:
        return median(row["per_s"] for row in rows[name])

    def cpu(name: str) -> float:
        return median(row["broker_cpu_us"] for row in paced[name])

    sync = "synchronous replication, 64 senders"
    behind = f"asynchronous replication at {PACE:,} messages/s"
    return [
        Figure(sync, "throughput", "msg/s", rate("sync"), rate("apache")),
        Figure(
            sync, "÷ without replication", "", rate("sync") / rate("alone"), None, at_least(0.5)
        ),
        Figure(sync, "÷ Apache's", "", rate("sync") / rate("apache"), None, at_least(1)),
        Figure(behind, "master's CPU", "µs/msg", cpu("async")),
        Figure(behind, "master's CPU ÷ alone", "", cpu("async") / cpu("alone"), None, at_most(1.1)),
        Figure(behind, "slave's lag, longest", "ms", 1000 * max(lags), None, at_most(100)),
        Figure("an empty slave", "catches up", "records/s", caught_up, None, at_least(100_000)),
    ]
