"""A simulated name server, and brokers and clients that talk to it in virtual time."""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sparrowmq.disk.atomic_file import AtomicFile
from sparrowmq.nameserver import NameServer, NameServerConfig
from sparrowmq.net.calls import Response
from sparrowmq.net.endpoint import Limits
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import (
    BrokerRegistered,
    GetTopicRoute,
    RegisterBroker,
    UnregisterBroker,
)
from sparrowmq.protocol.registration import RegisterBrokerBody, body_checksum
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.protocol.topic_config import RegisteredTopics, TopicConfig
from sparrowmq.testing.host import Host
from sparrowmq.testing.simulation import Simulation

PORT = 9876
EVERYWHERE = ("SELF_TEST_TOPIC", "TBW102")
"""Topics that every broker registers."""
# A silent broker shall be noticed by the name server's watch, not by the idle connection's.
PATIENT = Limits(idle_s=3600)
PATIENCE_S = 6.0
"""As long as brokers wait for the answer to a registration."""


class Caller:
    """A client on a simulated host that calls the name server over one connection."""

    def __init__(self, sim: Simulation, host: Host) -> None:
        self.sim = sim
        self.host = host
        self.peers = sim.run(self._start(), on=host)

    async def _start(self) -> Peers:
        started: asyncio.Future[Peers] = asyncio.get_running_loop().create_future()
        self._task = self.host.start(self._live(started))
        return await started

    async def _live(self, started: asyncio.Future[Peers]) -> None:
        async with asyncio.TaskGroup() as tasks:
            started.set_result(Peers(tasks, log=logging.getLogger("caller"), limits=PATIENT))
            await asyncio.Event().wait()

    def call(self, header: RequestHeader, body: bytes = b"") -> Response:
        calling = self.peers.call(f"ns:{PORT}", header, body, timeout_s=PATIENCE_S)
        return self.sim.run(calling, on=self.host)

    def ok(self, header: RequestHeader, body: bytes = b"") -> Response:
        """Call and expect SUCCESS."""
        response = self.call(header, body)
        assert response.code == ResponseCode.SUCCESS, response.remark
        return response

    def route(self, topic: str) -> TopicRoute:
        return TopicRoute.from_json(self.ok(GetTopicRoute(topic=topic)).body)

    def has_route(self, topic: str) -> bool:
        return self.call(GetTopicRoute(topic=topic)).code == ResponseCode.SUCCESS

    def disconnect(self) -> None:
        self.peers.drop(f"ns:{PORT}")
        self.sim.until_idle()


class Broker(Caller):
    """A broker as the name server sees it."""

    def __init__(
        self, sim: Simulation, name: str, broker_id: int, cluster: str, address: str | None
    ) -> None:
        super().__init__(sim, sim.host(f"{name}-{broker_id}-{address or ''}"))
        self.name = name
        self.broker_id = broker_id
        self.cluster = cluster
        self.address = address or f"{self.host.ip}:10911"
        self.version = DataVersion(timestamp=1, counter=1)

    def header(self, **changes: object) -> RegisterBroker:
        host = self.address.rpartition(":")[0]
        fields: dict[str, object] = {
            "cluster_name": self.cluster,
            "broker_name": self.name,
            "broker_id": self.broker_id,
            "broker_addr": self.address,
            "ha_server_addr": f"{host}:10912",
            **changes,
        }
        return RegisterBroker(**fields)  # type: ignore[arg-type]

    def register(
        self, topics: Iterable[str | TopicConfig] = (), **changes: object
    ) -> BrokerRegistered:
        body = registration(topics, self.version)
        fields = {"body_crc32": body_checksum(body), **changes}
        return self.ok(self.header(**fields), body).header(BrokerRegistered)

    def update(self, topics: Iterable[str | TopicConfig], **changes: object) -> None:
        """Register with a changed table."""
        self.version = self.version.next(now_ms=2)
        self.register(topics, **changes)

    def unregister(self) -> Response:
        return self.ok(
            UnregisterBroker(
                cluster_name=self.cluster,
                broker_name=self.name,
                broker_id=self.broker_id,
                broker_addr=self.address,
            )
        )


def registration(
    topics: Iterable[str | TopicConfig] = (),
    version: DataVersion | None = None,
    *,
    compressed: bool = False,
) -> bytes:
    """A registration body with the topics that every broker has, and more."""
    names = (*EVERYWHERE, *topics)
    configs = [name if isinstance(name, TopicConfig) else topic(name) for name in names]
    table = {config.topic_name: config for config in configs}
    version = version or DataVersion(timestamp=1, counter=1)
    registered = RegisteredTopics(topic_config_table=table, data_version=version)
    return RegisterBrokerBody(topics=registered).encode(compressed=compressed)


def topic(name: str, queues: int = 4, perm: int = 6, flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        topic_sys_flag=flag,
    )


class World:
    """The name server on host `ns`, and the brokers and clients a test asks for."""

    def __init__(self, sim: Simulation, settings: Mapping[str, object], file: AtomicFile | None):
        self.sim = sim
        self._settings = {"listen_host": "0.0.0.0", "limits": PATIENT, **settings}
        self._file = file
        self.clock_jump_ms = 0
        """How far the name server's clock was set."""
        self.host = sim.host("ns")
        self.server = self.start()
        self.client = Caller(sim, sim.host("client"))

    def start(self) -> NameServer:
        config = NameServerConfig(**self._settings)  # type: ignore[arg-type]
        self.server = NameServer(config, clock=self._clock, kv_file=self._file)
        self._task = self.host.start(self._serve())
        self.sim.until_idle()
        return self.server

    def _clock(self) -> int:
        return self.sim.clock() + self.clock_jump_ms

    def restart(self) -> NameServer:
        """Stop in order and start without any memory."""
        self._task.cancel()
        self.sim.until_idle()
        return self.start()

    async def _serve(self) -> None:
        async with self.server.running():
            await asyncio.Event().wait()

    def broker(
        self,
        name: str = "broker-a",
        broker_id: int = 0,
        *,
        cluster: str = "DefaultCluster",
        address: str | None = None,
    ) -> Broker:
        return Broker(self.sim, name, broker_id, cluster, address)


@contextmanager
def world(*, file: AtomicFile | None = None, **settings: Any) -> Iterator[World]:
    """A running name server with these settings."""
    with Simulation(1) as sim:
        yield World(sim, settings, file)
