"""The two brokers under measurement, each on loopback with free ports and a data directory.

Every server has a session of its own, as a daemon has. Linux shares the CPUs out by session
(`sched_autogroup_enabled`), so servers in the session of the load would compete with its threads
one by one; that doubles what Apache's many threads get done on two cores, and no daemon runs so.
"""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.machine import family
from sparrowmq.testing.held_port import HeldPort
from tests.interop import toolchain
from tests.interop.cluster import BROKER_PORTS, Server, accepts, wait_until

BROKER_NAME = "broker-a"


@dataclass
class Contender:
    """A running broker with its name server. `servers` are ended in their order."""

    name: str
    ports: "Ports"
    folder: Path
    servers: list[Server]
    started_s: float
    """The moment the broker's process was started, of the monotonic clock."""

    @property
    def pids(self) -> list[int]:
        """The broker's processes; a name server of its own is not one of them."""
        return family(self.servers[0].pid)

    @property
    def all_pids(self) -> list[int]:
        """Those of its name server too."""
        return [pid for server in self.servers for pid in family(server.pid)]

    @property
    def name_server(self) -> str:
        """host:port."""
        return self.ports.name_server.address

    def target(self) -> dict[str, object]:
        """What every command to the load needs to know."""
        return {"name_server": self.name_server, "pids": ",".join(map(str, self.pids))}

    def close(self) -> None:
        """End the started processes, by their own pids."""
        # Apache's servers take many seconds for an orderly stop, which is not needed here.
        sign = signal.SIGKILL if self.name == "Apache" else signal.SIGTERM
        for server in self.servers:
            if server.is_running():
                server.stop(sign)
        self.ports.close()


@contextmanager
def suspended(pids: list[int]) -> Iterator[None]:
    """Inside it, these processes do nothing at all."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class Ports:
    """Those of one contender."""

    def __init__(self) -> None:
        self.name_server = HeldPort()
        self.broker = HeldPort(beside=BROKER_PORTS)

    def close(self) -> None:
        """Leave them to others."""
        self.name_server.close()
        self.broker.close()


Start = Callable[[Path, bool], Contender]
"""Starts a contender in a folder; the second argument asks for synchronous flush."""


def start_sparrow(folder: Path, sync_flush: bool) -> Contender:
    """`sparrowmq up`: name server and broker in one process, both counted."""
    folder.mkdir(parents=True)
    ports = Ports()
    command = [
        sys.executable,
        "-m",
        "sparrowmq",
        "up",
        "--no-console",
        "--data",
        str(folder / "data"),
    ]
    command += ["--nameserver-port", str(ports.name_server.port)]
    command += ["--port", str(ports.broker.port), "--broker-name", BROKER_NAME]
    command += ["--flush", "sync" if sync_flush else "async"]
    started = time.monotonic()
    server = Server(command, folder / "up.out", own_session=True)
    return Contender("SparrowMQ", ports, folder, [server], started)


def start_apache(folder: Path, sync_flush: bool) -> Contender:
    """Apache's name server and broker; the flags are those of its own start scripts."""
    ports = Ports()
    names = apache_names(folder, ports.name_server)
    flush = {"flushDiskType": "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH"}
    started = time.monotonic()
    broker = apache_broker(folder, ports.name_server, ports.broker, flush)
    return Contender("Apache", ports, folder, [broker, names], started)


def apache_names(folder: Path, port: HeldPort) -> Server:
    """Apache's name server, listening: its brokers give up their first registration quickly."""
    folder.mkdir(parents=True, exist_ok=True)
    conf = folder / "namesrv.properties"
    conf.write_text(f"listenPort={port.port}\nbindAddress=127.0.0.1\n")
    server = _java(folder, "512m", "org.apache.rocketmq.namesrv.NamesrvStartup", conf)
    wait_until(lambda: accepts(port.address), "Apache's name server listens", folder)
    return server


def apache_broker(
    folder: Path, name_server: HeldPort, port: HeldPort, settings: dict[str, str]
) -> Server:
    """Apache's broker; a master that flushes and replicates asynchronously unless `settings` say
    otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": BROKER_NAME,
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
        "namesrvAddr": name_server.address,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port.port),
        "haListenPort": str(port.port + 1),
        "autoCreateTopicEnable": "true",
        "autoCreateSubscriptionGroup": "true",
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
        **settings,
    }
    conf = folder / "broker.properties"
    conf.write_text("".join(f"{name}={value}\n" for name, value in pairs.items()))
    return _java(folder, "2g", "org.apache.rocketmq.broker.BrokerStartup", conf)


def _java(folder: Path, heap: str, main: str, conf: Path) -> Server:
    (folder / "home" / "conf").mkdir(parents=True, exist_ok=True)
    flags = ["-server", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m"]
    flags += ["-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30"]
    flags += ["-XX:SoftRefLRUPolicyMSPerMB=0", "-XX:-OmitStackTraceInFastThrow"]
    flags += ["-XX:MaxDirectMemorySize=4g", *toolchain.JVM_FLAGS, f"-Duser.home={folder}"]
    classpath = f"{folder / 'home' / 'conf'}:{toolchain.jars('java5')}/*"
    command = ["java", *flags, "-cp", classpath, main, "-c", str(conf)]
    home = {"ROCKETMQ_HOME": str(folder / "home")}
    return Server(command, folder / f"{conf.stem}.out", home, own_session=True)
