"""Requests about every topic that a broker may have never stop a name server."""

import asyncio
import json
import logging
from pathlib import Path

from sparrowmq.net.peers import Peers
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.nameserver import (
    AddWritePerm,
    GetAllTopics,
    GetTopicsByCluster,
    RegisterBroker,
    UnregisterBroker,
    WipeWritePerm,
)
from sparrowmq.protocol.registration import body_checksum
from sparrowmq.testing.loop_watchdog import LIMIT_MS
from tests.faults.nameserver_outage_servers import NameServerProcess
from tests.nameserver.world import registration
from tests.patience import PATIENCE_S

PROMISED_TOPICS = 10_000
"""As many as a broker creates by default. A name server takes up to 50,000 of one broker, and is
held for longer by such a registration."""
TOPICS = tuple(f"topic-{number}" for number in range(PROMISED_TOPICS))


def register(name: str, topics: tuple[str, ...], counter: int) -> tuple[RequestHeader, bytes]:
    body = registration(topics, DataVersion(timestamp=counter, counter=counter), compressed=True)
    header = RegisterBroker(
        cluster_name="c",
        broker_name=name,
        broker_id=0,
        broker_addr=f"{name}:10911",
        ha_server_addr=f"{name}:10912",
        compressed=True,
        body_crc32=body_checksum(body),
    )
    return header, body


LARGE_REQUESTS: dict[str, tuple[RequestHeader, bytes]] = {
    "register": register("a", TOPICS, 1),
    "register again, changed": register("a", TOPICS[1:], 2),
    "register another with the same topics": register("b", TOPICS, 1),
    "all topics": (GetAllTopics(), b""),
    "topics of a cluster": (GetTopicsByCluster(cluster="c"), b""),
    "stop writing": (WipeWritePerm(broker_name="a"), b""),
    "write again": (AddWritePerm(broker_name="a"), b""),
    "leave": (
        UnregisterBroker(cluster_name="c", broker_name="a", broker_id=0, broker_addr="a:10911"),
        b"",
    ),
}


def test_no_large_request_holds_a_name_servers_loop(tmp_path: Path) -> None:
    async def ask_all(address: str) -> list[int]:
        async with asyncio.TaskGroup() as tasks:
            peers = Peers(tasks, log=logging.getLogger("operator"))
            answers = [
                await peers.call(address, header, body, timeout_s=PATIENCE_S)
                for header, body in LARGE_REQUESTS.values()
            ]
            await peers.close()
            return [answer.code for answer in answers]

    stalls = tmp_path / "stalls"
    server = NameServerProcess(tmp_path, stalls=stalls)
    try:
        assert asyncio.run(ask_all(server.address)) == [0] * len(LARGE_REQUESTS)
        found = stalls.read_text("utf-8").splitlines() if stalls.exists() else []
        # A name server waits for no disk here: what counts is what its loop computes.
        assert [each for each in found if json.loads(each)["cpu_ms"] >= LIMIT_MS] == []
    finally:
        server.close()
