"""Masters with and without a slave, SparrowMQ's and Apache's, each under its own load."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.contenders import BROKER_NAME, apache_broker, apache_names
from bench.contest import Row
from bench.driver import Driver, DriverFailed
from bench.machine import family, process_cpu_s
from sparrowmq.broker.replication.log_description import LogDescription
from sparrowmq.protocol.headers.replication import DescribeLog
from sparrowmq.testing.held_port import HeldPort
from tests.interop.cluster import BROKER_PORTS, Server, accepts, wait_until
from tests.interop.raw import RawConnection

_SETTLING_ROUNDS = 60
_SETTLED_AFTER = 3
"""So many rounds in a row without an error."""

StartBroker = Callable[[Path, HeldPort, HeldPort], Server]
"""Starts a broker in a folder, with the ports of its name server and its own."""


class LogProbe:
    """Asks one of our brokers where its log ends."""

    def __init__(self, address: str) -> None:
        self._connection = RawConnection(address)

    def __enter__(self) -> "LogProbe":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.__exit__(*error)

    def describe(self) -> LogDescription:
        """The broker's current log."""
        return LogDescription.from_json(self._connection.call(DescribeLog.CODE).body)

    def end(self) -> int:
        """The log offset just past the last record."""
        return self.describe().claim.end


@dataclass
class Pair:
    """A name server, a master, perhaps a slave, and the client that sends to the master."""

    name: str
    folder: Path
    client: Driver
    start_slave: StartBroker
    name_server: HeldPort = field(default_factory=HeldPort)
    master_port: HeldPort = field(default_factory=lambda: HeldPort(beside=BROKER_PORTS))
    slave_port: HeldPort = field(default_factory=lambda: HeldPort(beside=BROKER_PORTS))
    names: Server | None = None
    master: Server | None = None
    slave: Server | None = None

    @property
    def servers(self) -> list[Server]:
        """Those that run."""
        return [each for each in (self.slave, self.master, self.names) if each is not None]

    @property
    def all_pids(self) -> list[int]:
        """Everything that has to stand still while others are measured."""
        return [pid for server in self.servers for pid in family(server.pid)] + [self.client.pid]

    def add_slave(self, name: str = "slave") -> Server:
        """Start the slave, with an empty store in a folder of this name."""
        self.slave = self.start_slave(self.folder / name, self.name_server, self.slave_port)
        return self.slave

    def run(self, op: str, **fields: object) -> Row:
        """Let the client do something; processor time is counted for master and slave apart."""
        before_s = self._slave_cpu_s
        self.start(op, **fields)
        row = self.client.finish(op)
        if self.slave is not None and row.get("messages"):
            row["slave_cpu_us"] = 1e6 * (self._slave_cpu_s - before_s) / row["messages"]
        return row

    @property
    def _slave_cpu_s(self) -> float:
        return 0.0 if self.slave is None else process_cpu_s(self.slave.pid)

    def start(self, op: str, **fields: object) -> None:
        """Begin it, to look at the brokers meanwhile."""
        assert self.master is not None
        pids = ",".join(map(str, family(self.master.pid)))
        self.client.start(op, name_server=self.name_server.address, pids=pids, **fields)

    def settle(self) -> None:
        """Return when the slave follows again: it may have been suspended for so long that its
        connection is given up. Raises DriverFailed."""
        well = 0
        row: Row = {}
        for _ in range(_SETTLING_ROUNDS):
            row = self.run("send", mode="sync", threads=1, seconds=0.2, warm=0)
            well = 0 if row["errors"] or not row["messages"] else well + 1
            if well == _SETTLED_AFTER and self._is_close():
                return
        raise DriverFailed(f"{self.name} does not settle: {row}, see {self.folder}")

    def _is_close(self) -> bool:
        if self.slave is None or self.name == "apache":
            return True
        with LogProbe(self.master_port.address) as master:
            end = master.end()
        with LogProbe(self.slave_port.address) as slave:
            wait_until(lambda: slave.end() >= end, "the slave has caught up", self.folder)
        return True

    def close(self) -> None:
        """End the started processes, by their own pids."""
        for server in self.servers:
            if server.is_running():
                server.stop(signal.SIGKILL)
        for port in (self.name_server, self.master_port, self.slave_port):
            port.close()


@contextmanager
def sparrow_pair(
    name: str, folder: Path, *, slave: bool, settings: Sequence[str]
) -> Iterator[Pair]:
    """SparrowMQ's; `settings` are options of the master's command."""

    def start(folder: Path, names: HeldPort, port: HeldPort, options: Sequence[str]) -> Server:
        folder.mkdir(parents=True)
        ports = ["--port", str(port.port), "--name-servers", names.address]
        data = ["--data", str(folder / "data"), "--broker-name", BROKER_NAME]
        return _sparrowmq(folder, "broker", *ports, *data, *options)

    def start_slave(folder: Path, names: HeldPort, port: HeldPort) -> Server:
        return start(folder, names, port, ["--broker-id", "1"])

    with _pair(name, folder, start_slave) as pair:
        names = pair.name_server
        pair.names = _sparrowmq(folder, "nameserver", "--port", str(names.port))
        wait_until(lambda: accepts(names.address), "the name server listens", folder)
        pair.master = start(folder / "master", names, pair.master_port, settings)
        _begin(pair, slave)
        yield pair


@contextmanager
def apache_pair(folder: Path) -> Iterator[Pair]:
    """Apache's, whose master waits for its slave."""

    def start_slave(folder: Path, names: HeldPort, port: HeldPort) -> Server:
        return apache_broker(folder, names, port, {"brokerId": "1", "brokerRole": "SLAVE"})

    # With 5.x's default of 1, a SYNC_MASTER waits for no slave.
    waiting = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2"}
    with _pair("apache", folder, start_slave) as pair:
        names = pair.name_server
        pair.names = apache_names(folder / "names", names)
        pair.master = apache_broker(folder / "master", names, pair.master_port, waiting)
        _begin(pair, slave=True)
        yield pair


@contextmanager
def _pair(name: str, folder: Path, start_slave: StartBroker) -> Iterator[Pair]:
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        client = stack.enter_context(Driver(folder / "client"))
        pair = Pair(name, folder, client, start_slave)
        stack.callback(pair.close)
        yield pair


def _begin(pair: Pair, slave: bool) -> None:
    """Return when the master takes messages, and its slave follows."""
    address = pair.master_port.address
    wait_until(lambda: accepts(address), f"the master of {pair.name} listens", pair.folder)
    if slave:
        pair.add_slave()
    pair.client.run("first_send", name_server=pair.name_server.address, limit=60)
    pair.settle()


def _sparrowmq(folder: Path, *arguments: str) -> Server:
    command = [sys.executable, "-m", "sparrowmq", *arguments, "--log-level", "warning"]
    return Server(command, folder / f"{arguments[0]}.out", own_session=True)
