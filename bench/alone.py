"""Benchmarks that start their own brokers: rebuilds, cold reads, a long backlog and others."""

from collections.abc import Callable
from pathlib import Path

from bench.backlog import backlog
from bench.client import client
from bench.contenders import start_sparrow
from bench.contest import Effort, say
from bench.delivery import delivery
from bench.driver import Driver
from bench.eviction import evicted
from bench.figures import Figure, at_least, at_most, middle
from bench.hot_path import hot_path
from bench.limits import dedup, quota
from bench.replication import replication
from bench.spark_read import spark_read
from tests.faults.rebuild_speed import rebuild_speed

MeasureAlone = Callable[[Path, Effort], list[Figure]]


def rebuild(folder: Path, effort: Effort) -> list[Figure]:
    """A start that has to derive queues and index from the log."""
    say("rebuilding a store of 200,000 records")
    speed = max(rebuild_speed(200_000) for _ in range(effort.runs))
    return [Figure("scan and rebuild", "speed", "records/s", speed, None, at_least(50_000))]


def cold(folder: Path, effort: Effort) -> list[Figure]:
    """Sends at a constant rate, without and with a consumer that reads uncached messages."""
    broker = start_sparrow(folder / "cold", sync_flush=False)
    count = max(effort.backlog, 200_000)
    pace = {"rate": 500, "seconds": effort.latency_s, "warm": effort.learn_s / 2}
    try:
        with Driver(folder / "senders") as sender, Driver(folder / "reader") as reader:
            sender.run("first_send", name_server=broker.name_server, limit=60)
            say(f"filling a backlog of {count:,} messages of 1 KiB")
            sender.run("fill", **broker.target(), count=count, body=1024)
            alone = [sender.run("pace", **broker.target(), **pace) for _ in range(effort.runs)]
            beside = []
            for run in range(effort.runs):
                say(f"sends beside a cold read, run {run + 1}")
                with evicted(broker.folder / "data"):
                    reader.start("drain", **broker.target(), count=count)
                    beside.append(sender.run("pace", **broker.target(), **pace))
                    reader.finish("drain")
    finally:
        broker.close()
    before, after = middle(alone, "send_p99_ms"), middle(beside, "send_p99_ms")
    work = "send at 500/s beside a cold backlog"
    return [
        Figure(work, "p99 without it", "ms", before),
        Figure(work, "p99 beside it", "ms", after),
        Figure(work, "p99 beside it ÷ without it", "", after / before, None, at_most(2)),
    ]


ALONE: dict[str, MeasureAlone] = {
    "hot": hot_path,
    "quota": quota,
    "dedup": dedup,
    "rebuild": rebuild,
    "cold": cold,
    "backlog": backlog,
    "delivery": delivery,
    "client": client,
    "replication": replication,
    "spark": spark_read,
}
