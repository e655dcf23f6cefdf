"""A cluster under test: one name server and one broker, ended by their own pids."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sparrowmq.testing.held_port import HeldPort
from tests.interop import raw

GET_CLUSTER_INFO = 106
READY_TIMEOUT_S = 180.0
BROKER_NAME = "broker-a"
BROKER_PORTS = (-2, 1)
"""Offsets of the VIP channel and HA from a broker's port."""


@dataclass(frozen=True)
class Settings:
    """The settings of a scenario's own cluster. Broker properties use Apache's names."""

    auto_create_topics: bool = True
    properties: tuple[tuple[str, str], ...] = ()


class Server:
    """One server process with its own output file."""

    def __init__(
        self,
        command: list[str],
        output: Path,
        env: dict[str, str] | None = None,
        *,
        own_session: bool = False,
    ) -> None:
        self.output = output
        with output.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=output.parent,
                env=os.environ | (env or {}),
                start_new_session=own_session,
            )

    @property
    def pid(self) -> int:
        """The process id, for measurements."""
        return self._process.pid

    def is_running(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def stop(self, sign: signal.Signals = signal.SIGTERM, timeout_s: float = 120.0) -> None:
        """End the process and wait for it; what ignores SIGTERM is killed."""
        self._process.send_signal(sign)
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Cluster:
    """A name server and a broker on loopback with free ports and their own data directory."""

    def __init__(
        self,
        target: str,
        folder: Path,
        start_name_server: Callable[[Path, str], Server],
        start_broker: Callable[["Cluster"], Server] | None,
        settings: Settings,
        *,
        name_server: str | None = None,
    ) -> None:
        """Without `start_broker` there is a name server only: the scenario starts brokers."""
        folder.mkdir(parents=True, exist_ok=True)
        self.target = target
        self.folder = folder
        self.settings = settings
        self._held = (HeldPort(beside=BROKER_PORTS), HeldPort())
        self.broker_port = self._held[0].port
        self.broker = self._held[0].address
        self.name_server = name_server or self._held[1].address
        self._start_broker = start_broker
        self._name_server = None if name_server else start_name_server(folder, self.name_server)
        wait_until(lambda: accepts(self.name_server), f"{target} name server listens", folder)
        self._broker: Server | None = None
        if start_broker is not None:
            self.start_broker()

    @property
    def store(self) -> Path:
        """The broker's store directory."""
        return self.folder / "store"

    @property
    def broker_pid(self) -> int:
        """The broker's process id."""
        assert self._broker is not None
        return self._broker.pid

    def start_broker(self) -> None:
        """Start the broker on its directory and return when its route is handed out."""
        assert self._start_broker is not None
        self._broker = self._start_broker(self)
        wait_until(self._has_route, f"{self.target} broker is in the route", self.folder)

    def stop_broker(self, sign: signal.Signals = signal.SIGTERM) -> None:
        """End the broker and wait until it is gone."""
        assert self._broker is not None
        self._broker.stop(sign)

    def close(self) -> None:
        """End both servers. An orderly stop of Apache's takes long and is not needed here."""
        sign = signal.SIGKILL if self.target == "apache" else signal.SIGTERM
        for server in (self._broker, self._name_server):
            if server is not None and server.is_running():
                server.stop(sign)
        for held in self._held:
            held.close()

    def _has_route(self) -> bool:
        assert self._broker is not None
        if not self._broker.is_running():
            raise RuntimeError(f"{self.target} broker ended, see {self._broker.output}")
        # The name server may still know the broker of a moment ago: the port must answer, too.
        if not accepts(self.broker):
            return False
        reply = raw.call(self.name_server, GET_CLUSTER_INFO)
        return reply.code == 0 and f'"{self.broker}"'.encode() in reply.body


def accepts(address: str) -> bool:
    """Whether something listens there."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True


def wait_until(
    holds: Callable[[], bool], what: str, folder: Path, timeout_s: float = READY_TIMEOUT_S
) -> None:
    """Poll a foreign process; raises TimeoutError naming what never came true."""
    end = time.monotonic() + timeout_s
    while not _quietly(holds):
        if time.monotonic() > end:
            raise TimeoutError(f"not in {timeout_s:.0f} s: {what}; see {folder}")
        time.sleep(0.05)


def _quietly(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except OSError:
        return False
