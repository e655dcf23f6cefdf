"""Whole clusters in one process, in virtual time, over an in-memory network and recording disks.

with SimCluster(seed=7, brokers=2).run() as sim:
    sim.wait(sim.client.send("orders", b"hello"))
    sim.brokers["broker-a"].restart()
    assert sim.wait(sim.client.pull("orders")).bodies == [b"hello"]
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.config import BrokerConfig
from sparrowmq.client.client import Client, client_around
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.members import ProcessConsumers
from sparrowmq.client.session_keepalive import KeepaliveInLoop
from sparrowmq.net.routes import Routes
from sparrowmq.store.config import StoreConfig
from sparrowmq.testing.paths import Conditions
from sparrowmq.testing.sim_nodes import FIRST_PID, BrokerNode, NameServerNode
from sparrowmq.testing.simulation import Simulation
from sparrowmq.testing.wire_client import WireClient

SMALL_STORE = StoreConfig(
    log_file_size=1024 * 1024,
    queue_file_units=1_000,
    index_slots=500,
    index_entries=2_000,
    timer_log_size=16 * 1024,
    reserve_bytes=64 * 1024,
)
"""Files so small that tests see them roll, and that a hundred clusters fit into memory."""


class RunningCluster(Simulation):
    """A started cluster. Name servers, brokers and clients have hosts of the same names."""

    def __init__(self, seed: int, conditions: Conditions | None, limit_s: float) -> None:
        super().__init__(seed, conditions=conditions, limit_s=limit_s)
        self.name_servers: dict[str, NameServerNode] = {}
        self.brokers: dict[str, BrokerNode] = {}
        self.clients: dict[str, WireClient] = {}

    @property
    def broker(self) -> Broker:
        """The parts of the first broker."""
        return next(iter(self.brokers.values())).broker

    @property
    def client(self) -> WireClient:
        """A client, created on first use."""
        return self.clients.get("client") or self.new_client("client")

    def new_client(self, name: str) -> WireClient:
        """Another client, on a new host."""
        first = next(iter(self.brokers.values()), None)
        client = WireClient(self, name, first.address if first else "")
        self.clients[name] = client
        client.start()
        return client

    def client_on(
        self, name: str, routes: Routes[ClientCore] | None = None, **settings: Any
    ) -> Client:
        """A client, the part that producers and consumers share, for the named host; not started.

        Its code has to run there: `sim.run(..., on=sim.host(name))`. Calls from brokers go to
        `routes`; `settings` are further ones of ClientConfig.
        """
        config = ClientConfig(
            name_servers=self.name_server_addresses,
            client_ip=self.host(name).ip,
            instance_name=name,
            **settings,
        )
        rng = self.rng(f"client {name}")
        core = ClientCore(
            config,
            routes=routes,
            clock=self.clock,
            rng=rng,
            pid=FIRST_PID,
            keepalive_from=KeepaliveInLoop(),
            process_consumers=ProcessConsumers(),
        )
        return client_around(core)

    @property
    def name_server_addresses(self) -> tuple[str, ...]:
        return tuple(node.address for node in self.name_servers.values())


class SimCluster:
    """The description of a cluster; `run` starts it.

    Each broker gets `slaves` slaves, called `broker-a.1` and so on among `brokers`.
    `settings` go to every broker's `BrokerConfig`, `name_server_settings` to the name servers'.
    A test that needs more virtual time sets `limit_s` itself: an hour of a cluster's timers
    already takes seconds.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        name_servers: int = 1,
        brokers: int = 1,
        slaves: int = 0,
        conditions: Conditions | None = None,
        limit_s: float = 3600.0,
        name_server_settings: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.seed = seed
        self._name_servers = name_servers
        self._brokers = brokers
        self._slaves = slaves
        self._conditions = conditions
        self._limit_s = limit_s
        self._name_server_settings = dict(name_server_settings or {})
        self._settings = settings

    @contextmanager
    def run(self) -> Iterator[RunningCluster]:
        """Start everything; the block begins when all brokers are registered."""
        with RunningCluster(self.seed, self._conditions, self._limit_s) as sim:
            for number in range(self._name_servers):
                name = f"name-server-{number + 1}"
                node = NameServerNode(sim, name, **self._name_server_settings)
                sim.name_servers[name] = node
                node.start()
            for letter in string.ascii_lowercase[: self._brokers]:
                for broker_id in range(self._slaves + 1):
                    broker = self._broker_node(sim, f"broker-{letter}", broker_id)
                    sim.brokers[broker.name] = broker
                    broker.start()
            yield sim

    def _broker_node(self, sim: RunningCluster, broker_name: str, broker_id: int) -> BrokerNode:
        name = f"{broker_name}.{broker_id}" if broker_id else broker_name
        config = BrokerConfig(
            data_dir=Path("/simulated") / name,
            broker_name=broker_name,
            broker_id=broker_id,
            name_servers=sim.name_server_addresses,
            listen_host="0.0.0.0",
            advertise_host=sim.host(name).ip,
            store=SMALL_STORE,
        )
        return BrokerNode(sim, replace(config, **self._settings), name)
