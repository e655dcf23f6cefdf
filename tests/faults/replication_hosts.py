"""Scorecard row 8 with two hosts: the cable is unplugged while the old master keeps running.

```
west   master, takes messages and may acknowledge none ─▶ killed, cut where it split, follows east
           │
east   slave ─▶ promoted, gets a slave of its own, serves ────────────────────────────────────────▶
       unplugged                                      plugged in
```
"""

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from tests.faults.broker_process import BrokerProcess, StartFailed
from tests.faults.checker import Ledger, MessageId
from tests.faults.kills import LOG_FILE_BYTES, QUEUES, KillResult
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.faults.network_hosts import Host, TwoHosts, two_hosts
from tests.faults.replication_checks import differences
from tests.faults.replication_kills import messages_of, store_in
from tests.patience import PATIENCE_S

_ROOT = Path(__file__).parents[2]
_PORT, _PORT_OF_SECOND_SLAVE = 10911, 10921
_SEND_OK = 0
_EACH = 5
_LOOK_S = 0.05


class HostedBrokers:
    """Brokers of one name on both hosts, and what their clients know."""

    def __init__(
        self, hosts: TwoHosts, root: Path, name_server: str, flush: str, module: str
    ) -> None:
        self.hosts = hosts
        self._root = root
        self._module = module
        self._options = (
            *("--listen", "0.0.0.0", "--insecure", "--name-servers", name_server),
            *("--flush", flush, "--replication", "sync", "--slave-timeout", "1s"),
            *("--store-log-file-size", str(LOG_FILE_BYTES), "--register-interval", "2s"),
        )
        self._producers = (f"p{number}" for number in count())
        self._running: list[BrokerProcess] = []
        self.ledger = Ledger()

    def data(self, name: str) -> Path:
        """The directory of a broker."""
        return self._root / name

    def start(self, name: str, host: Host, broker_id: int, port: int = _PORT) -> BrokerProcess:
        """Ready when this returns. Raises StartFailed."""
        broker = BrokerProcess(
            self.data(name),
            *self._options,
            *("--advertise", host.ip, "--port", str(port), "--ha-port", str(port + 1)),
            *("--broker-id", str(broker_id)),
            module=self._module,
            prefix=host.inside,
        )
        self._running.append(broker)
        return broker

    def send(self, host: Host) -> list[int]:
        """What the master on that host answers a client there."""
        producer = next(self._producers)
        messages = [MessageId(producer, number) for number in range(_EACH)]
        for message in messages:
            self.ledger.attempt(message)
        ran = self._run(host, "tests.faults.send_from", host.ip, str(_PORT), producer, str(_EACH))
        codes = [int(line) for line in ran.stdout.split()]
        for message, code in zip(messages, codes, strict=False):
            if code == _SEND_OK:
                self.ledger.ok(message)
        return codes

    def send_until_safe(self, host: Host) -> None:
        """Send until all is acknowledged, that is, until a slave follows. Raises TimeoutError."""
        limit_s = time.monotonic() + PATIENCE_S
        while self.send(host) != [_SEND_OK] * _EACH:
            if time.monotonic() > limit_s:
                raise TimeoutError(f"no slave followed {host.ip} within {PATIENCE_S} s")

    def follow(self, name: str, host: Host, master: Host) -> None:
        """Keep the end of a store that diverged aside, as an operator does. Raises OSError."""
        address = ("--master", f"{master.ip}:{_PORT}")
        ran = self._run(
            host, "sparrowmq", "store", "follow", str(self.data(name)), *address, "--yes"
        )
        if ran.returncode:
            raise OSError(f"store follow: {ran.stderr}")

    def _run(self, host: Host, module: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*host.inside, sys.executable, "-m", module, *words],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    def close(self) -> None:
        """End all of them."""
        for broker in self._running:
            broker.kill()


def part_from_live_master(
    flush: str, *, module: str = "sparrowmq", keep_in: Path | None = None
) -> KillResult:
    """Unplug a master that lives on, and promote its slave. Raises NotAllowed where this machine
    has no network namespaces.

    The verdict is that of the promoted slave's store alone.
    """
    result = KillResult(0, flush)
    with _brokers(result, flush, module, keep_in) as brokers:
        west, east = brokers.hosts.west, brokers.hosts.east
        old, slave = brokers.start("west", west, 0), brokers.start("east", east, 1)
        brokers.send_until_safe(west)
        brokers.hosts.unplug()
        answers = brokers.send(west)
        slave.stop()
        new = brokers.start("east", east, 0)
        brokers.start("east-slave", east, 2, _PORT_OF_SECOND_SLAVE)
        brokers.send_until_safe(east)
        answers += brokers.send(west)
        brokers.hosts.plug()
        _until_logged(old, "clients do not find this broker")
        answers += brokers.send(west)
        if _SEND_OK in answers or len(answers) < 3 * _EACH:
            result.problems.append(f"the old master answered {answers}, SEND_OK is 0")
        old.kill()
        _bring_back(brokers)
        brokers.send_until_safe(east)
        new.stop()  # its slaves have everything when it has stopped
        brokers.close()
        _check_stores(brokers, result)
    return result


def _bring_back(brokers: HostedBrokers) -> None:
    """The old master becomes a slave: refused at first, because only it has some messages."""
    west, east = brokers.hosts.west, brokers.hosts.east
    refused = brokers.start("west", west, 1)
    _until_logged(refused, "differ from offset")
    refused.stop()
    brokers.follow("west", west, east)
    back = brokers.start("west", west, 1)
    _until_logged(back, f"following {east.ip}:{_PORT} from log offset")


def _check_stores(brokers: HostedBrokers, result: KillResult) -> None:
    with store_in(brokers.data("east")) as master:
        found = [each for queue_id in range(QUEUES) for each in messages_of(master, queue_id)]
        result.verdict = brokers.ledger.check(found)
        for name in ("west", "east-slave"):
            with store_in(brokers.data(name)) as slave:
                result.problems += [f"{name}: {each}" for each in differences(master, slave)[:3]]
                if slave.max_log_offset != master.max_log_offset:
                    ends = f"{slave.max_log_offset}, its master at {master.max_log_offset}"
                    result.problems.append(f"{name} ends at {ends}")


def _until_logged(broker: BrokerProcess, text: str) -> None:
    """Return when a broker has logged this. Raises TimeoutError."""
    limit_s = time.monotonic() + PATIENCE_S
    while text.encode() not in broker.log.read_bytes():
        if time.monotonic() > limit_s:
            raise TimeoutError(f"{broker.log.name} never said {text!r}")
        time.sleep(_LOOK_S)


@contextmanager
def _brokers(
    result: KillResult, flush: str, module: str, keep_in: Path | None
) -> Iterator[HostedBrokers]:
    root = Path(tempfile.mkdtemp(prefix="sparrowmq-hosts-"))
    try:
        with ExitStack() as stack:
            hosts = stack.enter_context(two_hosts())
            options = ("--listen", "0.0.0.0", "--insecure")
            names = NameServerProcess(root, options=options, prefix=hosts.east.inside)
            stack.callback(names.close)
            address = f"{hosts.east.ip}:{names.port}"
            brokers = HostedBrokers(hosts, root, address, flush, module)
            stack.callback(brokers.close)
            yield brokers
    except (StartFailed, OSError, TimeoutError) as error:
        result.problems.append(repr(error))
    finally:
        if not result and keep_in is not None:
            shutil.copytree(root, keep_in, dirs_exist_ok=True)
            result.problems.append(f"kept in {keep_in}")
        shutil.rmtree(root)
