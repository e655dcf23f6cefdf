"""`python -m bench.python_producer`: what one process sends with our own client.

Against a broker in a process of its own: asynchronous sends with so many under way, batches, and
sends through the blocking facade. Prints messages per second and the client's CPU per message.
"""

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from bench.contenders import start_sparrow
from bench.machine import this_machine
from sparrowmq import Message, Producer, blocking
from sparrowmq.client.errors import ClientError
from tests.interop.cluster import accepts, wait_until

BODY = b"x" * 128
TOPIC = "bench"
Sending = Callable[[Producer, int], Awaitable[int]]


async def one_by_one(producer: Producer, count: int, under_way: int = 512) -> int:
    """Each of so many tasks sends its share, one message after the other."""

    async def share(number: int) -> None:
        for _ in range(number):
            await producer.send(Message(TOPIC, BODY))

    async with asyncio.TaskGroup() as tasks:
        for _ in range(under_way):
            tasks.create_task(share(count // under_way))
    return count // under_way * under_way


async def batches(producer: Producer, count: int, size: int = 100) -> int:
    """Eight tasks send batches of so many messages."""

    async def share(number: int) -> None:
        for _ in range(number):
            await producer.send_batch([Message(TOPIC, BODY) for _ in range(size)])

    async with asyncio.TaskGroup() as tasks:
        for _ in range(8):
            tasks.create_task(share(count // size // 8))
    return count // size // 8 * size * 8


def from_threads(name_server: str, count: int) -> int:
    """Sixteen threads over the blocking facade."""
    messages = [Message(TOPIC, BODY) for _ in range(count)]
    producer = blocking.Producer("bench", name_servers=name_server)
    with producer, ThreadPoolExecutor(16) as threads:
        return sum(result.is_ok for result in threads.map(producer.send, messages))


async def until_registered(producer: Producer) -> None:
    """Return when the broker can be sent to."""
    while True:
        try:
            await producer.send(Message(TOPIC, BODY))
            return
        except ClientError:
            await asyncio.sleep(0.1)


async def measure(name_server: str, what: str, sending: Sending, count: int, runs: int) -> None:
    """Warm up, then print the best of several runs."""
    async with Producer("bench", name_servers=name_server) as producer:
        await until_registered(producer)
        await sending(producer, count // 10)
        found = []
        for _ in range(runs):
            began_s, cpu_s = time.perf_counter(), _cpu_s()
            sent = await sending(producer, count)
            seconds = time.perf_counter() - began_s
            found.append((sent / seconds, (_cpu_s() - cpu_s) / sent * 1e6))
        report(what, *max(found))


def report(what: str, per_s: float, cpu_us: float) -> None:
    """One line of the table."""
    sys.stdout.write(f"{what:32} {per_s:10,.0f} msg/s   client CPU {cpu_us:6.1f} µs/msg\n")


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Start a broker, measure, end it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--plain-loop", action="store_true", help="asyncio's loop, not uvloop's")
    arguments = parser.parse_args()
    sys.stdout.write(f"{this_machine()}\n")
    loops = asyncio.new_event_loop if arguments.plain_loop else uvloop.new_event_loop
    with tempfile.TemporaryDirectory(prefix="sparrowmq-bench-") as folder:
        broker = start_sparrow(Path(folder) / "sparrow", sync_flush=False)
        try:
            server = broker.name_server
            wait_until(lambda: accepts(server), "the name server listens", Path(folder))
            count, runs = arguments.count, arguments.runs
            with asyncio.Runner(loop_factory=loops) as on:
                on.run(measure(server, "asynchronous, 512 under way", one_by_one, count, runs))
                on.run(measure(server, "batches of 100", batches, count * 4, runs))
            began_s, cpu_s = time.perf_counter(), _cpu_s()
            sent = from_threads(server, count // 5)
            seconds = time.perf_counter() - began_s
            report("blocking, 16 threads", sent / seconds, (_cpu_s() - cpu_s) / sent * 1e6)
        finally:
            broker.close()


if __name__ == "__main__":
    main()
