"""How fast a push consumer of ours takes a backlog with a handler that does nothing."""

import asyncio
import time
from collections.abc import Sequence

from bench.client_sending import Loops, Rate, own_cpu_s
from sparrowmq import PushConsumer
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message_ext import MessageExt

BATCH = 32
_LONGEST_S = 300.0


class Taking:
    """Counts what came, and knows when the first and the last did."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.began_s = 0.0
        self.began_cpu_s = 0.0
        self.ended_s = 0.0
        self.ended_cpu_s = 0.0
        self.done = asyncio.Event()

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        """The trivial handler."""
        if not self.began_s:
            self.began_s, self.began_cpu_s = time.perf_counter(), own_cpu_s()
        self.left -= len(messages)
        if self.left <= 0 and not self.done.is_set():
            self.ended_s, self.ended_cpu_s = time.perf_counter(), own_cpu_s()
            self.done.set()


async def _drain(name_server: str, topic: str, group: str, count: int) -> Rate:
    taking = Taking(count)
    consumer = PushConsumer(
        group,
        {topic: "*"},
        name_servers=name_server,
        from_where=ConsumeFromWhere.FIRST_OFFSET,
        batch=BATCH,
    )
    async with consumer:
        await consumer.start(taking.handle)
        async with asyncio.timeout(_LONGEST_S):
            await taking.done.wait()
    seconds = taking.ended_s - taking.began_s
    return Rate(count / seconds, (taking.ended_cpu_s - taking.began_cpu_s) / count * 1e6)


def drain_rate(
    name_server: str, topic: str, count: int, runs: int, loops: Loops, kind: str
) -> Rate:
    """The best of several new groups that read all of it."""
    found = []
    for run in range(runs):
        with asyncio.Runner(loop_factory=loops) as on:
            group = f"bench-{kind}-{run}-{time.time_ns()}"
            rate = on.run(_drain(name_server, topic, group, count))
        found.append((rate.per_s, rate.cpu_us))
    return Rate(*max(found))
