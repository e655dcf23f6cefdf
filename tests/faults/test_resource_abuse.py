"""Peers that take all they can get: servers stay up, use little memory and serve honest clients."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.servers import with_open_files
from tests.faults import abuses
from tests.faults.abused_broker import allow_open_files, limit_open_files
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.faults.raw_wire import RawClient, request
from tests.faults.resource_abuse import ABUSES, MB, abuse_broker
from tests.patience import PATIENCE_S
from tests.seeds import in_part

PUT_KV_CONFIG, GET_KV_CONFIG, REGISTER_BROKER, LIST_KV_CONFIG = 100, 101, 103, 219
_TURNS = 100
"""Requests during which a server has tried to accept what wants to connect."""
SMALL = tuple(name for name, case in ABUSES.items() if case.small)
WITHOUT_WAITING = ("half frames", "slow readers")
"""The abuses that every run tries: the broker ends them by size, the others mostly by time."""


@pytest.mark.parametrize(
    "name", in_part(sorted(SMALL, key=WITHOUT_WAITING.__contains__, reverse=True), few=2)
)
def test_an_abused_broker_stays_within_its_limits_and_serves_honest_clients(name: str) -> None:
    result = abuse_broker(name, small=True)
    assert result, str(result)


@pytest.mark.parametrize("name", in_part(["half frames", "slow readers", "deaf waiters"], few=1))
def test_planted_limits_that_are_too_large_are_noticed(name: str) -> None:
    assert not abuse_broker(name, small=True, is_planted=True)


@dataclass(frozen=True)
class AbusedNameServer:
    """A name server, a client that stands by, and how much abuse there is."""

    server: NameServerProcess
    standing: RawClient
    size: int

    @property
    def port(self) -> int:
        return self.server.port

    def limit_open_files(self, soft: int) -> None:
        limit_open_files(self.server.pid, soft)

    def refusal(self) -> str:
        """Of a change of the key-value configuration, which is a file."""
        place = {"namespace": "honest", "key": "k", "value": "needs a file"}
        head, _ = self.standing.call(PUT_KV_CONFIG, place)
        return head.remark or "" if head.code else ""

    def meet_it(self) -> None:
        """Until it has found no file for a connection; what is asked for meanwhile needs none."""
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE_S):
            for _ in range(_TURNS):
                head, _ = self.standing.call(GET_KV_CONFIG, {"namespace": "honest", "key": "k"})
                assert head.extFields["value"] == "before", "a change that was refused is shown"


@dataclass(frozen=True)
class Case:
    """An abuse of a name server: how much of it, the most memory it may cost, and its options."""

    act: Callable[[abuses.Target], AbstractContextManager[None]]
    size: int
    memory_mb: int
    options: tuple[str, ...] = ()
    is_survived_only: bool = False
    """Whether requests can only be refused meanwhile, not served."""


@contextmanager
def unread_answers(abused: abuses.Target) -> Iterator[None]:
    """Ask for answers of 3 MB, over and over, and read none of them."""
    with ExitStack() as stack, RawClient(abused.port) as wire:
        for number in range(50):
            place = {"namespace": "large", "key": str(number)}
            head, _ = wire.call(PUT_KV_CONFIG, {**place, "value": "x" * 60_000})
            assert head.code == 0, head.remark
        asked = b"".join(request(LIST_KV_CONFIG, at, {"namespace": "large"}) for at in range(100))
        for _ in range(abused.size):
            address = ("127.0.0.1", abused.port)
            stack.enter_context(socket.create_connection(address, PATIENCE_S)).sendall(asked)
        yield


@contextmanager
def full_tables(abused: abuses.Target) -> Iterator[None]:
    """Register brokers until no more are taken, and one that names too many topics."""
    with RawClient(abused.port) as wire:
        answers = [_register(wire, number, topics=100) for number in range(abused.size)]
        assert any("more are not allowed" in answer for answer in answers)
        assert "at most 1000 allowed" in _register(wire, 0, topics=50_000)
        yield


def _register(wire: RawClient, number: int, topics: int) -> str:
    """With what words a broker is refused; empty if it is taken."""
    configs = {
        f"topic-{each}": {
            "topicName": f"topic-{each}",
            "readQueueNums": 8,
            "writeQueueNums": 8,
            "perm": 6,
            "topicSysFlag": 0,
        }
        for each in range(topics)
    }
    version = {"counter": 1, "timestamp": 1, "stateVersion": 0}
    table = {"topicConfigTable": configs, "dataVersion": version}
    body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
    address = f"10.0.{number // 250}.{number % 250 + 1}:10911"
    fields = {
        "brokerName": f"broker-{number}",
        "brokerId": "0",
        "clusterName": "abuse",
        "brokerAddr": address,
        "haServerAddr": address,
        "bodyCrc32": "0",
    }
    head, _ = wire.call(REGISTER_BROKER, fields, body)
    return head.remark or "" if head.code else ""


CASES = {
    "silent connections": Case(abuses.silent_connections, 1_300, 32),
    "used up descriptors": Case(abuses.used_up_descriptors, 1_024, 32, is_survived_only=True),
    "half frames": Case(abuses.half_frames, 8, 110, ("--limit-max-unfinished", "64MiB")),
    "unread answers": Case(unread_answers, 40, 110, ("--limit-max-unread", "32MiB")),
    "full tables": Case(
        full_tables, 300, 64, ("--max-brokers", "200", "--max-topics-per-broker", "1000")
    ),
}
BY_TIME = ("silent connections",)


def put_and_get(wire: RawClient, value: str) -> None:
    """Change the key-value configuration, which is a file, and read it."""
    place = {"namespace": "honest", "key": "k"}
    head, _ = wire.call(PUT_KV_CONFIG, {**place, "value": value})
    assert head.code == 0, head.remark
    head, _ = wire.call(GET_KV_CONFIG, place)
    assert head.extFields["value"] == value


@pytest.mark.parametrize("name", in_part(sorted(CASES, key=BY_TIME.__contains__), few=4))
def test_an_abused_name_server_serves_honest_clients_and_saves_their_values(
    name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    allow_open_files(case.size + 500)
    kept = tmp_path / "kvConfig.json"
    options = (*case.options, "--kv-config-path", str(kept))
    server = NameServerProcess(tmp_path, options=options, prefix=with_open_files(1_024, 1_024))
    try:
        with RawClient(server.port) as standing:
            put_and_get(standing, "before")
            before_bytes = server.memory_bytes()
            with case.act(AbusedNameServer(server, standing, case.size)):
                if not case.is_survived_only:
                    put_and_get(standing, "meanwhile")
                    with RawClient(server.port) as fresh:
                        put_and_get(fresh, "on a new connection")
            with RawClient(server.port) as fresh:
                put_and_get(fresh, "on a new connection")
            put_and_get(standing, "afterwards")
        assert json.loads(kept.read_text())["configTable"]["honest"]["k"] == "afterwards"
        assert server.memory_bytes() - before_bytes < case.memory_mb * MB
    finally:
        server.close()
