"""A registered broker that is dead: changes continue without it and report it; exit code 3."""

import json
from collections.abc import Iterator

import pytest

from sparrowmq.testing import cluster
from tests.cli.in_process import run
from tests.cli.silent_broker import dead_broker

DEAD = "broker-z"
CHANGES = {
    "topic create": ("topic", "create", "payments"),
    "topic update": ("topic", "update", "orders", "--queues", "2"),
    "topic update, of what it is": ("topic", "update", "orders", "--queues", "1"),
    "topic update, fewer queues": ("topic", "update", "orders", "--read-queues", "1"),
    "topic delete": ("topic", "delete", "orders", "--yes"),
    "group create": ("group", "create", "audit"),
    "group update": ("group", "update", "billing", "--retries", "3"),
    "group pause": ("group", "pause", "billing"),
    "group pause in a topic": ("group", "pause", "billing", "--topic", "orders"),
    "group delete": ("group", "delete", "billing", "--yes"),
}
STRICT = {
    "reset": ("group", "reset", "billing", "--topic", "orders", "--to", "latest", "--yes"),
    "clone": ("group", "clone", "billing", "copy", "--yes"),
}


@pytest.fixture
def at() -> Iterator[tuple[str, ...]]:
    """A cluster with a topic and a group, in which one of two brokers is dead."""
    with cluster() as running:
        running.create_topic("orders", queues=1)
        at = ("--name-servers", running.name_server)
        assert run("group", "create", "billing", *at).returncode == 0
        reset = ("group", "reset", "billing", "--topic", "orders", "--to", "latest", "--yes")
        assert run(*reset, *at).returncode == 0
        with dead_broker(running.name_server, DEAD, "orders"):
            yield at


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_continues_without_the_dead_broker_and_names_it(
    change: str, at: tuple[str, ...]
) -> None:
    ended = run(*CHANGES[change], *at)
    assert ended.returncode == 3, ended.stderr
    assert ended.stdout == f"BROKER\tRESULT\nbroker-a\tdone\n{DEAD}\tnot done\n"
    assert f" on broker-a, but not on {DEAD} ({DEAD}: " in ended.stderr
    assert "when that is mended run it again" in ended.stderr


def test_programs_get_a_document_with_the_reason(at: tuple[str, ...]) -> None:
    ended = run("topic", "delete", "orders", "--yes", "--json", *at)
    assert ended.returncode == 3
    found = json.loads(ended.stdout)
    assert [each["result"] for each in found["items"]] == ["done", "not done"]
    assert [each["broker"] for each in found["errors"]] == [DEAD]
    assert run("topic", "show", "orders", *at).returncode == 1


@pytest.mark.parametrize("move", STRICT)
def test_progress_does_not_move_without_it(move: str, at: tuple[str, ...]) -> None:
    ended = run(*STRICT[move], *at)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "nothing was changed, since not all brokers answer" in ended.stderr
