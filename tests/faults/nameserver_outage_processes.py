"""Row 12 with real processes: name servers are killed, and one gets very many registrations."""

import asyncio
import contextlib
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sparrowmq.client.broker_calls import call
from sparrowmq.client.client import Client, core_of
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.errors import ClientError
from sparrowmq.client.sending.producer import Producer
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import GetTopicRoute, RegisterBroker
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.registration import RegisterBrokerBody, body_checksum
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.protocol.topic_config import RegisteredTopics, TopicConfig
from tests.faults.broker_process import BrokerProcess
from tests.faults.churn_processes import PATIENT
from tests.faults.nameserver_outage import Outage, Registrations
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.patience import PATIENCE_S

_TOPIC, _QUEUES = "outage", 8
_PAUSE_S = 0.005
_LOOK_S = 0.05


class Flow:
    """A producer and a consumer that keep running during the outage."""

    def __init__(self, outage: Outage) -> None:
        self.outage = outage
        self.sent: set[bytes] = set()
        self.consumed: set[bytes] = set()
        self._arrived = asyncio.Event()

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        """The consumer's handler."""
        self.consumed.update(message.body for message in messages)
        self._arrived.set()

    async def send(self, producer: Producer, stopping: asyncio.Event) -> None:
        """Until told to stop."""
        while not stopping.is_set():
            body = b"%d" % self.outage.sent
            self.outage.sent += 1
            try:
                await producer.send(Message(_TOPIC, body))
                self.sent.add(body)
            except ClientError as error:
                self.outage.failed.append(str(error))
            await asyncio.sleep(_PAUSE_S)

    async def moved(self, sent: int, consumed: int) -> None:
        """Until more was sent and consumed, or nothing more comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while len(self.sent) <= sent or len(self.consumed) <= consumed:
                    self._arrived.clear()
                    await self._arrived.wait()

    async def drained(self) -> None:
        """Until everything is consumed, or nothing more comes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_S):
                while not self.sent <= self.consumed:
                    self._arrived.clear()
                    await self._arrived.wait()
        self.outage.lost = len(self.sent - self.consumed)


@contextlib.asynccontextmanager
async def _client(servers: Sequence[NameServerProcess]) -> AsyncIterator[Client]:
    client = Client(ClientConfig(name_servers=tuple(server.address for server in servers)))
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def _outage(root: Path, down_s: float) -> Outage:
    outage = Outage()
    servers = [NameServerProcess(root) for _ in range(2)]
    addresses = ";".join(server.address for server in servers)
    brokers = [
        BrokerProcess(root / name, "--name-servers", addresses, "--broker-name", name, *PATIENT)
        for name in ("broker-a", "broker-b")
    ]
    try:
        async with _client(servers) as client, _client(servers) as consuming:
            create = CreateTopic(
                topic=_TOPIC, read_queue_nums=_QUEUES, write_queue_nums=_QUEUES, perm=6
            )
            for broker in brokers:
                await call(core_of(client), f"127.0.0.1:{broker.port}", create)
            await _whole(client, servers)
            flow = Flow(outage)
            first = ConsumeFromWhere.FIRST_OFFSET
            consumer = PushConsumer("outage", {_TOPIC: "*"}, client=consuming, from_where=first)
            producing = Producer("outage", client=client, timeout_s=PATIENCE_S)
            async with consumer, producing as producer:
                await consumer.start(flow.handle)
                await _suffer(flow, client, producer, servers, down_s)
    finally:
        for broker in brokers:
            broker.kill()
        for server in servers:
            server.close()
    return outage


async def _suffer(
    flow: Flow,
    client: Client,
    producer: Producer,
    servers: Sequence[NameServerProcess],
    down_s: float,
) -> None:
    outage, stopping = flow.outage, asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(flow.send(producer, stopping))
        await asyncio.sleep(2)
        for server in servers:
            server.kill()
        sent, consumed = len(flow.sent), len(flow.consumed)
        await asyncio.sleep(down_s)
        await flow.moved(sent, consumed)
        outage.sent_while_down = len(flow.sent) - sent
        outage.consumed_while_down = len(flow.consumed) - consumed
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, server.start) for server in servers))
        outage.whole_s = await _whole(client, servers)
        stopping.set()
    await flow.drained()


async def _whole(client: Client, servers: Sequence[NameServerProcess]) -> float:
    """How long until every name server knew both brokers of the topic."""
    began_s = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        for server in servers:
            # Only asking tells what a name server in another process knows.
            while await _broker_count(client, server.address) < 2:  # noqa: ASYNC110
                await asyncio.sleep(_LOOK_S)
    return time.monotonic() - began_s


async def _broker_count(client: Client, address: str) -> int:
    header = GetTopicRoute(topic=_TOPIC, accept_standard_json_only=True)
    response = await core_of(client).peers.call(address, header, timeout_s=PATIENCE_S)
    if response.code != ResponseCode.SUCCESS:
        return 0
    return len(TopicRoute.from_json(response.body).queue_datas)


def outage_in_processes(down_s: float) -> Outage:
    """Two name servers, two brokers; both name servers are away for a while."""
    with tempfile.TemporaryDirectory(prefix="sparrowmq-outage-") as directory:
        return asyncio.run(_outage(Path(directory), down_s))


# ---- many registrations


async def _register(peers: Peers, server: str, number: int, topics: int) -> None:
    names = [f"topic-{one:05d}" for one in range(topics)]
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=8, write_queue_nums=8) for name in names
    }
    version = DataVersion(timestamp=1_700_000_000_000, counter=1)
    body = RegisterBrokerBody(
        topics=RegisteredTopics(topic_config_table=table, data_version=version)
    ).encode(compressed=False)
    address = f"10.0.{number // 250}.{number % 250 + 1}:10911"
    header = RegisterBroker(
        cluster_name="many",
        broker_name=f"broker-{number:03d}",
        broker_id=0,
        broker_addr=address,
        ha_server_addr=address,
        enable_acting_master=False,
        compressed=False,
        body_crc32=body_checksum(body),
    )
    response = await peers.call(server, header, body, timeout_s=PATIENCE_S)
    assert response.code == ResponseCode.SUCCESS, response.remark


async def _many(brokers: int, topics: int, server: NameServerProcess) -> Registrations:
    result = Registrations(brokers, topics)
    began_s = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        log = logging.getLogger("registrations")
        everybody = [Peers(tasks, log=log) for _ in range(brokers)]
        # Each broker has its own connection, and all register at once, as after a restart.
        await asyncio.gather(
            *(_register(one, server.address, at, topics) for at, one in enumerate(everybody))
        )
        result.whole_s = time.monotonic() - began_s
        for number in range(topics):
            name = f"topic-{number:05d}"
            header = GetTopicRoute(topic=name, accept_standard_json_only=True)
            response = await everybody[0].call(server.address, header, timeout_s=PATIENCE_S)
            if len(TopicRoute.from_json(response.body).queue_datas) != brokers:
                result.incomplete.append(name)
        result.memory_bytes = server.memory_bytes()
        for one in everybody:
            await one.close()
    return result


def register_many(brokers: int, topics: int, *, is_watched: bool = False) -> Registrations:
    """So many brokers register so many topics each at one name server, all at once.

    With `is_watched` a campaign learns what held the name server's loop. That is asyncio's own, and
    takes more memory: 160 MB instead of 122 at full size.
    """
    with tempfile.TemporaryDirectory(prefix="sparrowmq-register-") as directory:
        server = NameServerProcess(Path(directory), is_watched=is_watched)
        try:
            return asyncio.run(_many(brokers, topics, server))
        finally:
            server.close()
