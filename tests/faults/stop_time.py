"""Scorecard row 3, the broker: it stops within a second of virtual time after a failed sync.

Senders wait for their answers, a consumer for messages, one client is frozen, and the name server
may be as well. None of them may keep the broker alive.
"""

import asyncio
import errno
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from sparrowmq.broker.config import Flush
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.send import SendMessageV2
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster

_LIMIT_S = 1.0
_SENDERS = 5


@dataclass
class StopResult:
    """What one broker came to."""

    seed: int
    sync_flush: bool
    seconds: float = 0.0
    acknowledged: int = 0
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        mode = "sync" if self.sync_flush else "async"
        return f"seed {self.seed}, {mode} flush: {'; '.join(self.problems) or 'stopped in time'}"


def stop_after_failed_sync(seed: int, *, sync_flush: bool) -> StopResult:
    """Let a sync of a broker under load fail, and take the time until it is gone."""
    rng = Random(seed)
    result = StopResult(seed, sync_flush)
    flush = Flush.SYNC if sync_flush else Flush.ASYNC
    with SimCluster(seed, flush=flush).run() as sim:
        node = sim.brokers["broker-a"]
        sim.wait(sim.client.send("orders", b"hello"))
        waiting = sim.client.pull("orders", offset=1, wait_s=15)
        acknowledged_s: list[float] = []
        for number in range(_SENDERS):
            _keep_sending(sim, f"sender-{number}", acknowledged_s)
        sim.advance(1)
        sim.host("sender-0").pause()
        if rng.random() < 0.5:
            sim.host("name-server-1").pause()
        fault = node.disk.fail("sync", errno.EIO, first=rng.randint(1, 6), path_prefix="commitlog")
        sim.until(lambda: fault.seen >= fault.first)
        failed_s = sim.now_s
        sim.until(lambda: not node.is_running)
        result.seconds = sim.now_s - failed_s
        with suppress(ExceptionGroup):
            node.stop()  # it has ended already, with the error that this is about
        with suppress(NetError):
            sim.wait(waiting)
    result.acknowledged = len(acknowledged_s)
    if result.seconds > _LIMIT_S:
        result.problems.append(f"gone only {result.seconds:.2f} s after its sync had failed")
    # An answer that was under way at the failure arrives within the network's milliseconds.
    if sync_flush and any(at > failed_s + 0.05 for at in acknowledged_s):
        result.problems.append("acknowledged after a sync had failed")
    if not acknowledged_s:
        result.problems.append("nothing was acknowledged before the error")
    return result


def _keep_sending(sim: RunningCluster, name: str, acknowledged_s: list[float]) -> None:
    client = sim.new_client(name)

    async def send() -> None:
        while True:
            try:
                answer = await client.call(_MESSAGE, b"x" * 100)
            except NetError:
                return
            if answer.code == ResponseCode.SUCCESS:
                acknowledged_s.append(sim.now_s)
            await asyncio.sleep(0.03)

    client.host.start(send(), name=name)


_MESSAGE = SendMessageV2(
    producer_group="senders",
    topic="orders",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=0,
    sys_flag=0,
    born_timestamp=0,
    flag=0,
    properties="",
    reconsume_times=0,
    unit_mode=False,
    batch=False,
)
