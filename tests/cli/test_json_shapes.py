"""docs/operate.md lists the keys of everything that `--json` prints, and those are its keys."""

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest

from sparrowmq.blocking import PushConsumer
from sparrowmq.broker.config import ReplicationMode
from sparrowmq.cli.main import app
from sparrowmq.disk.real_disk import RealDisk
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.cli.silent_broker import refusing_broker
from tests.cli.test_operate_document import options, section
from tests.faults.store_run import LAYOUT, StoreRun
from tests.patience import PATIENCE_S
from tests.transcripts.stage import Stage
from tests.transcripts.test_commands import SERVERS, leaves

ALWAYS = ("truncated", "errors")
SOMETIMES = ("isComplete",)
"""Beside sums over brokers."""
STREAMS = (
    *("send", "consume", "message tail", "store dump"),
    *("pipeline archive query", "pipeline dead-letters billing"),
)
ESTIMATES = ("bytesIsExact", "matchingIsExact")
OF_ITS_OWN = {"config show"}
"""Documented and tested with its settings."""

TWO_BROKERS = ("broker drain", "broker resume", "topic spread")
"""They need another cluster: `test_drain_document` has them."""
WITH_SLAVES = ("broker promote", "broker demote", "slave", "topic route copied")
WITH_MEMBERS = ("group", "message", "consume", "dlq", "doctor", "rebalance")
ON_SPARK = ("pipeline", "spark package")
"""tests/spark/jobs/test_command_output and tests/spark/test_package have them."""
ELSEWHERE = (*TWO_BROKERS, *WITH_SLAVES, *WITH_MEMBERS, *ON_SPARK, "migrate", "store")


def shapes() -> dict[str, str]:
    """What the table lists, by command."""
    rows = re.findall(r"^\| `([^`]+)` \| (.+?) \|$", section("Shapes of JSON"), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def listed(nouns: Sequence[str]) -> list[str]:
    """The commands of the table that begin with one of these."""
    return [each for each in shapes() if each.startswith(tuple(f"{noun}" for noun in nouns))]


def shape(command: str, printed: str) -> str:
    """The keys of a document, and of the objects in its lists."""
    if _is_stream(command):
        return ", ".join(json.loads(printed.splitlines()[0]))
    document = json.loads(printed)
    assert all(key in document for key in ALWAYS), command
    besides = (*ALWAYS, *SOMETIMES)
    facts = [each for each in document if each not in besides and not _is_table(document, each)]
    parts = [", ".join(facts)] if facts else []
    for key, rows in document.items():
        if key not in besides and _is_table(document, key):
            assert rows, f"{command}: {key} has no row whose keys could be compared"
            (keys,) = {tuple(each for each in row if each not in ESTIMATES) for row in rows}
            parts.append(f"{key}: {', '.join(keys)}")
    return "; ".join(parts)


def _is_stream(command: str) -> bool:
    return command.startswith(STREAMS) and "--send-back" not in command


def _is_table(document: dict[str, Any], key: str) -> bool:
    return isinstance(document[key], list) and key != "type"


def test_every_command_with_json_has_a_shape_that_is_listed() -> None:
    found = {words for words in leaves(app, (), click.Context(app)) if "--json" in options(words)}
    known = [f"{each} " for each in shapes()]
    missing = {words for words in found if not any(each.startswith(f"{words} ") for each in known)}
    assert missing == (SERVERS | OF_ITS_OWN) & found


def test_every_command_that_answers_has_json() -> None:
    without = {
        words for words in leaves(app, (), click.Context(app)) if "--json" not in options(words)
    }
    assert without == {"completion", "store dump"}  # a dump is JSON unless --table is given


# ---- a cluster, and what it knows about itself


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


@pytest.mark.parametrize("command", [each for each in shapes() if not each.startswith(ELSEWHERE)])
def test_json_has_the_shape_that_is_listed(
    command: str, running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    at = ("--name-servers", running.name_server)
    if command.startswith("context"):
        if not command.startswith("context add"):
            for name in ("shop", "depot"):
                assert run("context", "add", name, "-n", "10.0.0.1:9876").returncode == 0
            assert run("context", "use", "shop").returncode == 0
        at = ()  # type: ignore[assignment]  # these name no cluster
    with ExitStack() as stack:
        if command == "client list":
            consumer = PushConsumer("billing", {"orders": "*"}, name_servers=running.name_server)
            stack.enter_context(consumer).start(lambda messages: None)
        ended = run(*shlex.split(command), "--json", *at)
    assert ended.returncode == 0, ended.stderr
    if not _is_stream(command):
        document = json.loads(ended.stdout)
        assert (document["truncated"], document["errors"]) == (False, [])
    assert shape(command, ended.stdout) == shapes()[command]


# ---- separate clusters


def test_groups_messages_and_dead_letters_have_the_shapes_that_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with cluster() as running, ExitStack() as stack:
        at = ("--name-servers", running.name_server, "--timeout", f"{PATIENCE_S}s")

        def ask(command: str, *more: str) -> Ran:
            return run(*shlex.split(command), *at, *more, cwd=tmp_path)

        stage = Stage(running, stack)
        assert ask("topic create orders --queues 2").returncode == 0
        stage.follow("dead letter of spoiled in orders: order 1")
        stage.follow("member of billing in orders")
        for command in (
            "group create audit",
            "group reset audit --topic orders --to earliest --yes",
            "group pause billing --topic orders",  # a finding to show
            "send orders x --count 3",
        ):
            assert ask(command).returncode == 0, command
        member = json.loads(ask("group members billing", "--json").stdout)["members"][0]
        (letter,) = json.loads(ask("dlq show spoiled", "--json").stdout)["items"]
        known = {"CLIENT": member["client"], "ID": letter["id"]}
        for command in listed(WITH_MEMBERS):
            words = re.sub(r"\b(CLIENT|ID)\b", lambda found: known[found[0]], command)
            with ExitStack() as meanwhile:
                if command == "doctor group billing":  # so that a check is not made
                    broken = refusing_broker(running.name_server, "broker-z", "no", "orders")
                    meanwhile.enter_context(broken)
                ended = _asked(words, at, tmp_path)
            assert ended.returncode == (1 if command == "doctor group billing" else 0), ended.stderr
            assert shape(command, ended.stdout) == shapes()[command], command


def _asked(words: str, at: Sequence[str], folder: Path) -> Ran:
    where = () if words.startswith("rebalance simulate --queues") else at
    if words.startswith("consume"):
        where = at[:2]  # its --timeout says how long to wait for a message
    return run(*shlex.split(words), *where, "--json", cwd=folder)


def test_slaves_have_the_shapes_that_are_listed() -> None:
    with cluster(slaves=1, replication=ReplicationMode.SYNC) as running:
        running.create_topic("copied", queues=1)
        at = ("--name-servers", running.name_server)
        for command in sorted(listed(WITH_SLAVES), key=lambda each: each.startswith("slave")):
            if command.startswith("slave retire"):
                running.stop_broker("broker-a.1")
            words = command.replace("promote broker-a --yes", "promote broker-a --dry-run")
            ended = run(*shlex.split(words), *at, "--json")
            assert ended.returncode == 0, ended.stderr
            assert shape(command, ended.stdout) == shapes()[command], command


def test_a_move_has_the_shapes_that_are_listed() -> None:
    with cluster() as source, cluster() as target:
        at = ("--name-servers", source.name_server)
        assert run("topic", "create", "orders", *at).returncode == 0
        for command in listed(("migrate",)):
            words = command.replace("FROM", source.name_server).replace("TO", target.name_server)
            ended = run(*shlex.split(words), "--json")
            assert ended.returncode == 0, ended.stderr
            assert shape(command, ended.stdout) == shapes()[command], command


def test_stores_have_the_shapes_that_are_listed(tmp_path: Path) -> None:
    sizes = ("--index-slots", str(LAYOUT.slots), "--index-entries", str(LAYOUT.entries))
    store = StoreRun(RealDisk(tmp_path / "data"), Random(5), sync_flush=False)
    for _ in range(30):
        store.step()
    store.store.close()
    dump, repair = "store dump data --limit 1", "store repair data --dry-run"
    verify, rebuild = "store verify data", "store rebuild data"
    table, follow = "store rebuild data --table topics.json", "store follow slave-data --yes"
    # The last one is in `test_store_follow`
    assert listed(("store",)) == [repair, verify, rebuild, table, follow, dump]
    dumped = run(*shlex.split(dump), cwd=tmp_path)
    assert shape(dump, dumped.stdout) == shapes()[dump].replace("body", "bodyBase64")
    log = tmp_path / "data" / "commitlog" / "00000000000000000000"
    data = log.read_bytes()
    log.write_bytes(data[:150] + b"\xee" * 40 + data[190:])
    found = run(*shlex.split(repair), *sizes, "--json", cwd=tmp_path)
    assert found.returncode == 1
    assert shape(repair, found.stdout) == shapes()[repair]
    # Of indexes of another size verify says that they were not checked
    for command, more in ((verify, ()), (rebuild, sizes), (table, ())):
        if command == table:  # only a table that is lost is made again
            for path in (tmp_path / "data" / "config").glob("topics.json*"):
                path.unlink()
        done = run(*shlex.split(command), *more, "--json", cwd=tmp_path)
        assert done.returncode == (0 if command == table else 1), done.stderr
        assert shape(command, done.stdout) == shapes()[command]
