"""`--dry-run`: a command shows what it would do, reports that it did nothing, and did nothing."""

import json
import shlex
import threading
from collections.abc import Iterator, Sequence

import pytest

from sparrowmq import MessageExt
from sparrowmq.blocking import PushConsumer
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.patience import PATIENCE_S

DRY_RUNS = [
    ("group delete billing", "BROKER\tRESULT\nbroker-a\twould be deleted\n"),
    ("group delete billing --keep-offsets", "BROKER\tRESULT\nbroker-a\twould be deleted\n"),
    ("group create audit", "BROKER\tRESULT\nbroker-a\twould be created\n"),
    ("group create billing", "BROKER\tRESULT\nbroker-a\tthere already\n"),
    ("group pause billing", "BROKER\tRESULT\nbroker-a\twould be paused\n"),
    ("group pause billing --topic orders", "BROKER\tRESULT\nbroker-a\twould be paused\n"),
    ("group resume billing", "BROKER\tRESULT\nbroker-a\tnot paused\n"),
    ("group resume billing --topic orders", "BROKER\tRESULT\nbroker-a\tnot paused\n"),
    ("topic create invoices --queues 3", "BROKER\tQUEUES\nbroker-a\t3\n"),
    ("topic create invoices", "BROKER\tQUEUES\nbroker-a\t8\n"),
    ("topic create orders", "BROKER\tQUEUES\nbroker-a\t2\n"),
    ("broker clean broker-a --log --queues", "WHAT\tDELETED\nlog\t?\nqueues\t?\n"),
    ("nameserver kv set SHOP region us", "KEY\tWAS\tNOW\nregion\teu\tus\n"),
    ("nameserver kv set SHOP country fr", "KEY\tWAS\tNOW\ncountry\t\tfr\n"),
]
REFUSED = [
    ("group delete nobody", "group nobody does not exist"),
    ("group create billing --retries 3", "group billing exists with other settings"),
    ("group pause nobody", "group nobody does not exist"),
    ("group pause billing --topic nowhere", "topic nowhere does not exist"),
    ("topic create orders --queues 5", "topic orders exists with other settings"),
    ("broker clean broker-z --log", "broker broker-z does not exist"),
]
LOOKS = (
    *("group list", "group show billing", "topic list --long", "topic show orders"),
    *("topic route orders", "nameserver kv list SHOP"),
)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster() as made:
        for command in (
            "topic create orders --queues 2",
            "group create billing",
            "group reset billing --topic orders --to latest --yes",
            "nameserver kv set SHOP region eu",
        ):
            assert ask(made, command).returncode == 0, command
        yield made


@pytest.fixture(scope="module")
def before(running: Cluster) -> list[str]:
    """What the cluster shows before the first dry run, and after each of them."""
    return looks(running)


def looks(running: Cluster) -> list[str]:
    return [ask(running, each).stdout for each in LOOKS]


def ask(running: Cluster, command: str) -> Ran:
    return run(*shlex.split(command), "--name-servers", running.name_server)


@pytest.mark.parametrize(("command", "shows"), DRY_RUNS, ids=[each for each, _ in DRY_RUNS])
def test_a_dry_run_shows_what_would_change_and_changes_nothing(
    command: str, shows: str, running: Cluster, before: list[str]
) -> None:
    ended = ask(running, f"{command} --dry-run")
    assert (ended.returncode, ended.stdout) == (0, shows), ended.stderr
    assert ended.stderr.endswith("nothing was changed: a dry run\n")
    assert looks(running) == before


@pytest.mark.parametrize(("command", "says"), REFUSED, ids=[each for each, _ in REFUSED])
def test_a_dry_run_is_refused_where_the_change_would_be(
    command: str, says: str, running: Cluster
) -> None:
    ended = ask(running, f"{command} --dry-run")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert says in ended.stderr


def test_a_dry_run_of_a_delivery_names_the_member_and_hands_over_nothing(
    running: Cluster,
) -> None:
    got: list[str] = []
    came = threading.Event()

    def handle(messages: Sequence[MessageExt]) -> None:
        got.extend(each.text() for each in messages)
        came.set()

    assert ask(running, "send orders hello --key o-1").returncode == 0
    found = json.loads(ask(running, "message get orders --key o-1 --json").stdout)["items"]
    message_id = found[0]["id"]
    with PushConsumer(
        "readers",
        {"orders": "*"},
        name_servers=running.name_server,
        from_where="FIRST_OFFSET",
    ) as consumer:
        consumer.start(handle)
        assert came.wait(PATIENCE_S)
        command = f"message deliver {message_id} --topic orders --group readers"
        ended = ask(running, f"{command} --dry-run")
        assert ended.returncode == 0, ended.stderr
        row = ended.stdout.splitlines()[1].split("\t")
        assert (row[:2], row[3:5]) == ([message_id, "readers"], ["would be delivered", ""])
        assert ended.stderr.endswith("nothing was changed: a dry run\n")
        assert ask(running, f"{command} --yes").returncode == 0
    assert got == ["hello"] * 2  # as it was read, and of the second command
