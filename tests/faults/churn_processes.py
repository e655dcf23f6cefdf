"""Row 9 with real processes: a name server, a broker, and members that join, leave and crash."""

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from sparrowmq.client.broker_calls import call, committed_offset, max_offset
from sparrowmq.client.client import Client, core_of
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import Message, MessageQueue
from tests.faults.broker_process import BrokerProcess
from tests.faults.churn import JOIN, KILL, LEAVE, QUEUES, History
from tests.faults.churn_group import ProcessGroup
from tests.faults.churn_member import GROUP, TOPIC, MemberOptions, patient_config
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.patience import PATIENCE_S

_FEWEST, _MOST = 2, 10
_BURST = 8
_PAUSE_S = 0.01
PATIENT = ("--busy-lag", "30s")
"""For brokers whose every refusal counts: a busy machine is not what is tested here."""
STEADY = ("--session-timeout", "60s")
"""If no member freezes: one without CPU time for 5 s is not gone, and dead ones close their
connections."""


@dataclass
class Servers:
    """A cluster in processes, and a client that looks at it."""

    name_server: str
    client: Client
    producer: Producer
    queues: list[MessageQueue]

    async def progress(self) -> dict[int, int]:
        """What the broker knows of the group."""
        found = await asyncio.gather(
            *(committed_offset(core_of(self.client), GROUP, queue) for queue in self.queues)
        )
        return {
            queue.queue_id: 0 if stored is None else stored.offset
            for queue, stored in zip(self.queues, found, strict=True)
        }

    async def stored(self) -> dict[int, int]:
        """How many messages each queue holds."""
        found = await asyncio.gather(
            *(max_offset(core_of(self.client), queue) for queue in self.queues)
        )
        return {queue.queue_id: end.offset for queue, end in zip(self.queues, found, strict=True)}


@contextlib.asynccontextmanager
async def servers(queues: int, *more: str) -> AsyncIterator[Servers]:
    """One name server and one broker with the topic; `more` are options of the broker."""
    with tempfile.TemporaryDirectory(prefix="sparrowmq-churn-") as directory:
        root = Path(directory)
        name_server = NameServerProcess(root)
        options = ("--name-servers", name_server.address, *PATIENT, *more)
        broker = BrokerProcess(root / "data", *options)
        try:
            config = patient_config(name_server.address)
            client = Client(config)
            await client.start()
            create = CreateTopic(
                topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6
            )
            await call(core_of(client), f"127.0.0.1:{broker.port}", create)
            async with Producer("feeder", client=client, timeout_s=PATIENCE_S) as producer:
                found = await producer.queues(TOPIC)
                yield Servers(name_server.address, client, producer, found)
            await client.stop()
        finally:
            broker.kill()
            name_server.close()


async def feed(running: Servers, stopping: asyncio.Event) -> None:
    """Send to all queues in turn until told to stop; every send has to succeed."""
    number = 0
    while not stopping.is_set():
        count = len(running.queues)
        burst = [running.queues[(number + more) % count] for more in range(_BURST)]
        number += _BURST
        await asyncio.gather(
            *(running.producer.send(Message(TOPIC, b"%d" % number), queue=one) for one in burst)
        )
        await asyncio.sleep(_PAUSE_S)


class Churn:
    """Changes of a group, one after the other."""

    def __init__(self, running: Servers, group: ProcessGroup, rng: Random) -> None:
        self.history = History()
        self._running = running
        self._group = group
        self._rng = rng
        self._leaving: set[asyncio.Task[None]] = set()

    async def change(self, tasks: asyncio.TaskGroup) -> None:
        """Join, leave or crash."""
        live = self._group.live
        if len(live) < _FEWEST or (len(live) < _MOST and self._rng.random() < 0.5):
            self._group.join()
            self.history.changes[JOIN] += 1
            return
        name = self._rng.choice(sorted(live))
        if self._rng.random() < 0.4:
            self.history.killed[name] = await self._running.progress()
            self.history.changes[KILL] += 1
            tasks.create_task(live.pop(name).kill())
        else:
            self.history.changes[LEAVE] += 1
            tasks.create_task(live.pop(name).leave())


async def _churn(seed: int, changes: int, planted: str) -> History:
    rng = Random(seed)
    async with servers(QUEUES, *STEADY) as running:
        options = MemberOptions(name_server=running.name_server, planted=planted)
        group = ProcessGroup(options, QUEUES)
        churn = Churn(running, group, rng)
        stopping = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as tasks:
                feeding = tasks.create_task(feed(running, stopping))
                for _ in range(changes):
                    await asyncio.sleep(rng.random() * 0.6)
                    await churn.change(tasks)
                changed_s = time.monotonic()
                await group.until(group.is_settled, PATIENCE_S)
                churn.history.settled_s = time.monotonic() - changed_s
                stopping.set()
                await feeding
                churn.history.stored = await running.stored()
                await drain(group, churn.history)
        finally:
            await group.end()
        group.into(churn.history)
        return churn.history


async def drain(group: ProcessGroup, history: History) -> None:
    """Until every message is handled; a lost one is the judge's business."""
    wanted = sum(history.stored.values())
    with contextlib.suppress(TimeoutError):
        await group.until(lambda: len(group.done) >= wanted, PATIENCE_S)


def churn_in_processes(seed: int, changes: int, planted: str = "") -> History:
    """A group of processes under load whose members come and go."""
    return asyncio.run(_churn(seed, changes, planted))
