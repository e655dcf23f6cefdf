"""The benchmarks against Apache's broker, with the targets of the design."""

from collections.abc import Callable
from dataclasses import dataclass

from bench.contest import Contest, say
from bench.figures import Figure, at_most, times_less, times_more
from bench.machine import anonymous_mb, descriptors

Measure = Callable[[Contest], list[Figure]]


def sync_send(contest: Contest, threads: int) -> list[Figure]:
    """Each thread sends the next message when the last is acknowledged."""
    work = f"synchronous send, {threads} threads"
    effort = contest.effort
    found = contest.alternate(
        work, "send", mode="sync", threads=threads, seconds=effort.seconds, warm=0
    )
    return [
        found.figure("per_s", "throughput", "msg/s", times_more(2)),
        found.figure("broker_cpu_us", "broker CPU", "µs/msg", times_less(3)),
    ]


def send(contest: Contest) -> list[Figure]:
    """64 threads."""
    return sync_send(contest, 64)


def send_few(contest: Contest) -> list[Figure]:
    """16 threads."""
    return sync_send(contest, 16)


def async_send(contest: Contest) -> list[Figure]:
    """Two threads, 512 sends under way at most."""
    effort = contest.effort
    found = contest.alternate(
        "asynchronous send",
        "send",
        mode="async",
        threads=2,
        seconds=effort.seconds,
        warm=0,
    )
    return [
        found.figure("per_s", "throughput", "msg/s", times_more(2.5)),
        found.figure("broker_cpu_us", "broker CPU", "µs/msg", times_less(3)),
    ]


def batch(contest: Contest) -> list[Figure]:
    """Four threads, 32 messages a batch."""
    effort = contest.effort
    found = contest.alternate(
        "batch send, 32 a batch",
        "send",
        mode="batch",
        threads=4,
        seconds=effort.seconds,
        warm=0,
    )
    return [
        found.figure("per_s", "throughput", "msg/s"),
        found.figure("broker_cpu_us", "broker CPU", "µs/msg", times_less(1.3)),
    ]


def drain(contest: Contest) -> list[Figure]:
    """A new group consumes the stored messages, with the defaults of the push consumer."""
    count = contest.effort.backlog
    for side in contest:
        say(f"filling a backlog of {count:,} at {side.name}")
        side.run("fill", count=count)
    found = contest.alternate("backlog, push, pull 32", "drain", count=count)
    return [
        found.figure("per_s", "throughput", "msg/s", times_more(1.2)),
        found.figure("broker_cpu_us", "broker CPU", "µs/msg", times_less(2.5)),
    ]


def latency(contest: Contest) -> list[Figure]:
    """From the call of send to the listener of a waiting push consumer."""
    effort = contest.effort
    found = contest.alternate(
        "end to end at 500/s",
        "latency",
        rate=500,
        seconds=effort.latency_s,
        warm=0,
        queues=4,
    )
    return [
        found.figure("e2e_p50_ms", "p50", "ms", times_less(2)),
        found.figure("e2e_p99_ms", "p99", "ms", times_less(1)),
    ]


def parked(contest: Contest) -> list[Figure]:
    """What a group that waits for every message costs on top of the send, wake-ups and all.

    The target is on the broker's own work, without sockets: the suite `hot`.
    """
    work = "send answered by parked pulls"
    effort = contest.effort
    cost = {}
    for groups in (0, 1, 3):
        found = contest.alternate(
            f"{work}, {groups} groups",
            "latency",
            rate=1000,
            groups=groups,
            seconds=effort.latency_s,
            warm=0,
            queues=4,
        )
        cost[groups] = found.figure("broker_cpu_us", "broker CPU", "µs/msg")
    first, last = cost[0], cost[3]
    assert first.peer is not None and last.peer is not None
    ours, apache = (last.ours - first.ours) / 3, (last.peer - first.peer) / 3
    return [Figure(work, "broker CPU a group, at 1,000/s", "µs/msg", max(ours, 0), max(apache, 0))]


def start(contest: Contest) -> list[Figure]:
    """From the start of the process; our name server starts with it, Apache's runs already."""
    ours, apache = contest.sparrow.first_send_s, contest.apache.first_send_s
    return [Figure("start", "to the first message stored", "s", ours, apache, at_most(1.5))]


def memory(contest: Contest) -> list[Figure]:
    """Anonymous memory after all the load before."""
    ours, apache = anonymous_mb(contest.sparrow.pids), anonymous_mb(contest.apache.pids)
    return [Figure("memory", "anonymous, after the load", "MB", ours, apache, at_most(120))]


def million(contest: Contest) -> list[Figure]:
    """Anonymous memory after a million more messages."""
    for side in contest:
        say(f"a million messages to {side.name}")
        side.run("fill", count=1_000_000, topic="BenchMillion")
    ours, apache = anonymous_mb(contest.sparrow.pids), anonymous_mb(contest.apache.pids)
    work = "a million messages more"
    return [Figure(work, "anonymous memory", "MB", ours, apache, at_most(120))]


def flush(contest: Contest) -> list[Figure]:
    """64 threads, each message synced before it is acknowledged."""
    effort = contest.effort
    found = contest.alternate(
        "send with synchronous flush, 64 threads",
        "send",
        mode="sync",
        threads=64,
        seconds=effort.seconds,
        warm=0,
    )
    return [
        found.figure("per_s", "throughput", "msg/s", times_more(1)),
        found.figure("send_p99_ms", "send p99", "ms"),
        found.figure("broker_cpu_us", "broker CPU", "µs/msg"),
    ]


def topics(contest: Contest) -> list[Figure]:
    """1,000 topics of 8 queues, a message in each queue. Runs last: the topics stay."""
    work = "1,000 topics × 8 queues"
    grown, opened = {}, {}
    for side in contest:
        say(f"{work} at {side.name}")
        before = anonymous_mb(side.pids)
        side.run("topics", count=1000, queues=8)
        grown[side.name] = anonymous_mb(side.pids) - before
        opened[side.name] = descriptors(side.pids)
    return [
        Figure(work, "anonymous memory", "MB", grown["SparrowMQ"], grown["Apache"], at_most(200)),
        Figure(work, "open descriptors", "", opened["SparrowMQ"], opened["Apache"], at_most(900)),
    ]


@dataclass(frozen=True)
class Suite:
    """Something to measure, and the brokers it wants."""

    measure: Measure
    is_quick: bool = False
    sync_flush: bool = False


SUITES = {
    "start": Suite(start, is_quick=True),
    "send": Suite(send, is_quick=True),
    "send-few": Suite(send_few),
    "async": Suite(async_send, is_quick=True),
    "batch": Suite(batch, is_quick=True),
    "drain": Suite(drain, is_quick=True),
    "latency": Suite(latency, is_quick=True),
    "parked": Suite(parked),
    "memory": Suite(memory, is_quick=True),
    "million": Suite(million),
    "topics": Suite(topics),
    "flush": Suite(flush, sync_flush=True),
}
"""By name, in the order they run."""
