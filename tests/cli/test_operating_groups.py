"""docs/operate.md on groups, messages and dead letters: its commands run as pasted."""

import json
import re
import shlex
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from sparrowmq import Message, MessageExt
from sparrowmq.blocking import Admin, Producer, PushConsumer
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.cli.test_operate_document import TEXT, commands
from tests.patience import PATIENCE_S

TASKS = {
    "A group does not move": 7,
    "Replay yesterday": 4,
    "A poison message": 6,
    "Dead letters": 5,
}
"""The pages and their numbers of commands."""


@pytest.fixture(scope="module")
def prepared() -> Iterator[Cluster]:
    """A group with one dead letter, and another that has read the message."""
    with cluster() as running:
        servers = running.name_server
        with Admin(servers, timeout_s=PATIENCE_S) as admin:
            admin.create_topic("orders", queues=1)
            admin.create_group("billing", retries=0)
        with Producer("shop", name_servers=servers) as producer:
            producer.send(Message("orders", b"order 1", tags="paid", keys="o-1"))
        for group, fails in (("billing", True), ("audit", False)):
            came = threading.Event()

            def handle(
                messages: Sequence[MessageExt], came: threading.Event = came, fails: bool = fails
            ) -> None:
                came.set()
                if fails:
                    raise ValueError("poison")

            with PushConsumer(
                group,
                {"orders": "*"},
                name_servers=servers,
                from_where="FIRST_OFFSET",
                max_reconsume_times=0,
            ) as consumer:
                consumer.start(handle)
                assert came.wait(PATIENCE_S)
        yield running


def ask(running: Cluster, folder: Path, *arguments: str) -> Ran:
    at = ("--name-servers", running.name_server, "--timeout", f"{PATIENCE_S}s")
    return run(*arguments, *at, cwd=folder, XDG_STATE_HOME=str(folder / "state"))


def paste(title: str, running: Cluster, folder: Path) -> dict[str, str]:
    """What each command of a page prints."""
    printed = {}
    pasted = commands(title)
    assert len(pasted) == TASKS[title]
    for command in pasted:
        ran = ask(running, folder, *shlex.split(command))
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        printed[command] = ran.stdout
    return printed


@pytest.mark.parametrize("title", ["Replay yesterday", "Dead letters"])
def test_the_commands_run_as_pasted(title: str, prepared: Cluster, tmp_path: Path) -> None:
    printed = paste(title, prepared, tmp_path)
    if title == "Dead letters":
        assert "\tsent\t" in printed["dlq resend billing --all --yes"]
        assert json.loads((tmp_path / "billing.jsonl").read_text())["body"] == "order 1"


class OrderlyMember:
    """Fails on one message again and again, so that the queue does not move."""

    def __init__(self) -> None:
        self.has_failed = threading.Event()
        self.went_on = threading.Event()

    def handle(self, messages: Sequence[MessageExt]) -> None:
        if messages[0].text() == "order 1":
            self.has_failed.set()
            raise ValueError("poison")
        self.went_on.set()


def column(table: str, name: str) -> list[str]:
    """The cells of a column."""
    header, *rows = (line.split("\t") for line in table.splitlines())
    return [row[header.index(name)] for row in rows]


def test_a_group_that_stands_before_a_poison_message_goes_on_after_a_reset(tmp_path: Path) -> None:
    with cluster() as running:
        servers = running.name_server
        with Admin(servers, timeout_s=PATIENCE_S) as admin:
            admin.create_topic("orders", queues=1)
            admin.create_group("audit")
            admin.reset_offsets("audit", "orders", "latest")
        with Producer("shop", name_servers=servers) as producer:
            for number in (1, 2):
                producer.send(Message("orders", b"order %d" % number, keys=f"o-{number}"))
        member = OrderlyMember()
        with PushConsumer(
            "billing",
            {"orders": "*"},
            name_servers=servers,
            from_where="FIRST_OFFSET",
            orderly=True,
            suspend_s=0.05,
        ) as consumer:
            consumer.start(member.handle)
            assert member.has_failed.wait(PATIENCE_S)
            moves = paste("A group does not move", running, tmp_path)
            lag, listed = moves["group lag billing"], moves["group members billing"]
            assert column(lag, "QUEUE") == ["broker-a/0"]
            assert column(lag, "LAG") == ["2"]
            assert column(lag, "OWNER") == column(listed, "CLIENT") != [""]
            assert not member.went_on.is_set()
            poison = paste("A poison message", running, tmp_path)
            assert column(poison["group lag billing --by queue"], "OWNER") == column(lag, "OWNER")
            (past,) = (text for command, text in poison.items() if command.endswith("+1 --yes"))
            assert (column(past, "WAS"), column(past, "NOW")) == (["0"], ["1"])
            assert column(past, "OWNER") == column(lag, "OWNER")
            assert member.went_on.wait(PATIENCE_S)
        assert column(ask(running, tmp_path, "group", "lag", "billing").stdout, "LAG") == ["0"]


def test_every_page_about_groups_is_pasted() -> None:
    text = TEXT[TEXT.index("\n## A group does not move") :]
    assert re.findall(r"^## (.+)", text, re.MULTILINE) == list(TASKS)
