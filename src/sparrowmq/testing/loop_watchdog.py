"""Finds callbacks that block an event loop, with the stack of what they were doing.

    with LoopWatchdog():            # inside a coroutine: watches the running loop
        await something()           # LoopStalled at the end of the block if a callback took 50 ms

    python -m sparrowmq.testing.loop_watchdog --stalls FILE broker --port 0 ...

The second form runs any command of `sparrowmq` and appends every stall to FILE, one JSON object
per line (the fields of `Stall`). Both watch asyncio's own loop: uvloop calls back from C, where a
callback's beginning and end cannot be seen, so the second form switches uvloop off.

The unit is one callback, not one turn of the loop: a hundred requests that are ready at the same
time are load, but one request that takes 50 ms is a stall. While a callback is late, a thread
samples the stack of the loop's thread.

A loaded machine makes callbacks late as well. Linux accounts for each thread how long it was ready
to run without a processor (/proc/self/task/TID/schedstat); that time is subtracted, and so is what
another thread of ours waited, which may have held the interpreter meanwhile. What is left is ours:
computing, blocking system calls such as fsync, waiting for a lock or for the interpreter. Time that
the loop's thread has computed always counts. A process that was stopped (SIGSTOP) is not late
either: SIGCONT discards the callback it interrupted, in the second form. Time that a hypervisor
takes from the whole machine cannot be distinguished from computing; without Linux all time is ours.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Self

import msgspec

LIMIT_MS = 50.0
_SAMPLES_PER_LIMIT = 5

Schedule = Callable[[], tuple[int, int]]
"""Nanoseconds that the calling thread has run, and has waited for a processor."""
_Place = tuple[CodeType, int]


@dataclass(frozen=True, slots=True)
class Stall:
    """One callback that blocked the loop too long."""

    began_ms: float
    """Milliseconds since the watchdog was started."""
    wall_ms: float
    cpu_ms: float
    """CPU time of the loop's thread."""
    unscheduled_ms: float
    """Ready to run, but the machine gave the processor to others: not our fault."""
    callback: str
    stack: tuple[str, ...]
    """The stack that was seen most often, outermost call first."""

    @property
    def own_ms(self) -> float:
        """The time for which the callback is responsible."""
        return self.wall_ms - self.unscheduled_ms

    def __str__(self) -> str:
        times = f"{self.own_ms:.0f} ms ({self.cpu_ms:.0f} ms computing)"
        return "\n  ".join((f"{self.callback} held the loop for {times} in", *self.stack))


class LoopStalled(AssertionError):
    """Callbacks blocked the loop too long; `stalls` lists them."""

    def __init__(self, stalls: tuple[Stall, ...], limit_ms: float) -> None:
        found = "\n".join(str(stall) for stall in stalls)
        super().__init__(f"{len(stalls)} callbacks took more than {limit_ms:g} ms\n{found}")
        self.stalls = stalls


class LoopWatchdog:
    """Watches one loop inside a `with` block, and fails at its end unless `report` is given.

    `loop` is the running one unless given, `report` is called in the loop's thread for each stall.
    """

    def __init__(
        self,
        limit_ms: float = LIMIT_MS,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        report: Callable[[Stall], None] | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self.stalls: list[Stall] = []
        self.longest_ms = 0.0
        """The longest callback, in wall-clock time."""
        self._limit_ms = limit_ms
        self._loop = loop
        self._report = report
        self._schedule = schedule
        self._born_s = 0.0
        self._current: _Callback | None = None
        self._others_before: dict[str, int] = {}
        """How long the other threads had waited for a processor when no callback was late yet."""
        self._stopping = threading.Event()
        self._sampler = threading.Thread(target=self._sample, name="loop watchdog", daemon=True)
        self._run_handle = asyncio.Handle._run

    def __enter__(self) -> Self:
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
        self.start()
        if asyncio.events._get_running_loop() is self._loop:
            self._begin("the callback that opened the block")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._current is not None and self._current.thread == threading.get_ident():
            self._end()  # the block ends in the middle of it
        self.stop()
        if self.stalls and self._report is None and error is None:
            raise LoopStalled(tuple(self.stalls), self._limit_ms)

    def start(self) -> None:
        """Watch from now on; without a loop, every loop of this process."""
        self._born_s = time.perf_counter()
        run = self._run_handle

        def watched(handle: asyncio.Handle) -> None:
            if self._loop is not None and handle._loop is not self._loop:  # type: ignore[attr-defined]
                run(handle)
                return
            self._begin(handle)
            try:
                run(handle)
            finally:
                if self._current is not None:
                    self._end()

        setattr(asyncio.Handle, "_run", watched)  # noqa: B010 - mypy forbids assigning
        self._sampler.start()

    def stop(self) -> None:
        """Stop watching."""
        setattr(asyncio.Handle, "_run", self._run_handle)  # noqa: B010 - mypy forbids assigning
        self._stopping.set()
        self._sampler.join()

    def forgive(self) -> None:
        """Discard the callback that is running: the process was stopped in it."""
        self._current = None

    def _begin(self, callback: asyncio.Handle | str) -> None:
        schedule = self._schedule
        if schedule is None:
            schedule = self._schedule = ThreadSchedule()
        self._current = _Callback(callback, threading.get_ident(), schedule())

    def _end(self) -> None:
        ended, self._current = self._current, None
        assert ended is not None and self._schedule is not None
        wall_ms = (time.perf_counter() - ended.began_s) * 1000
        self.longest_ms = max(self.longest_ms, wall_ms)
        if wall_ms < self._limit_ms:
            return
        cpu_ns, unscheduled_ns = self._schedule()
        cpu_ms = (cpu_ns - ended.schedule[0]) / 1e6
        waited_ns = unscheduled_ns - ended.schedule[1] + self._others_waited_ns()
        stall = Stall(
            began_ms=(ended.began_s - self._born_s) * 1000,
            wall_ms=wall_ms,
            cpu_ms=cpu_ms,
            unscheduled_ms=min(waited_ns / 1e6, max(wall_ms - cpu_ms, 0)),
            callback=str(ended.callback),
            stack=ended.usual_stack(),
        )
        if stall.own_ms >= self._limit_ms:
            self.stalls.append(stall)
            if self._report is not None:
                self._report(stall)

    def _others_waited_ns(self) -> int:
        before = self._others_before
        now = unscheduled_ns_of_others()
        return max((now[name] - before[name] for name in before.keys() & now.keys()), default=0)

    def _sample(self) -> None:
        """Sample what the loop's thread is doing; runs in a separate thread.

        A callback that holds the interpreter in C code is sampled just after that, on the same
        line.
        """
        pause_s = self._limit_ms / 1000 / _SAMPLES_PER_LIMIT
        while not self._stopping.wait(pause_s):
            current = self._current
            if current is None or time.perf_counter() - current.began_s <= pause_s:
                self._others_before = unscheduled_ns_of_others()
            else:
                frame = sys._current_frames().get(current.thread)
                if frame is not None and self._current is current:
                    current.seen[_places(frame)] += 1


class _Callback:
    """A callback that is running."""

    __slots__ = ("began_s", "callback", "schedule", "seen", "thread")

    def __init__(
        self, callback: asyncio.Handle | str, thread: int, schedule: tuple[int, int]
    ) -> None:
        self.callback = callback
        self.thread = thread
        self.schedule = schedule
        self.seen: Counter[tuple[_Place, ...]] = Counter()
        self.began_s = time.perf_counter()

    def usual_stack(self) -> tuple[str, ...]:
        if not self.seen:
            return ("a place that was not seen",)
        (places, _), *_ = self.seen.most_common(1)
        return tuple(f"{code.co_filename}:{line} {code.co_qualname}" for code, line in places)


def _places(frame: FrameType | None) -> tuple[_Place, ...]:
    found: list[_Place] = []
    while frame is not None and frame.f_code.co_filename != __file__:
        found.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(found))


class ThreadSchedule:
    """The scheduling statistics that Linux keeps for the thread that created this object."""

    def __init__(self) -> None:
        self._number = -1
        with suppress(OSError):
            path = f"/proc/self/task/{threading.get_native_id()}/schedstat"
            self._number = os.open(path, os.O_RDONLY)

    def __call__(self) -> tuple[int, int]:
        """Must be called in that thread, or the CPU time is another thread's."""
        if self._number < 0:
            return time.thread_time_ns(), 0
        _, unscheduled, _ = os.pread(self._number, 64, 0).split()
        # The file's first number is as old as the last tick; this one is current.
        return time.thread_time_ns(), int(unscheduled)

    def __del__(self) -> None:
        if self._number >= 0:
            os.close(self._number)


def unscheduled_ns_of_others() -> dict[str, int]:
    """How long each thread of this process but the calling one has waited to run."""
    me = str(threading.get_native_id())
    found = {}
    with suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with suppress(OSError):  # the thread has just ended
                if thread.name != me:
                    found[thread.name] = int((thread / "schedstat").read_bytes().split()[1])
    return found


def main(arguments: list[str]) -> None:
    """Run a command of `sparrowmq` under a watchdog."""
    parser = argparse.ArgumentParser(prog="python -m sparrowmq.testing.loop_watchdog")
    parser.add_argument("--stalls", type=Path, required=True, help="file to append stalls to")
    parser.add_argument("--limit-ms", type=float, default=LIMIT_MS)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args(arguments)

    # Open all the time: a server may be watched while it has no descriptor left.
    file = chosen.stalls.open("ab", buffering=0)

    def write(stall: Stall) -> None:
        file.write(msgspec.json.encode(stall) + b"\n")

    watchdog = LoopWatchdog(chosen.limit_ms, report=write)
    with suppress(AttributeError):  # not everywhere
        signal.signal(signal.SIGCONT, lambda number, frame: watchdog.forgive())
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # importing it fails from now on
    watchdog.start()
    from sparrowmq.cli.main import main as run

    sys.argv = ["sparrowmq", *chosen.command]
    run()


if __name__ == "__main__":
    main(sys.argv[1:])
