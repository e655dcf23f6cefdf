"""A slave that sends on its HA connection whatever a test chooses."""

import asyncio

from sparrowmq.broker.replication.claims import LogClaim
from sparrowmq.broker.replication.log_description import LogDescription
from sparrowmq.protocol.ha import ChunkDecoder
from sparrowmq.protocol.headers.replication import DescribeLog, FollowAnswer, FollowMaster
from sparrowmq.testing.sim_cluster import RunningCluster

_CHUNK = 4 * 1024 * 1024


class FakeSlave(asyncio.Protocol):
    """An HA connection that sends whatever a test chooses."""

    def __init__(self, sim: RunningCluster, number: int) -> None:
        self._sim = sim
        self._number = number
        self._host = sim.host(f"fake-{number}")
        self._decoder = ChunkDecoder(_CHUNK)
        self.transport: asyncio.Transport
        self.received = 0
        self.bodies: list[bytes] = []
        self.is_closed = False

    def claim(self) -> LogClaim:
        """That of an empty slave of this broker."""
        answer = self._sim.wait(self._sim.client.call(DescribeLog()))
        master = LogDescription.from_json(answer.body).claim
        return LogClaim(
            cluster=master.cluster,
            broker_name=master.broker_name,
            broker_id=self._number,
            address=f"{self._host.ip}:10911",
            file_size=master.file_size,
            begin=0,
            end=0,
        )

    def hello(self) -> bytes:
        """The token for an empty slave."""
        asked = self._sim.client.call(FollowMaster(), self.claim().to_json())
        return bytes.fromhex(self._sim.wait(asked).header(FollowAnswer).token)

    def connect(self, *pieces: bytes) -> None:
        """Open the HA connection and send these."""
        node = self._sim.brokers["broker-a"]
        port = node.broker.replication.ha_port
        loop = self._sim.loop
        self.transport, _ = self._sim.run(
            loop.create_connection(lambda: self, node.host.ip, port), on=self._host
        )
        for piece in pieces:
            self.transport.write(piece)

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self.bodies += [chunk.body for chunk in self._decoder.feed(data) if chunk.body]

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_closed = True
