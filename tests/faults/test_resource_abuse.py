"""Peers that take what they can get: servers stay up, small, and there for honest clients."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.servers import with_open_files
from tests.faults import abuses
from tests.faults.abused_broker import allow_open_files
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.faults.raw_wire import RawClient
from tests.faults.resource_abuse import ABUSES, abuse_broker
from tests.seeds import in_part

PUT_KV_CONFIG, GET_KV_CONFIG = 100, 101
WITHOUT_WAITING = ("half frames", "slow readers")
"""The abuses that every run tries: the broker ends them by size, the others mostly by time."""


@pytest.mark.parametrize(
    "name", in_part(sorted(ABUSES, key=WITHOUT_WAITING.__contains__, reverse=True), few=2)
)
def test_an_abused_broker_stays_within_its_limits_and_serves_honest_clients(name: str) -> None:
    result = abuse_broker(name, small=True)
    assert result, str(result)


@pytest.mark.parametrize("name", in_part(["half frames", "slow readers", "deaf waiters"], few=1))
def test_planted_limits_that_are_too_large_are_noticed(name: str) -> None:
    assert not abuse_broker(name, small=True, is_planted=True)


@dataclass(frozen=True)
class AbusedNameServer:
    """As much of a target as an abuse needs."""

    port: int
    size: int


def put_and_get(wire: RawClient, value: str) -> None:
    """Change the key-value configuration, which is a file, and read it."""
    place = {"namespace": "honest", "key": "k"}
    head, _ = wire.call(PUT_KV_CONFIG, {**place, "value": value})
    assert head.code == 0, head.remark
    head, _ = wire.call(GET_KV_CONFIG, place)
    assert head.extFields["value"] == value


@pytest.mark.parametrize(
    ("abuse", "size", "options"),
    [
        pytest.param(abuses.silent_connections, 1_300, (), marks=pytest.mark.slow),
        (abuses.half_frames, 8, ("--limit-max-unfinished", "64MiB")),
    ],
    ids=["silent connections", "half frames"],
)
def test_an_abused_name_server_serves_honest_clients_and_saves_what_they_say(
    abuse: Callable[[abuses.Target], AbstractContextManager[None]],
    size: int,
    options: tuple[str, ...],
    tmp_path: Path,
) -> None:
    allow_open_files(size + 500)
    kept = tmp_path / "kvConfig.json"
    options = (*options, "--kv-config-path", str(kept))
    server = NameServerProcess(tmp_path, options=options, prefix=with_open_files(1_024, 1_024))
    try:
        with RawClient(server.port) as standing:
            put_and_get(standing, "before")
            with abuse(AbusedNameServer(server.port, size)):
                put_and_get(standing, "meanwhile")
                with RawClient(server.port) as fresh:
                    put_and_get(fresh, "on a new connection")
            put_and_get(standing, "afterwards")
        assert json.loads(kept.read_text())["configTable"]["honest"]["k"] == "afterwards"
        assert server.memory_bytes() < 250_000_000
    finally:
        server.close()
