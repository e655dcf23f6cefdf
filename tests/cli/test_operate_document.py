"""docs/operate.md: its tasks run as pasted, and JSON has the shapes that it lists."""

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.blocking import PushConsumer
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operate.md").read_text("utf-8")
ALWAYS = ("truncated", "errors")


def section(title: str) -> str:
    """The text below a heading."""
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def commands(title: str) -> list[str]:
    """The commands of a task, in their order, as they would be pasted."""
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```", section(title), re.MULTILINE | re.DOTALL)
    lines = (line.strip() for block in blocks for line in block.splitlines())
    return [line.removeprefix("sparrowmq ") for line in lines if line]


def pasted(command: str, running: Cluster) -> Ran:
    ended = run(*shlex.split(command.replace("127.0.0.1:9876", running.name_server)))
    assert ended.returncode == 0, f"{command}\n{ended.stderr}"
    return ended


@pytest.fixture(autouse=True)
def own_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)


def test_look_around_a_cluster() -> None:
    with cluster(brokers=2) as running:
        running.create_topic("orders", queues=2)
        for command in commands("Look around a cluster"):
            ended = pasted(command, running)
            if command.startswith(("topic list", "topic stats", "topic show")):
                assert re.search("orders|broker-a/0", ended.stdout), command


# ---- shapes


def shapes() -> dict[str, str]:
    """What the table lists, by command."""
    rows = re.findall(r"^\| `([^`]+)` \| (.+?) \|$", section("Shapes of JSON"), re.MULTILINE)
    return dict(rows)


def shape(document: dict[str, Any]) -> str:
    """The keys of a document, and of the objects in its lists."""
    parts = []
    is_table = {key: isinstance(value, list) and key != "type" for key, value in document.items()}
    facts = [key for key in document if key not in ALWAYS and not is_table[key]]
    if facts:
        parts.append(", ".join(facts))
    for key, rows in document.items():
        if key not in ALWAYS and is_table[key]:
            assert rows, f"{key} has no row whose keys could be compared"
            keys = dict.fromkeys(name for row in rows for name in row if name != "bytesIsExact")
            parts.append(f"{key}: {', '.join(keys)}")
    return "; ".join(parts)


TWO_BROKERS = ("broker drain", "broker resume", "topic spread")
"""They need another cluster: `test_drain_document` has them."""
WITH_SLAVES = ("broker promote",)
"""`test_broker_roles` has them."""
MINE = [
    each
    for each in shapes()
    if each.split()[0]
    in ("cluster", "broker", "nameserver", "topic", "client", "quota", "send", "context")
    and not each.startswith((*TWO_BROKERS, *WITH_SLAVES))
]


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """With a topic whose last queue has unread messages, a group, and a key."""
    with cluster() as started:
        at = ("--name-servers", started.name_server)
        assert run("topic", "create", "orders", "--queues", "2", *at).returncode == 0
        assert run("send", "orders", "x", "--count", "4", *at).returncode == 0
        one = ("consume", "orders", "--group", "billing", "--count", "1")
        assert run(*one, *at).returncode == 0
        for key, value in (("region", "eu"), ("country", "de")):
            assert run("nameserver", "kv", "set", "SHOP", key, value, *at).returncode == 0
        yield started


@pytest.mark.parametrize("command", MINE)
def test_json_has_the_shape_that_is_listed(command: str, running: Cluster) -> None:
    words = shlex.split(command)
    if words[0] == "context":
        assert run("context", "add", "shop", "-n", "10.0.0.1:9876").returncode == 0
        assert run("context", "use", "shop").returncode == 0
        ended = run(*words, "--json")
    elif words[0] == "client":
        with PushConsumer("billing", {"orders": "*"}, name_servers=running.name_server) as consumer:
            consumer.start(lambda messages: None)
            ended = run(*words, "--json", "--name-servers", running.name_server)
    else:
        ended = run(*words, "--json", "--name-servers", running.name_server)
    document = json.loads(ended.stdout)
    is_stream = words[0] == "send"
    assert is_stream or (document["truncated"], document["errors"]) == (False, [])
    assert shape(document) == shapes()[command]
