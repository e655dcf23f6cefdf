"""The effect of a long backlog: a broker with millions of messages against a nearly empty one.

Both run at the same time and are measured in turn, the other one suspended; the best round of each
counts. The nearly empty one holds just enough to have a middle that is not among its last 32 MiB,
which are read in another way. The backlog comes over the wire, in batches of 32; every message has
128 bytes and a unique id.
"""

import os
import random
import shutil
import time
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from statistics import median

from bench.backlog_load import PULLED, QUEUES, Pipeline, chunks_of, fill, pulls, query_ms
from bench.contenders import suspended
from bench.contest import QUICK, Effort, say
from bench.driver import DriverFailed
from bench.eviction import EVERYTHING, evict
from bench.figures import Figure, Sense, Target, no_more, times_more
from bench.machine import anonymous_mb, descriptors, family, resident_mb, threads_cpu_s
from tests.faults.broker_process import BrokerProcess
from tests.guard import frames

NEARLY_EMPTY = 300_000
_RECORD_BYTES = 364
"""Of the log, its queue and the index."""
_SPARE_BYTES = 3 * 1024**3
"""For what the rounds send and for space that is reserved ahead."""
_MOST_USED = 0.7
"""Of the disk: from 75 % on a broker begins to delete what has expired."""
_ROUNDS = 7
_ROUNDS_QUICK = 3
_STARTS = 5
_STARTS_QUICK = 2
_SENDS = 40_960
_PULLS = 1_600
_QUERIES = 400
_COLD_QUERIES = 40
_UNSAVED = 20_000
"""Sends before a kill: fewer than a checkpoint waits for, so each of them has to be scanned."""
_FIRST_SEND = 0xF0000000
"""Numbers of single sends, which no batch has."""
_LEAST, _MOST = 0.9, 1.1
"""Parts of what the nearly empty broker does, or takes."""


def backlog(folder: Path, effort: Effort) -> list[Figure]:
    """`effort.stored` messages: 10 million take 3.6 GB and some minutes."""
    is_quick = effort.stored <= QUICK.stored
    rounds, starts = (_ROUNDS_QUICK, _STARTS_QUICK) if is_quick else (_ROUNDS, _STARTS)
    folder.mkdir(parents=True, exist_ok=True)
    _check_space(folder, effort.stored)
    with ExitStack() as stack:
        full = Side("full", folder, effort.stored)
        stack.callback(full.end)
        with suspended(full.pids):
            empty = Side("empty", folder, min(NEARLY_EMPTY, effort.stored))
        stack.callback(empty.end)
        sides = (full, empty)
        for side, other in (sides, sides[::-1]):
            with suspended(other.pids):
                side.fill()
        _in_turn(sides, rounds, Side.measure_requests)
        for side in sides:
            side.measure_holdings()
        _in_turn(sides, starts, Side.measure_starts)
        _in_turn(sides, starts, Side.measure_cold)
    return _figures(full, empty)


def _in_turn(
    sides: "tuple[Side, Side]", rounds: int, measure: "Callable[[Side, int], None]"
) -> None:
    for number in range(rounds):
        for side, other in (sides, sides[::-1]):
            with suspended(other.pids):
                os.sync()  # so that earlier writes do not slow the measured run
                measure(side, number)


def _check_space(folder: Path, stored: int) -> None:
    usage = shutil.disk_usage(folder)
    needed = stored * _RECORD_BYTES + _SPARE_BYTES
    usable = _MOST_USED * (usage.used + usage.free) - usage.used
    if needed > usable:
        raise DriverFailed(
            f"{stored:,} messages need {needed / 1e9:.0f} GB, and {usable / 1e9:.0f} GB are left"
            f" until the disk is {_MOST_USED:.0%} full; choose fewer with --messages"
        )


class Side:
    """One of the two brokers, and its measurements."""

    def __init__(self, name: str, folder: Path, stored: int) -> None:
        self.name = name
        self._data = folder / name / "data"
        self._data.parent.mkdir()
        self._broker = self._start()
        self._batches = stored // PULLED // QUEUES * QUEUES
        self._numbers = count(_FIRST_SEND)
        self._singles = 0
        """How many messages a queue has after those of the batches."""
        self._rng = random.Random(1)
        self.samples: dict[str, list[float]] = {}

    def _start(self) -> BrokerProcess:
        # Many frames a read callback keep it busy for long; that is not what is measured here.
        return BrokerProcess(self._data, "--busy-lag", "60s")

    def end(self) -> None:
        """Kill the broker; its files are the caller's."""
        self._broker.kill()

    @property
    def pids(self) -> list[int]:
        """The broker's processes."""
        return family(self._broker.process.pid)

    @property
    def stored(self) -> int:
        """Messages of the backlog."""
        return self._batches * PULLED

    def best(self, name: str, target: Target | None) -> float:
        """The run under a name that other work disturbed least."""
        choose = max if target is not None and target.sense is Sense.TIMES_MORE else min
        return choose(self.samples[name])

    def fill(self) -> None:
        """Store the backlog."""
        say(f"{self.stored:,} messages for the {self.name} broker")
        per_s = fill(self._broker.port, self._batches)
        say(f"filled at {per_s:,.0f} messages a second")

    def measure_requests(self, number: int) -> None:
        """Sends, pulls of fresh messages, pulls from the middle, key queries."""
        self._send(_SENDS, "send")
        pulled = pulls(0, _SENDS // PULLED, past=self._end - _SENDS // QUEUES)
        self._exchange("tail", pulled, PULLED)
        pulled = self._pulls_of_the_middle(number)
        self._exchange("", pulled, PULLED)  # brings it into memory
        self._exchange("middle", pulled, PULLED)
        self._query("query", _QUERIES)
        self._say(f"round {number + 1}", "send", "tail", "middle", "query")

    def measure_holdings(self) -> None:
        """What it holds of the machine after all that."""
        self._note("anonymous", anonymous_mb(self.pids))
        self._note("resident", resident_mb(self.pids))
        self._note("descriptors", descriptors(self.pids))

    def measure_starts(self, number: int) -> None:
        """After a stop, and after a kill that leaves a part of the log without a checkpoint."""
        self._broker.stop()
        self._broker = self._start()
        self._note_start("start after stop")
        self._send(_UNSAVED, "")
        self._broker.kill()
        self._broker = self._start()
        self._note_start("start after kill")
        self._note("anonymous after kill", anonymous_mb(self.pids))
        self._say(f"start {number + 1}", "start after stop", "start after kill")

    def measure_cold(self, number: int) -> None:
        """The middle and keys once more, from the device: only a new process has mapped nothing."""
        self._broker.stop()
        self._broker = self._start()
        os.sync()
        evict(self._data, EVERYTHING)
        self._exchange("cold middle", self._pulls_of_the_middle(-1 - number), PULLED)
        evict(self._data, EVERYTHING)
        self._query("cold query", _COLD_QUERIES)
        self._say(f"from the device {number + 1}", "cold middle", "cold query")

    @property
    def _end(self) -> int:
        """Where each queue ends."""
        return self._batches // QUEUES * PULLED + self._singles

    def _pulls_of_the_middle(self, number: int) -> list[bytes]:
        """Each round in another place, as far as there are others."""
        first = self._batches // 2 + number * _PULLS
        if not 0 <= first <= self._batches - _PULLS:
            first = (self._batches - _PULLS) // 2
        return pulls(first - first % QUEUES, _PULLS)

    def _send(self, messages: int, name: str) -> None:
        sends = [frames.send(next(self._numbers), at % QUEUES) for at in range(messages)]
        self._exchange(name, sends, 1)
        self._singles += messages // QUEUES

    def _exchange(self, name: str, requests: list[bytes], each: int) -> None:
        """Ask all of it; messages a second and microseconds of the broker for each, by name."""
        chunks = chunks_of(requests)
        pid = self._broker.process.pid
        with Pipeline(self._broker.port) as pipeline:
            began_s, used_s = time.perf_counter(), threads_cpu_s(pid)
            received = pipeline.ask(chunks)
            took_s, used_s = time.perf_counter() - began_s, threads_cpu_s(pid) - used_s
        messages = len(requests) * each
        if each > 1 and received < messages * len(frames.UNIQUE_ID):
            raise DriverFailed(f"pulls of {messages} messages got {received} bytes")
        if name:
            self._note(name, messages / took_s)
            self._note(f"{name} cpu", used_s / messages * 1e6)

    def _query(self, name: str, queries: int) -> None:
        """Ask for messages that lie anywhere in the backlog; the median counts for the round."""
        pid = self._broker.process.pid
        used_s = threads_cpu_s(pid)
        took_ms = query_ms(self._broker.port, self.stored, queries, self._rng)
        self._note(f"{name} cpu", (threads_cpu_s(pid) - used_s) / queries * 1e6)
        self._note(name, median(took_ms))

    def _note(self, name: str, value: float) -> None:
        self.samples.setdefault(name, []).append(value)

    def _note_start(self, name: str) -> None:
        self._note(name, self._broker.ready_s)
        self._note(f"{name} cpu", threads_cpu_s(self._broker.process.pid))

    def _say(self, what: str, *names: str) -> None:
        shown = ", ".join(f"{name} {self.samples[name][-1]:,.4g}" for name in names)
        say(f"{self.name}, {what}: {shown}")


def _figures(full: Side, empty: Side) -> list[Figure]:
    work = f"{full.stored:,} messages"
    more, less = times_more(_LEAST), no_more(_MOST)

    def figure(what: str, unit: str, name: str, target: Target | None) -> Figure:
        return Figure(work, what, unit, full.best(name, target), empty.best(name, target), target)

    return [
        figure("send", "msg/s", "send", more),
        figure("send, broker CPU", "µs/msg", "send cpu", less),
        figure("pull of the newest", "msg/s", "tail", more),
        figure("pull of the newest, broker CPU", "µs/msg", "tail cpu", less),
        figure("pull from the middle", "msg/s", "middle", more),
        figure("pull from the middle, broker CPU", "µs/msg", "middle cpu", less),
        figure("pull from the middle, from the device", "msg/s", "cold middle", more),
        figure("key query", "ms", "query", less),
        figure("key query, broker CPU", "µs", "query cpu", less),
        figure("key query, from the device", "ms", "cold query", less),
        figure("ready after a stop", "s", "start after stop", less),
        figure("ready after a stop, broker CPU", "s", "start after stop cpu", less),
        figure("ready after kill -9", "s", "start after kill", less),
        figure("ready after kill -9, broker CPU", "s", "start after kill cpu", less),
        figure("anonymous memory", "MB", "anonymous", less),
        figure("anonymous memory after kill -9", "MB", "anonymous after kill", less),
        figure("resident memory, mapped files included", "MB", "resident", None),
        figure("open descriptors", "", "descriptors", less),
    ]
