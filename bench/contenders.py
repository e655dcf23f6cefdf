"""The two brokers under measurement, each on loopback with free ports and a data directory."""

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.machine import family
from tests.interop import toolchain
from tests.interop.cluster import Server, accepts, free_port, free_port_pair, wait_until

BROKER_NAME = "broker-a"


@dataclass
class Contender:
    """A running broker with its name server. `servers` are ended in their order."""

    name: str
    name_server: str
    folder: Path
    servers: list[Server]
    started_s: float
    """The moment the broker's process was started, of the monotonic clock."""
    first_send_s: float = 0.0
    """How long it took from there until a message was stored."""

    @property
    def pids(self) -> list[int]:
        """The broker's processes; a name server of its own is not one of them."""
        return family(self.servers[0].pid)

    def target(self) -> dict[str, object]:
        """What every command to the load needs to know."""
        return {"name_server": self.name_server, "pids": ",".join(map(str, self.pids))}

    def close(self) -> None:
        """End what was started, by its own pid."""
        # Apache's servers take many seconds for a goodbye that nobody needs here.
        sign = signal.SIGKILL if self.name == "Apache" else signal.SIGTERM
        for server in self.servers:
            if server.is_running():
                server.stop(sign)


Start = Callable[[Path, bool], Contender]
"""Starts a contender in a folder; the second argument asks for synchronous flush."""


def start_sparrow(folder: Path, sync_flush: bool) -> Contender:
    """`sparrowmq up`: name server and broker in one process, both counted."""
    folder.mkdir(parents=True)
    name_server = f"127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "sparrowmq", "up", "--data", str(folder / "data")]
    command += ["--nameserver-port", name_server.rpartition(":")[2]]
    command += ["--port", str(free_port_pair()), "--broker-name", BROKER_NAME]
    command += ["--flush", "sync" if sync_flush else "async"]
    started = time.monotonic()
    server = Server(command, folder / "up.out")
    return Contender("SparrowMQ", name_server, folder, [server], started)


def start_apache(folder: Path, sync_flush: bool) -> Contender:
    """Apache's name server and broker; the flags are those of its own start scripts."""
    (folder / "home" / "conf").mkdir(parents=True)
    name_server = f"127.0.0.1:{free_port()}"
    conf = folder / "namesrv.properties"
    conf.write_text(f"listenPort={name_server.rpartition(':')[2]}\nbindAddress=127.0.0.1\n")
    names = _java(folder, "512m", "org.apache.rocketmq.namesrv.NamesrvStartup", conf)
    # The broker gives up its first registration quickly, so its name server listens first.
    wait_until(lambda: accepts(name_server), "Apache's name server listens", folder)
    conf = folder / "broker.properties"
    conf.write_text(_broker_conf(folder, name_server, sync_flush))
    started = time.monotonic()
    broker = _java(folder, "2g", "org.apache.rocketmq.broker.BrokerStartup", conf)
    return Contender("Apache", name_server, folder, [broker, names], started)


def _broker_conf(folder: Path, name_server: str, sync_flush: bool) -> str:
    port = free_port_pair()
    pairs = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": BROKER_NAME,
        "brokerId": "0",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "SYNC_FLUSH" if sync_flush else "ASYNC_FLUSH",
        "namesrvAddr": name_server,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "bindAddress": "127.0.0.1",
        "listenPort": str(port),
        "haListenPort": str(port + 1),
        "autoCreateTopicEnable": "true",
        "autoCreateSubscriptionGroup": "true",
        "storePathRootDir": str(folder / "store"),
        "storePathCommitLog": str(folder / "store" / "commitlog"),
    }
    return "".join(f"{name}={value}\n" for name, value in pairs.items())


def _java(folder: Path, heap: str, main: str, conf: Path) -> Server:
    flags = ["-server", f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", "-XX:G1HeapRegionSize=16m"]
    flags += ["-XX:G1ReservePercent=25", "-XX:InitiatingHeapOccupancyPercent=30"]
    flags += ["-XX:MaxDirectMemorySize=4g", *toolchain.JVM_FLAGS, f"-Duser.home={folder}"]
    classpath = f"{folder / 'home' / 'conf'}:{toolchain.jars('java5')}/*"
    command = ["java", *flags, "-cp", classpath, main, "-c", str(conf)]
    return Server(command, folder / f"{conf.stem}.out", {"ROCKETMQ_HOME": str(folder / "home")})
