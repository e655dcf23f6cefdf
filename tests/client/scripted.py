"""Brokers that answer as a test decides, in virtual time: for what real ones rarely do."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import msgspec

from sparrowmq.broker.traffic.bucket import Bucket, admit
from sparrowmq.client.client import Client, client_around
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.session_keepalive import KeepaliveInLoop
from sparrowmq.net.connection import Connection
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.server import Server
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.clients import Heartbeat, UnregisterClient
from sparrowmq.protocol.headers.messages import MessageRecalled, RecallMessage
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.headers.reply import SendReplyV2
from sparrowmq.protocol.headers.send import (
    MessageSent,
    SendBatchMessage,
    SendLimited,
    SendMessageV2,
)
from sparrowmq.protocol.headers.topics import GetTopicConfig
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.heartbeat import HeartbeatData
from sparrowmq.protocol.route import BrokerData, QueueData, TopicRoute
from sparrowmq.protocol.topic_config import TopicConfig
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.simulation import Simulation

PORT = 10911
Answer = int | float | str
"""A response code; seconds to wait before success; or "silent" or "hang up"."""

log = logging.getLogger("tests.client")


class SentWithTrace(MessageSent, frozen=True, kw_only=True):
    """A broker with its own settings: its region, and whether message trace is on."""

    CONSTANTS: ClassVar[Mapping[str, str]] = {}

    region: str = msgspec.field(name="MSG_REGION")
    wants_trace: str = msgspec.field(name="TRACE_ON")


class ScriptedBroker:
    """Answers sends one after the other as its script says, then with success."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.script: list[Answer] = []
        self.quota: Bucket | None = None
        """What it takes when the script is over."""
        self.puts_in: int | None = None
        """The queue that it takes instead of the one in the request."""
        self.transaction_id = ""
        self.dedup: str | None = None
        """How it de-duplicates the topic."""
        self.trace: tuple[str, str] | None = None
        """Its region, and whether it wants message trace."""
        self.sent: list[SendMessageV2] = []
        self.bodies: list[bytes] = []
        self.taken: list[bytes] = []
        """The bodies of what the quota admitted."""
        self.ended: list[EndTransaction] = []
        self.producer_groups: list[list[str]] = []
        self.sent_before_heartbeats: list[int] = []
        self.connections: list[Connection] = []
        self.host = world.sim.host(name)
        self.address = f"{self.host.ip}:{PORT}"

    def answer(self, request: Request[SendMessageV2]) -> Reply | Awaitable[Reply] | None:
        header = request.header
        self.sent.append(header)
        self.bodies.append(request.body)
        self.world.attempts.append(f"{self.name[-1].upper()}{header.queue_id + 1}")
        self.world.times_s.append(round(self.world.sim.now_s - self.world.start_s, 3))
        if not self.script and self.quota is not None:
            return self._within_quota(request, self.quota)
        match self.script.pop(0) if self.script else ResponseCode.SUCCESS:
            case "silent":
                return None
            case "hang up":
                request.connection.abort()
                return None
            case float(seconds):
                return self._later(header, seconds)
            case code:
                return self._reply(header, int(code))

    def _within_quota(self, request: Request[SendMessageV2], quota: Bucket) -> Reply:
        now_ms = round(self.world.sim.now_s * 1000)
        if admit((quota,), 1, 0, now_ms):
            self.taken.append(request.body)
            return self._reply(request.header, ResponseCode.SUCCESS)
        limited = SendLimited(retry_after_ms=quota.wait_ms(now_ms))
        return Reply(limited, code=ResponseCode.FLOW_CONTROL, remark=f"{self.name} has a quota")

    async def _later(self, header: SendMessageV2, seconds: float) -> Reply:
        await asyncio.sleep(seconds)
        return self._reply(header, ResponseCode.SUCCESS)

    def _reply(self, header: SendMessageV2, code: int) -> Reply:
        number = len(self.sent)
        sent = MessageSent(
            msg_id=f"7F0000010000{PORT:04X}{number:016X}",
            queue_id=header.queue_id if self.puts_in is None else self.puts_in,
            queue_offset=number,
            transaction_id=self.transaction_id,
        )
        if self.trace is not None:
            region, wanted = self.trace
            fields = msgspec.structs.asdict(sent)
            sent = SentWithTrace(**fields, region=region, wants_trace=wanted)
        remark = "" if code == ResponseCode.SUCCESS else "as the script says"
        return Reply(sent, code=code, remark=remark)


broker_routes: Routes[ScriptedBroker] = Routes()


@broker_routes.on(SendMessageV2, SendBatchMessage, SendReplyV2)
def send(broker: ScriptedBroker, request: Request[SendMessageV2]) -> Any:
    return broker.answer(request)


@broker_routes.on(Heartbeat)
def heartbeat(broker: ScriptedBroker, request: Request[Heartbeat]) -> Reply:
    data = HeartbeatData.from_json(request.body)
    broker.producer_groups.append([one.group_name for one in data.producer_data_set])
    broker.sent_before_heartbeats.append(len(broker.sent))
    if request.connection not in broker.connections:
        broker.connections.append(request.connection)
    return Reply()


@broker_routes.on(UnregisterClient)
def unregister(broker: ScriptedBroker, request: Request[UnregisterClient]) -> Reply:
    return Reply()


@broker_routes.on(EndTransaction)
def end_transaction(broker: ScriptedBroker, request: Request[EndTransaction]) -> Reply:
    broker.ended.append(request.header)
    return Reply()


@broker_routes.on(RecallMessage)
def recall(broker: ScriptedBroker, request: Request[RecallMessage]) -> Reply | None:
    return None if broker.script.pop(0) == "silent" else Reply(MessageRecalled(msg_id="id"))


@broker_routes.on(GetTopicConfig)
def topic_config(broker: ScriptedBroker, request: Request[GetTopicConfig]) -> Reply:
    attributes = {} if broker.dedup is None else {"sparrowmq.dedup": broker.dedup}
    config = TopicConfig(topic_name=request.header.topic, attributes=attributes)
    return Reply(body=config.to_json())


name_server_routes: Routes["World"] = Routes()


@name_server_routes.on(GetTopicRoute)
def topic_route(world: "World", request: Request[GetTopicRoute]) -> Any:
    topic = request.header.topic
    world.asked.append(topic)
    if world.is_mute:
        return None
    if topic not in world.routes:
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, f"no topic {topic}")
    reply = Reply(body=world.routes[topic].to_json())
    return asyncio.sleep(world.route_takes_s, reply) if world.route_takes_s else reply


class World:
    """A name server, scripted brokers, and what reached them in which order."""

    def __init__(self, sim: Simulation, brokers: str) -> None:
        self.sim = sim
        self.attempts: list[str] = []
        """Broker and queue of each send that arrived, as A1 for the first queue of broker-a."""
        self.times_s: list[float] = []
        self.start_s = 0.0
        self.asked: list[str] = []
        self.is_mute = False
        """Whether the name server leaves questions unanswered."""
        self.route_takes_s = 0.0
        """How long it takes for the others."""
        self.brokers = {letter: ScriptedBroker(self, f"broker-{letter}") for letter in brokers}
        self.routes = {"orders": self.route(2)}
        self.serve("name-server", self, name_server_routes, 9876)
        for broker in self.brokers.values():
            self.serve(broker.name, broker, broker_routes, PORT)

    def serve(self, host: str, context: Any, routes: Routes[Any], port: int) -> None:
        self._start(host, context, routes, port)
        self.sim.until_idle()

    def stop_routes(self) -> None:
        """Kill the name server."""
        self.sim.host("name-server").kill()

    def serve_routes(self) -> None:
        """Start the name server again."""
        self._start("name-server", self, name_server_routes, 9876)

    def revive(self, broker: ScriptedBroker) -> None:
        """Start a broker again that was killed."""
        self._start(broker.name, broker, broker_routes, PORT)

    def _start(self, host: str, context: Any, routes: Routes[Any], port: int) -> None:
        async def run() -> None:
            async with asyncio.TaskGroup() as tasks:
                server = Server(context, routes, tasks, log=log)
                await server.listen("0.0.0.0", port)
                try:
                    await asyncio.Event().wait()
                finally:
                    await server.close()

        self.sim.host(host).start(run())

    def route(
        self, queues: int, perm: int = 6, order: str | None = None, broker_id: int = 0
    ) -> TopicRoute:
        names = [broker.name for broker in self.brokers.values()]
        return TopicRoute(
            queue_datas=tuple(
                QueueData(
                    broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
                )
                for name in names
            ),
            broker_datas=tuple(
                BrokerData(cluster="c", broker_name=b.name, broker_addrs={broker_id: b.address})
                for b in self.brokers.values()
            ),
            order_topic_conf=order,
        )

    def client(self, name: str = "producer") -> Client:
        config = ClientConfig(
            name_servers=(f"{self.sim.host('name-server').ip}:9876",),
            client_ip=self.sim.host(name).ip,
            instance_name=name,
        )
        return client_around(
            ClientCore(
                config,
                clock=self.sim.clock,
                rng=_FromZero(),
                pid=1,
                keepalive_from=KeepaliveInLoop(),
            )
        )

    def produce(self, work: Callable[[Producer], Coroutine[Any, Any, Any]], **settings: Any) -> Any:
        """Run the work with a started producer, on its own host; returns the result."""

        async def on_the_host() -> Any:
            client = self.client()
            await client.start()
            async with Producer("orders-svc", client=client, **settings) as producer:
                self.start_s = self.sim.now_s
                result = await work(producer)
            await client.stop()
            return result

        return self.sim.run(on_the_host(), on=self.sim.host("producer"))


class _FromZero(random.Random):
    """Chance that always begins at the first queue, so that tests can name queues."""

    def randrange(self, *bounds: int) -> int:  # type: ignore[override]  # one bound is used
        return 0


@contextmanager
def world(brokers: str = "abc", seed: int = 1) -> Iterator[World]:
    """Brokers with two queues each for topic `orders`, over a network that takes no time."""
    with Simulation(seed, conditions=Conditions(latency_s=(0.0, 0.0))) as sim:
        yield World(sim, brokers)
