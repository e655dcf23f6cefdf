"""A whole broker whose system calls fail, or that dies in one: with strace, under load."""

import asyncio
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from tests.faults.broker_process import BrokerProcess, StartFailed
from tests.faults.checker import Ledger, State
from tests.faults.crash_points import fail_from, kill_at, seconds_after_first_failure
from tests.faults.kills import LOG_FILE_BYTES, KillResult, Sender, read_back
from tests.patience import PATIENCE_S

_CALLS = ("pwrite64", "fdatasync", "ftruncate", "fallocate", "rename", "unlink", "openat")
_SENDERS = 4


def die_in_calls(seed: int, deaths: int) -> KillResult:
    """Kill a broker in system calls of all kinds, then read everything back."""
    rng = Random(seed)
    result = KillResult(seed, "sync")
    ledger = Ledger()
    numbers = [0] * _SENDERS
    root = Path(tempfile.mkdtemp(prefix="sparrowmq-calls-"))
    try:
        for _ in range(deaths):
            call = rng.choice(_CALLS)
            prefix = kill_at(call, rng.randint(1, 40 if call == "pwrite64" else 12))
            # It may die before it is ready; then the next start has to cope with that.
            with suppress(StartFailed):
                broker = _broker(root, *prefix)
                try:
                    asyncio.run(_send_until_gone(numbers, ledger, broker, patience_s=1.5))
                finally:
                    broker.kill()
            result.kills += 1
        _check(root, ledger, result)
    except (StartFailed, OSError) as error:
        result.problems.append(repr(error))
    shutil.rmtree(root)
    return result


def fail_syncs(seed: int) -> KillResult:
    """Let every sync fail from some moment on: the broker has to end by itself, at once."""
    result = KillResult(seed, "sync")
    ledger = Ledger()
    numbers = [0] * _SENDERS
    root = Path(tempfile.mkdtemp(prefix="sparrowmq-eio-"))
    try:
        times = root / "times"
        number = Random(seed).randint(40, 60)
        broker = _broker(root, *fail_from("fdatasync", "EIO", number, times_in=str(times)))
        gone_s = asyncio.run(_send_until_gone(numbers, ledger, broker, patience_s=PATIENCE_S))
        code = broker.process.wait() if gone_s is not None else None
        if code is None:
            result.problems.append("the broker did not end")
        elif code == 0:
            result.problems.append("the broker ended as if nothing had happened")
        else:
            result.seconds_to_stop = seconds_after_first_failure(times)
        broker.kill()
        result.kills = 1
        _check(root, ledger, result)
        if not ledger.count(State.OK):
            result.problems.append("nothing was acknowledged before the error")
    except (StartFailed, OSError, ValueError) as error:
        result.problems.append(repr(error))
    shutil.rmtree(root)
    return result


def _broker(root: Path, *prefix: str) -> BrokerProcess:
    options = ("--flush", "sync", "--store-log-file-size", str(LOG_FILE_BYTES))
    return BrokerProcess(root / "data", *options, prefix=prefix, is_traced=bool(prefix))


def _check(root: Path, ledger: Ledger, result: KillResult) -> None:
    broker = _broker(root)
    try:
        result.verdict = ledger.check(read_back(broker.port))
    finally:
        broker.stop()


async def _send_until_gone(
    numbers: list[int], ledger: Ledger, broker: BrokerProcess, patience_s: float
) -> float | None:
    """Seconds until the broker closed all connections, None if it did not in time."""
    began = time.monotonic()
    loop = asyncio.get_running_loop()
    senders: list[Sender] = []
    for number, first in enumerate(numbers):
        sender = Sender(f"s{number}", first, ledger, lambda _: None)
        try:
            await loop.create_connection(sender.itself, "127.0.0.1", broker.port)
        except OSError:
            break
        senders.append(sender)
    gone: float | None = None
    with suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            for sender in senders:
                await sender.lost.wait()
            gone = time.monotonic() - began
    for number, sender in enumerate(senders):
        await sender.abort()
        numbers[number] = sender.number
    return gone
