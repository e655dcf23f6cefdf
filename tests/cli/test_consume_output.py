"""`sparrowmq consume`: messages for people, for programs and as bytes; and when none come."""

import asyncio
import json
from pathlib import Path
from zlib import crc32

import pytest

from sparrowmq.cli.commands.consume import Showing, show, showing_consumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.testing import Cluster
from sparrowmq.testing.sim_cluster import SimCluster
from tests.cli.in_process import Ran, run
from tests.cli.servers import sparrowmq
from tests.client.members import GROUP, TOPIC, create_topic, send


@pytest.fixture
def at(request: pytest.FixtureRequest, sparrowmq_session_cluster: Cluster) -> list[str]:
    """A topic of the test's own, and where it is."""
    topic = f"shown-{crc32(request.node.name.encode()):08x}"
    return [topic, "--name-servers", sparrowmq_session_cluster.name_server]


def consumed(at: list[str], *flags: str) -> Ran:
    return run("consume", *at, "--group", f"of-{at[0]}", *flags)


def test_as_json_a_message_is_an_object_with_all_fields(at: list[str]) -> None:
    flags = ("--tag", "paid", "--key", "o-1", "--key", "o-2", "--property", "region=eu")
    sent = run("send", *at, "zwei\nZeilen ü", *flags)
    assert sent.returncode == 0, sent.stderr
    ended = consumed(at, "--json", "--count", "1")
    document = json.loads(ended.stdout)
    assert ended.stdout.count("\n") == 1
    assert document.pop("id") in sent.stdout
    assert document.pop("born") <= document.pop("stored")
    assert document.pop("broker") in sent.stdout
    assert document.pop("queue") >= 0
    assert document["properties"]["region"] == "eu"
    assert document.pop("properties").keys() >= {"UNIQ_KEY", "TAGS", "KEYS"}
    assert document == {
        "topic": at[0],
        "offset": 0,
        "tag": "paid",
        "keys": ["o-1", "o-2"],
        "attempts": 1,
        "body": "zwei\nZeilen ü",
    }


def test_as_json_a_body_that_is_not_text_is_in_base64(at: list[str], tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\x00")
    assert run("send", *at, "--file", str(tmp_path / "body")).returncode == 0
    document = json.loads(consumed(at, "--json", "--count", "1").stdout)
    assert document["body_base64"] == "/wA="
    assert "body" not in document


def test_raw_bodies_are_lines_and_a_single_one_is_its_bytes(at: list[str]) -> None:
    for body in ("a", "b", "c\x1b"):
        assert run("send", *at, body, "--sharding-key", "k").returncode == 0
    assert consumed(at, "--raw", "--count", "2").stdout == "a\nb\n"
    assert consumed(at, "--raw", "--count", "1").stdout == "c\x1b"


def test_two_forms_exclude_each_other() -> None:
    refused = run("consume", "orders", "--group", "g", "--json", "--raw")
    assert refused.returncode == 2
    assert "--json and --raw cannot be combined" in refused.stderr


def test_a_timeout_with_fewer_messages_than_requested_is_reported(at: list[str]) -> None:
    assert run("topic", "create", *at).returncode == 0
    ended = consumed(at, "--timeout", "100ms", "--count", "2")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "sparrowmq: 0 of 2 messages came in time\n"
    assert consumed(at, "--timeout", "100ms").returncode == 0


def test_a_topic_that_never_comes_is_named_before_the_time_is_up(at: list[str]) -> None:
    topic, *name_servers = at
    ended = sparrowmq("consume", topic, "--group", "g", "--timeout", "1s", *name_servers)
    assert ended.returncode == 0
    assert f"topic {topic} does not exist and is waited for" in ended.stderr


@pytest.mark.parametrize("text", ["0s", "-1s", "soon"])
def test_a_time_that_cannot_be_waited_is_refused(text: str) -> None:
    refused = run("consume", "orders", "--group", "g", "--timeout", text)
    assert refused.returncode == 2
    assert f"{text!r}: must be " in refused.stderr


def test_the_time_begins_again_with_every_message() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        client = sim.client_on("member", routes)
        consumer = showing_consumer(
            GROUP,
            {TOPIC: "*"},
            client=client,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            threads=InlineWorkers(),
        )
        showing = Showing(None, lambda text: None)

        async def consume() -> None:
            await client.start()
            async with consumer:
                await show(consumer, showing, asyncio.Event(), idle_s=10)
            await client.stop()

        task = sim.host("member").start(consume())
        for _ in range(4):
            sim.advance(8)
            send(sim, b"one more")
        sim.advance(9)
        assert not task.done()
        sim.advance(9)
        assert task.done()
        assert showing.seen == 4
