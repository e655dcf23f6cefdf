"""`python -m bench.client`, and the suite `client`: our own client against Java's.

Both clients talk to the same SparrowMQ broker in a process of its own. In this suite the column
"Apache" is Apache's Java client.
"""

import argparse
import asyncio
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import uvloop

from bench import report
from bench.client_consuming import drain_rate
from bench.client_groups import STRATEGIES, java_settle_s, rebalance_ms, settle_s
from bench.client_pypi import found_out
from bench.client_sending import Loops, Rate, Sending, batches, one_by_one, rate_of, rate_of_threads
from bench.contenders import Contender, start_sparrow
from bench.contest import QUICK, Effort, say
from bench.driver import Driver
from bench.figures import Figure, at_least, at_most
from bench.machine import this_machine
from tests.interop.cluster import accepts, wait_until

LOOPS: dict[str, Loops] = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
BACKLOG = "BenchBacklog"
_COUNT = 100_000


def client(folder: Path, effort: Effort) -> list[Figure]:
    """Everything the design promises of the client."""
    broker = start_sparrow(folder / "client", sync_flush=False)
    try:
        wait_until(lambda: accepts(broker.name_server), "the name server listens", folder)
        with Driver(folder / "java") as driver:
            driver.run("first_send", name_server=broker.name_server, limit=60)
            figures = _sending(broker, driver, effort) + _consumption(broker, driver, effort)
        figures += _groups(folder, broker, effort)
    finally:
        broker.close()
    for name, sentence in found_out(folder / "pypi").items():
        say(f"{name} of PyPI {sentence}")
    return figures


def _sending(broker: Contender, driver: Driver, effort: Effort) -> list[Figure]:
    pace = {"seconds": effort.seconds, "warm": effort.learn_s / 2}
    java = {
        "asynchronous": driver.run("send", **broker.target(), mode="async", threads=2, **pace),
        "batch": driver.run("send", **broker.target(), mode="batch", threads=4, **pace),
    }
    kinds: tuple[tuple[str, Sending, int, int], ...] = (
        ("asynchronous", one_by_one, _COUNT, 20_000),
        ("batch", batches, 4 * _COUNT, 100_000),
    )
    figures = []
    for kind, sending, count, wanted in kinds:
        for loop, loops in LOOPS.items():
            rate = rate_of(broker.name_server, sending, count, effort.runs, loops)
            beside = java[kind]["per_s"]
            figures += _rate(f"client: {kind} sends of 128 B, {loop}", rate, beside, wanted)
    blocking = rate_of_threads(broker.name_server, _COUNT // 5)
    return figures + _rate("client: blocking sends, 16 threads", blocking, None, None)


def _consumption(broker: Contender, driver: Driver, effort: Effort) -> list[Figure]:
    count = effort.backlog
    say(f"filling a backlog of {count:,}")
    driver.run("fill", **broker.target(), count=count, topic=BACKLOG)
    java = driver.run("drain", **broker.target(), count=count, topic=BACKLOG)["per_s"]
    figures = []
    for loop, loops in LOOPS.items():
        rate = drain_rate(broker.name_server, BACKLOG, count, effort.runs, loops, loop)
        work = f"client: push, trivial handler, batches of 32, {loop}"
        figures += _rate(work, rate, java, 60_000)
    return figures


def _groups(folder: Path, broker: Contender, effort: Effort) -> list[Figure]:
    work = "client: rebalance, 1,000 queues × 100 members"
    figures = [
        Figure(work, strategy.name, "ms", rebalance_ms(strategy), None, at_most(10))
        for strategy in STRATEGIES
    ]
    say("members join and are killed")
    joined_s, killed_s = settle_s(effort.runs)
    java_joined_s, java_killed_s = java_settle_s(folder, broker.name_server, _java_topic(broker))
    work = "client: a group of 4, 16 queues"
    return [
        *figures,
        Figure(work, "join settles", "s", joined_s, java_joined_s, at_most(1)),
        Figure(work, "killed member replaced", "s", killed_s, java_killed_s, at_most(1)),
    ]


def _java_topic(broker: Contender) -> str:
    """A topic with as many queues as the Python group has."""
    topic = "BenchGroup"
    command = [sys.executable, "-m", "sparrowmq", "topic", "create", topic, "--queues", "16"]
    command += ["--name-servers", broker.name_server]
    subprocess.run(command, check=True, capture_output=True)
    return topic


def _rate(work: str, rate: Rate, java_per_s: float | None, wanted: int | None) -> list[Figure]:
    target = at_least(wanted) if wanted else None
    say(f"{work}: {rate.per_s:,.0f} /s, {rate.cpu_us:.1f} µs of the client")
    return [
        Figure(work, "throughput", "msg/s", rate.per_s, java_per_s, target),
        Figure(work, "client CPU", "µs/msg", rate.cpu_us),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--runs", type=int, default=0)
    arguments = parser.parse_args()
    effort = QUICK if arguments.quick else Effort()
    if arguments.runs:
        effort = replace(effort, runs=arguments.runs)
    with tempfile.TemporaryDirectory(prefix="sparrowmq-bench-") as folder:
        figures = client(Path(folder), effort)
        report.show(this_machine(), figures, [])


if __name__ == "__main__":
    main()
