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
from tests.patience import PATIENCE_S

_DOCUMENT = (Path(__file__).parents[2] / "docs" / "operate.md").read_text("utf-8")
TEXT = _DOCUMENT[_DOCUMENT.index("\n## A group does not move") :]
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


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


def test_the_commands_run_as_pasted(prepared: Cluster, tmp_path: Path) -> None:
    assert len(COMMANDS) == 22
    printed = {}
    for command in COMMANDS:
        program, *arguments = shlex.split(command)
        assert program == "sparrowmq"
        ran = ask(prepared, tmp_path, *arguments)
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
        printed[command] = ran.stdout
    assert "\tsent\t" in printed["sparrowmq dlq resend billing --all --yes"]
    assert json.loads((tmp_path / "billing.jsonl").read_text())["body"] == "order 1"
