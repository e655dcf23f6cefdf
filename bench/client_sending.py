"""The send rate of one process with our own client: asynchronous, in batches, and from threads."""

import asyncio
import resource
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sparrowmq import Message, Producer, blocking
from sparrowmq.client.errors import ClientError

BODY = b"x" * 128
TOPIC = "bench"
Sending = Callable[[Producer, int], Awaitable[int]]
Loops = Callable[[], asyncio.AbstractEventLoop]


@dataclass(frozen=True)
class Rate:
    """Messages per second, and what the client's process paid for each."""

    per_s: float
    cpu_us: float


async def one_by_one(producer: Producer, count: int, under_way: int = 512) -> int:
    """A number of tasks each send their share, one message after the other."""

    async def share(number: int) -> None:
        for _ in range(number):
            await producer.send(Message(TOPIC, BODY))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(under_way):
            tasks.create_task(share(count // under_way))
    return count // under_way * under_way


async def batches(producer: Producer, count: int, size: int = 100) -> int:
    """Eight tasks send batches of a given size."""

    async def share(number: int) -> None:
        for _ in range(number):
            await producer.send_batch([Message(TOPIC, BODY) for _ in range(size)])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(share(count // size // 8))
    return count // size // 8 * size * 8


def rate_of(name_server: str, sending: Sending, count: int, runs: int, loops: Loops) -> Rate:
    """Warm up, then the best of several runs."""
    with asyncio.Runner(loop_factory=loops) as on:
        return on.run(_measured(name_server, sending, count, runs))


async def _measured(name_server: str, sending: Sending, count: int, runs: int) -> Rate:
    found = []
    async with Producer("bench", name_servers=name_server) as producer:
        await until_registered(producer)
        await sending(producer, count // 10)
        for _ in range(runs):
            began_s, cpu_s = time.perf_counter(), own_cpu_s()
            sent = await sending(producer, count)
            seconds = time.perf_counter() - began_s
            found.append((sent / seconds, (own_cpu_s() - cpu_s) / sent * 1e6))
    return Rate(*max(found))


def rate_of_threads(name_server: str, count: int) -> Rate:
    """Sixteen threads over the blocking facade."""
    messages = [Message(TOPIC, BODY) for _ in range(count)]
    producer = blocking.Producer("bench", name_servers=name_server)
    began_s, cpu_s = time.perf_counter(), own_cpu_s()
    with producer, ThreadPoolExecutor(16) as threads:
        sent = sum(result.is_ok for result in threads.map(producer.send, messages))
    seconds = time.perf_counter() - began_s
    return Rate(sent / seconds, (own_cpu_s() - cpu_s) / sent * 1e6)


async def until_registered(producer: Producer) -> None:
    """Return when the broker can be sent to."""
    while True:
        try:
            await producer.send(Message(TOPIC, BODY))
            return
        except ClientError:
            await asyncio.sleep(0.1)


def own_cpu_s() -> float:
    """User and system time of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
