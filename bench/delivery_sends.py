"""The cost of delayed messages and transactions in the handlers, as multiples of a plain send."""

import asyncio
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from bench import delivery_frames
from bench.delivery_cpu import where
from bench.figures import Figure
from sparrowmq.protocol.frame import FrameDecoder
from sparrowmq.protocol.header import decode_plain
from tests.guard import frames
from tests.guard.workload import Wired, wired

_ROUNDS = 25
_REQUESTS = 2_000
_QUEUES = 8
_HOUR_MS = 3_600_000
Rounds = dict[str, list[float]]


def ratios(folder: Path) -> list[Figure]:
    """The least of many rounds of each kind; the kinds take turns, so that noise meets all."""
    folder.mkdir(parents=True)
    return asyncio.run(_ratios(folder))


async def _ratios(folder: Path) -> list[Figure]:
    took: Rounds = {kind: [] for kind in ("plain", "timed", "delayed", "half", "end")}
    numbers = count()
    async with wired(folder) as client:
        for _ in range(_ROUNDS):
            await _round(client, numbers, took)
    plain, timed, delayed, half, end = (min(took[kind]) / _REQUESTS * 1e6 for kind in took)
    work = "in process, without sockets"
    return [
        Figure(work, "a plain send", "µs CPU", plain),
        Figure(work, "a send of a delay level ÷ a plain one", "", delayed / plain),
        Figure(work, "a timed send ÷ a plain one", "", timed / plain),
        Figure(work, "a half message ÷ a plain send", "", half / plain),
        Figure(work, "a transaction ÷ a plain send", "", (half + end) / plain),
    ]


async def _round(client: Wired, numbers: "count[int]", took: Rounds) -> None:
    now_ms = client.broker.clock()
    queues = [number % _QUEUES for number in range(_REQUESTS)]

    async def measured(kind: str, requests: list[bytes]) -> bytes:
        took[kind].append(_cpu_s(client, lambda: client.feed(requests)))
        written = client.written
        client.answers()
        await asyncio.sleep(0)
        return written

    await measured("plain", [frames.send(next(numbers), queue) for queue in queues])
    timed = [
        delivery_frames.timed_send(number, now_ms + _HOUR_MS + number % _HOUR_MS, queue)
        for number, queue in zip(numbers, queues, strict=False)
    ]
    await measured("timed", timed)
    delayed = [delivery_frames.delayed_send(next(numbers), 18, queue) for queue in queues]
    await measured("delayed", delayed)
    halves = [delivery_frames.half_send(next(numbers), queue) for queue in queues]
    stored = _stored(await measured("half", halves))
    ends = [delivery_frames.commit(next(numbers), *where) for where in stored]
    await measured("end", ends)


def _stored(written: bytes) -> list[tuple[int, int]]:
    """Queue offset and log offset of every half message that was answered."""
    answers = [decode_plain(binary, head) for binary, head, _ in FrameDecoder().feed(written)]
    return [where(answer) for answer in answers]


def _cpu_s(client: Wired, act: Callable[[], None]) -> float:
    """The work that follows in the next tick included."""
    began = time.thread_time()
    act()
    client.broker.store.tick(client.broker.clock())
    return time.thread_time() - began
