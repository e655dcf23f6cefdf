"""SparrowMQ's name server and broker as a target, started by the installed command."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tests.interop import apache
from tests.interop.cluster import Cluster, Server, Settings

NAME = "sparrow"
# What the broker can do by now. A scenario that needs more is counted as "not yet".
CAPABILITIES = frozenset(
    {"core", "admin", "retry", "delay", "transactions", "sql92", "request-reply", "statistics"}
    | {"reset", "restart", "cross", "exchange", "replication", "peers", "refusals", "limits"}
)


def start(
    folder: Path, settings: Settings, name_server: str | None = None, *, flags: Sequence[str] = ()
) -> Cluster:
    """Start our broker, with flags that broker.conf has no key for, and our name server unless
    another is given."""

    def broker(cluster: Cluster) -> Server:
        return run_broker(cluster.folder, apache.write_conf(cluster), *flags)

    return Cluster(NAME, folder, start_name_server, broker, settings, name_server=name_server)


def start_name_server(folder: Path, address: str) -> Server:
    """Our name server at a loopback address."""
    folder.mkdir(parents=True, exist_ok=True)
    return _command(folder, "nameserver", "--port", address.rsplit(":", 1)[1])


def start_broker(cluster: Cluster) -> Server:
    """Our broker, configured by the very file that Apache's broker reads."""
    return run_broker(cluster.folder, apache.write_conf(cluster))


def run_broker(folder: Path, conf: Path, *flags: str) -> Server:
    """Our broker with a broker.conf of Apache's, and flags that it has no key for."""
    return _command(folder, "broker", "--config", str(conf), *flags)


def start_slave(cluster: Cluster, folder: Path, *more: str, host: str = "127.0.0.1") -> Server:
    """A slave of the cluster's broker, on a free port."""
    folder.mkdir(parents=True, exist_ok=True)
    flags = {"broker-id": "1", "port": "0", "ha-port": "0", "name-servers": cluster.name_server}
    flags |= {"listen": host, "advertise": host}
    conf = cluster.folder / "broker.conf"  # files of the log have to have the master's size
    words = [word for name, text in flags.items() for word in (f"--{name}", text)]
    words += ("--data", str(folder), *more)
    return _command(folder, "broker", "--config", str(conf), *words)


def _command(folder: Path, verb: str, *args: str) -> Server:
    command = [sys.executable, "-m", "sparrowmq", verb, *args]
    return Server(command, folder / f"{verb}.out")
