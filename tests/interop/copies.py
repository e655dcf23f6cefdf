"""Brokers of one name, each on its own directory: SparrowMQ's and Apache's, as master or slave."""

import json
import re
import signal
from pathlib import Path
from typing import Any

from sparrowmq.store.files import StoreFiles
from sparrowmq.testing.held_port import HeldPort
from tests.interop import apache, raw, sparrow
from tests.interop.cluster import (
    BROKER_PORTS,
    GET_CLUSTER_INFO,
    Server,
    accepts,
    wait_until,
)

GET_HA_STATUS = 907
LOG_FILE_BYTES = 256 * 1024
"""Small, so that a few seconds of load fill several files of the log."""
MASTER, SLAVE = "SYNC_MASTER", "SLAVE"
_COMMON = {
    "inSyncReplicas": "2",
    "mappedFileSizeCommitLog": str(LOG_FILE_BYTES),
    # A slave of Apache's presents itself only after this time, and so does a master's heartbeat.
    "haSendHeartbeatInterval": "500",
    "flushConsumerOffsetInterval": "500",
    "slaveReadEnable": "true",  # else a 5.x slave refuses pulls
    "registerNameServerPeriod": "10000",
}


class Copy:
    """One broker of a pair: its store and its port stay when it gets another role.

    `maker` is `sparrow`, or the Maven profile of a release of Apache's.
    """

    def __init__(self, maker: str, folder: Path, name_server: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.maker = maker
        self.folder = folder
        self._name_server = name_server
        self._held = HeldPort(beside=BROKER_PORTS)
        self.address = self._held.address
        self._server: Server | None = None
        self._broker_id = 0

    @property
    def store(self) -> Path:
        """The store directory."""
        return self.folder / "store"

    def start(self, role: str) -> None:
        """Start it in a role; returns when the name server has it in that role."""
        self._broker_id = 1 if role == SLAVE else 0
        conf = self.folder / "broker.conf"
        properties = _COMMON | {"brokerRole": role, "brokerId": str(self._broker_id)}
        conf.write_text(
            apache.broker_conf(self._name_server, self._held.port, self.store, properties)
        )
        if self.maker == sparrow.NAME:
            self._server = sparrow.run_broker(self.folder, conf, "--replication-peer", "apache")
        else:
            self._server = apache.run_broker(self.folder, conf, self.maker, "512m")
        wait_until(self._is_registered, f"{self.maker} is registered as {role}", self.folder)

    def stop(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """End it; nothing happens to one that has ended."""
        if self._server is not None and self._server.is_running():
            self._server.stop(sign)

    def kill(self) -> None:
        """Kill it."""
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        """End it for good."""
        self.kill()
        self._held.close()

    def ask(self, code: int, fields: dict[str, str] | None = None) -> raw.RawReply:
        """One request to this broker."""
        return raw.call(self.address, code, fields)

    def ask_with(self, code: int, body: bytes) -> raw.RawReply:
        """One request without fields."""
        return raw.call(self.address, code, body=body)

    def feeds_a_slave(self) -> bool:
        """Of a master: whether a slave follows, and has everything."""
        links = self.ask(GET_HA_STATUS).json().get("haConnectionInfo") or []
        return any(link["diff"] == 0 for link in links)

    def bodies(self, topic: str) -> list[str]:
        """What its store has of a topic, read from its files; twice what was sent twice."""
        found = (each for each in StoreFiles.at(self.store).records() if each.topic == topic)
        return [bytes(record.body).decode() for record in found]

    def table(self, file: str, key: str) -> dict[str, Any]:
        """A table of its config directory; empty while there is none."""
        path = self.store / "config" / file
        try:
            # Apache writes numbers as keys.
            text = re.sub(r"([{,]\s*)(\d+)\s*:", r'\1"\2":', path.read_text())
            return dict(json.loads(text)[key])
        except (OSError, ValueError, KeyError):
            return {}

    def _is_registered(self) -> bool:
        assert self._server is not None
        if not self._server.is_running():
            raise RuntimeError(f"{self.maker} ended, see {self._server.output}")
        if not accepts(self.address):
            return False
        body = raw.call(self._name_server, GET_CLUSTER_INFO).body.decode()
        return re.search(rf'"?{self._broker_id}"?:"{self.address}"', body) is not None
