"""Any text from servers and producers is shown as it is: without a traceback, and with
no control characters for the terminal."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from sparrowmq.client.client import Client, core_of
from sparrowmq.client.config import ClientConfig
from sparrowmq.protocol.headers.send import SendMessage
from sparrowmq.protocol.names import TRACE_TOPIC
from sparrowmq.testing import cluster
from tests.cli.in_process import run
from tests.cli.silent_broker import refusing_broker
from tests.patience import PATIENCE_S

NEVER_MS = 2**63 - 1
LAST = "9999-12-31T23:59:59Z"
ODD = "broker-z"
ID = "0" * 32


async def send(name_server: str, address: str, topic: str, born_ms: int, body: bytes) -> None:
    header = SendMessage(
        producer_group="p",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=born_ms,
        flag=0,
        properties=f"UNIQ_KEY\x01{ID}\x02KEYS\x01{ID}\x02",
    )
    async with Client(ClientConfig(name_servers=(name_server,))) as client:
        answer = await core_of(client).peers.call(address, header, body, timeout_s=PATIENCE_S)
        assert answer.code == 0, answer.remark


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[str, ...]]:
    """A cluster with a message, and its trace, of the last moment that RocketMQ can write."""
    with cluster() as running:
        running.create_topic("orders", queues=1)
        at = ("--name-servers", running.name_server)
        address = json.loads(run("broker", "list", "--json", *at).stdout)["items"][0]["address"]
        asyncio.run(send(running.name_server, address, "orders", NEVER_MS, b"odd"))
        fields = ("Pub", NEVER_MS, "r", "g", "orders", ID, "", ID, "h", 3, 10**30, 0, "o")
        trace = "\x01".join(map(str, (*fields, "true"))) + "\x02"
        asyncio.run(send(running.name_server, address, TRACE_TOPIC, NEVER_MS, trace.encode()))
        yield at


@pytest.mark.parametrize(
    "command",
    [
        ("message", "get", "orders", "--queue", "broker-a/0", "--offset", "0"),
        ("message", "get", "orders", "--since", "-1h"),
        ("message", "tail", "orders", "--since", "-1h", "--count", "1"),
        ("consume", "orders", "--group", "billing", "--count", "1"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_a_time_beyond_the_calendar_is_shown_as_its_end(
    command: tuple[str, ...], at: tuple[str, ...]
) -> None:
    ended = run(*command, "--json", *at)
    assert ended.returncode == 0, ended.stderr
    assert "9999-12-31T23:59:59" in ended.stdout


def test_so_is_one_in_a_trace(at: tuple[str, ...]) -> None:
    ended = run("message", "trace", ID, "--topic", "orders", *at)
    assert ended.returncode == 0, ended.stderr
    assert [line for line in ended.stdout.splitlines() if line.startswith(f"{LAST}\tsent\t")]


def test_a_refusal_is_one_line_that_controls_no_terminal() -> None:
    remark = "\x1b[31mred\x07\r\n\tat Java.java:7"
    with (
        cluster() as running,
        refusing_broker(running.name_server, ODD, remark, "orders"),
    ):
        at = ("--name-servers", running.name_server)
        for command, code in (
            (("cluster", "show"), 3),
            (("broker", "config", "get", ODD), 1),
            (("send", "orders", "hello"), 1),
        ):
            ended = run(*command, *at)
            assert ended.returncode == code, ended.stderr
            assert ended.stderr.count("\n") == 1, ended.stderr
            assert "\\x1b[31mred\\x07 at Java.java:7" in ended.stderr
