"""docs/operate.md: its tasks run as pasted. The shapes of JSON are in `test_json_shapes`."""

import re
import shlex
from pathlib import Path

import pytest

from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operate.md").read_text("utf-8")


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
