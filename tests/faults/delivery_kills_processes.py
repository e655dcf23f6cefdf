"""Row 10 with a real broker that gets kill -9, two hundred times when it counts."""

import asyncio
import tempfile
import time
from pathlib import Path
from random import Random

from sparrowmq.client.broker_calls import call, committed_offset
from sparrowmq.client.client import Client, core_of
from sparrowmq.client.config import ClientConfig
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.held_port import HeldPort
from tests.faults.broker_process import BrokerProcess
from tests.faults.delivery_kills import Promises
from tests.faults.delivery_kills_life import COMMITTERS, PLAIN, QUEUES, TOPICS, Life
from tests.faults.nameserver_outage_servers import NameServerProcess

_DRAINED_S = 60.0
_OPTIONS = (
    *("--vip-alias", "false", "--store-log-file-size", str(4 * 1024 * 1024)),
    *("--transaction-timeout", "1s", "--transaction-check-interval", "2s"),
)


class Kills:
    """A broker with many lives on one port."""

    def __init__(self, root: Path, module: str) -> None:
        self._module = module
        self._data = root / "data"
        self._held = HeldPort()
        self.name_server = NameServerProcess(root)
        self._broker: BrokerProcess

    def start(self) -> None:
        """Another life."""
        servers = ("--name-servers", self.name_server.address, "--port", str(self._held.port))
        self._broker = BrokerProcess(self._data, *_OPTIONS, *servers, module=self._module)

    def kill(self) -> None:
        """kill -9; gone when this returns."""
        self._broker.kill()

    @property
    def address(self) -> str:
        """host:port."""
        return self._held.address

    def close(self) -> None:
        """The last kill; the name server goes as well."""
        self.kill()
        self.name_server.close()
        self._held.close()


async def _prepare(kills: Kills) -> None:
    client = Client(ClientConfig(name_servers=(kills.name_server.address,)))
    await client.start()
    for topic in TOPICS:
        create = CreateTopic(topic=topic, read_queue_nums=QUEUES, write_queue_nums=QUEUES, perm=6)
        await call(core_of(client), kills.address, create)
    group = SubscriptionGroupConfig(group_name=COMMITTERS)
    await call(core_of(client), kills.address, CreateGroup(), group.to_json())
    await client.stop()


async def _life(kills: Kills, promises: Promises, rng: Random, number: int) -> None:
    life = Life(kills.name_server.address, promises, rng, number)
    await life.begin()
    await _compare(life, promises)
    async with asyncio.TaskGroup() as tasks:
        work = await life.use_everything(tasks)
        await asyncio.sleep(0.5 + rng.random() * 1.5)
        kills.kill()
        promises.kills += 1
        for one in work:
            one.cancel()
    promises.commits.append(life.commits)
    await life.end()


async def _compare(life: Life, promises: Promises) -> None:
    """What is left of the progress of the last life?"""
    if promises.commits:
        queue = MessageQueue(PLAIN, "broker-a", 0)
        stored = await committed_offset(core_of(life.client), COMMITTERS, queue)
        promises.commits[-1].found = None if stored is None else stored.offset


async def _drain(kills: Kills, promises: Promises) -> None:
    """The last life only delivers."""
    life = Life(kills.name_server.address, promises, Random(), promises.kills)
    await life.begin()
    await _compare(life, promises)
    wanted = promises.plain | promises.committed | promises.due_ms.keys()
    deadline_s = time.monotonic() + _DRAINED_S
    while time.monotonic() < deadline_s:
        await asyncio.sleep(1)
        if wanted <= {delivery.body for delivery in promises.deliveries}:
            break
    # Whatever should not come gets its chance as well.
    await asyncio.sleep(3)
    await life.end()


async def _run(seed: int, count: int, root: Path, module: str) -> Promises:
    promises, rng = Promises(), Random(seed)
    kills = Kills(root, module)
    try:
        for number in range(count):
            kills.start()
            if not number:
                await _prepare(kills)
            await _life(kills, promises, rng, number)
        kills.start()
        await _drain(kills, promises)
    finally:
        kills.close()
    return promises


def deliveries_over_kills(seed: int, kills: int, module: str = "sparrowmq") -> Promises:
    """Use everything a broker promises, and kill it so many times."""
    with tempfile.TemporaryDirectory(prefix="sparrowmq-deliveries-") as directory:
        return asyncio.run(_run(seed, kills, Path(directory), module))
