"""Scorecard row 7, latencies: what honest clients notice during and after an overload.

```
before    honest load alone: what the broker gets done, and how much memory that takes
during    the same load during the overload: answers, busy ones too, and memory
after     the overload is gone: how long until the broker gets done what it did before
```

At full size the times are judged. The small size judges what no slow machine can change: every
send that was taken is stored, the others were told so, memory stays within its limit, and requests
that need no disk are answered while a sync does not end at all.
"""

import resource
import tempfile
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.abused_broker import HEARTBEAT, heartbeat
from tests.faults.broker_process import BrokerProcess
from tests.faults.honest_load import REFUSALS, HonestLoad, Kind, Phase
from tests.faults.hostile_input import tracebacks
from tests.faults.idle_peers import idle_peers
from tests.faults.raw_wire import RawClient
from tests.faults.slow_disk import SyncDelay
from tests.faults.slow_disk_broker import PLANTED, delay_path
from tests.patience import PATIENCE_S

MOST_MEMORY = 1.5
MOST_ANSWER_S = 0.25
LEAST_THROUGHPUT = 0.9
MOST_RECOVERY_S = 5.0
_WARM_S, _BEFORE_S, _DURING_S, _AFTER_S = 4.0, 6.0, 10.0, 9.0
_WINDOW_S = 1.0
_STEP_S = 0.1
_HELD_MS = 600_000
"""A sync that does not end until it is released."""
_PLANTED_PATIENCE_S = 5.0
_FEW_SENDS, _FEW_READS = 500, 50


@dataclass
class Overloaded:
    """A broker under honest load, and what an overload needs to know."""

    broker: BrokerProcess
    delay: SyncDelay
    size: int

    def expect_connections(self) -> None:
        """All peers are still there."""
        descriptors = list(Path(f"/proc/{self.broker.process.pid}/fd").iterdir())
        assert len(descriptors) > self.size, f"{len(descriptors)} are left of {self.size} peers"


@contextmanager
def slow_syncs(overloaded: Overloaded) -> Iterator[None]:
    """Every sync takes so many milliseconds more."""
    overloaded.delay.set(overloaded.size)
    yield
    overloaded.delay.set(0)


@contextmanager
def idle_and_slow_connections(overloaded: Overloaded) -> Iterator[None]:
    """Thousands of peers that want nothing, or want it slowly."""
    with idle_peers(overloaded.broker.port, overloaded.size):
        overloaded.expect_connections()
        yield
        overloaded.expect_connections()


@contextmanager
def no_descriptors(overloaded: Overloaded) -> Iterator[None]:
    """The broker can open nothing: no connection, and no file when its log reaches the next one."""
    pid = overloaded.broker.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
    yield
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def new_groups(overloaded: Overloaded) -> Iterator[None]:
    """A client whose heartbeat names many unknown groups."""
    groups = [f"group-{number}" for number in range(overloaded.size)]
    with RawClient(overloaded.broker.port) as wire:
        head, _ = wire.call(HEARTBEAT, {}, heartbeat("huge", groups))
        assert head.code == 0, head.remark
        yield


Seen = Callable[[Phase], bool]


def _served(phase: Phase) -> bool:
    return phase.sent >= _FEW_SENDS and phase.read >= _FEW_READS


def _refused(phase: Phase) -> bool:
    return phase.busy > 0 and phase.read >= _FEW_READS


@dataclass(frozen=True)
class Overload:
    """A case: what is done, how much of it, and what honest clients see of it at small size."""

    act: Callable[[Overloaded], AbstractContextManager[None]]
    small: int
    full: int
    options: tuple[str, ...] = ()
    small_options: tuple[str, ...] = ()
    full_options: tuple[str, ...] = ()
    is_seen: Seen = _served
    may_wait: bool = False
    """Whether sends wait for what is slow: their times are reported, and not judged."""
    may_log: str = ""
    """A failure that belongs to it, as the log names it."""

    @property
    def is_refused(self) -> bool:
        """Whether the broker has to refuse sends: else times of busy answers say nothing."""
        return self.is_seen is _refused


OVERLOADS: dict[str, Overload] = {
    "slow disk, synchronous flush": Overload(
        slow_syncs,
        *(_HELD_MS, 500),
        options=("--flush", "sync"),
        small_options=("--flush-timeout", "400ms"),
        # Senders that all wait send nothing that could be refused: half of this is less than a
        # sync, so that those whose sync has ended meet others that have waited for too long.
        full_options=("--flush-timeout", "800ms"),
        is_seen=_refused,
        may_wait=True,
    ),
    "slow disk, asynchronous flush": Overload(slow_syncs, _HELD_MS, 500),
    "idle and slow connections": Overload(idle_and_slow_connections, 400, 5_000),
    "no descriptors": Overload(
        no_descriptors,
        *(0, 0),
        options=("--store-log-file-size", "16MiB"),
        small_options=("--store-log-file-size", "1MiB"),
        is_seen=_refused,
        may_log="oo many open files",
    ),
    "new groups in a heartbeat": Overload(new_groups, 50, 1_000),
}


@dataclass
class OverloadResult:
    """What honest clients noticed."""

    name: str
    size: int
    before_per_s: float = 0.0
    during_per_s: float = 0.0
    busy: int = 0
    busy_p99_s: float = 0.0
    read_p99_s: float = 0.0
    send_p99_s: float = 0.0
    memory: float = 0.0
    """The most of it during the overload, as a multiple of what it was before."""
    recovery_s: float = 0.0
    """From its end until a second in which nine tenths of the sends are taken again."""
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        figures = (
            f"{self.before_per_s:,.0f} sends/s, {self.during_per_s:,.0f} meanwhile"
            f" (p99 {self.send_p99_s * 1000:.0f} ms), {self.busy:,} busy answers"
            f" (p99 {self.busy_p99_s * 1000:.0f} ms), reads p99 {self.read_p99_s * 1000:.0f} ms,"
            f" memory × {self.memory:.2f}, as before after {self.recovery_s:.1f} s"
        )
        return f"{self.name}: {figures}" + "".join(f"; {each}" for each in self.problems)


def overload_broker(
    name: str, *, small: bool, is_watched: bool = False, is_planted: bool = False
) -> OverloadResult:
    """Run a case. With `is_planted` the broker waits for its syncs in its loop.

    `is_watched` is for a run on asyncio's own loop: its times and its memory, which are not those
    of production, are not judged.
    """
    case = OVERLOADS[name]
    result = OverloadResult(name, case.small if small else case.full)
    options = (*case.options, *(case.small_options if small else case.full_options))
    with tempfile.TemporaryDirectory(prefix="sparrowmq-overload-") as directory:
        data = Path(directory) / "data"
        delay = SyncDelay(delay_path(data))
        planted = (PLANTED,) if is_planted else ()
        broker = BrokerProcess(data, *options, *planted, module="tests.faults.slow_disk_broker")
        try:
            overloaded = Overloaded(broker, delay, result.size)
            senders, readers = (4, 2) if small else (16, 4)
            patience_s = _PLANTED_PATIENCE_S if is_planted else PATIENCE_S
            load = HonestLoad(broker.port, senders, readers, patience_s)
            try:
                _run(case, overloaded, load, result, small=small)
                if not is_watched:
                    _judge(case, result, small=small)
            finally:
                load.close()
            _look_at_the_end(broker, case, result)
        except (OSError, AssertionError) as error:
            result.problems.append(f"an honest client was not served: {error!r}")
        finally:
            delay.set(0)
            broker.kill()
    return result


def _run(
    case: Overload, overloaded: Overloaded, load: HonestLoad, result: OverloadResult, *, small: bool
) -> None:
    broker = overloaded.broker
    load.run(_served if small else _lasts(_WARM_S))
    before = load.run(_served if small else _lasts(_BEFORE_S))
    memory, most = broker.memory_bytes(), 0

    def look() -> None:
        nonlocal most
        most = max(most, broker.memory_bytes())

    with case.act(overloaded):
        during = load.run(case.is_seen if small else _lasts(_DURING_S), look)
        look()
    after = load.run(_served if small else _lasts(_AFTER_S))
    load.finish()
    result.problems += load.judge()
    result.before_per_s, result.during_per_s = before.per_s, during.per_s
    result.busy, result.busy_p99_s = during.busy, during.p99_s(Kind.SEND, REFUSALS)
    result.read_p99_s, result.send_p99_s = during.p99_s(Kind.READ), during.p99_s(Kind.SEND)
    result.memory = most / memory
    if not small:
        result.recovery_s = recovery_s(after, LEAST_THROUGHPUT * before.per_s)


def _judge(case: Overload, result: OverloadResult, *, small: bool) -> None:
    if result.memory > MOST_MEMORY:
        result.problems.append(f"× {MOST_MEMORY} of the memory were allowed")
    if not small:
        judge_times(case, result)


def _lasts(seconds: float) -> Seen:
    return lambda phase: time.monotonic() - phase.began_s >= seconds


def recovery_s(after: Phase, least_per_s: float) -> float:
    """When the first second begins in which so many sends are taken; the end if there is none."""
    at_s = sorted(each.at_s for each in after.answers if each.kind is Kind.SEND and not each.code)
    begin_s = after.began_s
    while begin_s + _WINDOW_S <= after.ended_s:
        taken = bisect_left(at_s, begin_s + _WINDOW_S) - bisect_left(at_s, begin_s)
        if taken >= least_per_s * _WINDOW_S:
            return begin_s - after.began_s
        begin_s += _STEP_S
    return after.ended_s - after.began_s


def judge_times(case: Overload, result: OverloadResult) -> None:
    """Add what took too long, at full size, to the problems."""
    if case.is_refused and not result.busy:
        result.problems.append("no send was refused, so no busy answer was measured")
    limits = {
        "busy answers": result.busy_p99_s,
        "reads": result.read_p99_s,
        "sends": 0.0 if case.may_wait else result.send_p99_s,
    }
    for what, took_s in limits.items():
        if took_s > MOST_ANSWER_S:
            result.problems.append(f"{what} took {took_s * 1000:.0f} ms, 250 ms allowed")
    if result.recovery_s > MOST_RECOVERY_S:
        result.problems.append(f"as before after {result.recovery_s:.1f} s, 5 s allowed")


def _look_at_the_end(broker: BrokerProcess, case: Overload, result: OverloadResult) -> None:
    code = broker.stop() if broker.is_running else broker.process.wait()
    log = broker.log.read_text(errors="replace")
    if code:
        result.problems.append(f"the broker ended with {code}: {log[-1500:]}")
    for text, count in tracebacks(log).items():
        if not case.may_log or case.may_log not in text:
            result.problems.append(f"{count} × in the log: {text}")
