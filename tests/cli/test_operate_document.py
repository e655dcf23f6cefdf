"""docs/operate.md: its tasks run as pasted. The shapes of JSON are in `test_json_shapes`."""

import re
import shlex
from pathlib import Path

import click
import pytest

from sparrowmq.cli.main import app
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run
from tests.transcripts.test_commands import leaves

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "operate.md").read_text("utf-8")


def section(title: str) -> str:
    """The text below a heading."""
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def options(words: str) -> set[str]:
    """The options of a command."""
    command: click.Command = app
    for word in words.split():
        assert isinstance(command, click.Group)
        below = command.get_command(click.Context(command), word)
        assert below is not None
        command = below
    return {option for each in command.params for option in each.opts}


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


def test_the_first_table_lists_every_command_with_its_verbs() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \|$", TEXT.split("## Rules")[0], re.MULTILINE)[1:]
    listed = {
        noun: re.findall(r"`([^`]+)`", verbs)
        for nouns, verbs in rows
        for noun in re.findall(r"`(\w+)`", nouns) or ["–"]
    }
    own = {each.split()[0] for each in listed.pop("–")}
    assert listed.keys() | own == set(app.list_commands(click.Context(app)))
    for noun, listed_verbs in listed.items():
        below = {
            each for each in leaves(app, (), click.Context(app)) if each.startswith(f"{noun} ")
        }
        verbs = {each.removeprefix(f"{noun} ") for each in below} - {"run"}
        assert set(listed_verbs) in (verbs, set()), noun


def test_the_commands_that_watch_are_listed() -> None:
    found = {words for words in leaves(app, (), click.Context(app)) if "--watch" in options(words)}
    line = next(line for line in TEXT.splitlines() if line.startswith("**Watching.**"))
    assert set(re.findall(r"`(\w+ \w+)`", line)) == found


def test_look_around_a_cluster() -> None:
    with cluster(brokers=2) as running:
        running.create_topic("orders", queues=2)
        for command in commands("Look around a cluster"):
            ended = pasted(command, running)
            if command.startswith(("topic list", "topic stats", "topic show")):
                assert re.search("orders|broker-a/0", ended.stdout), command
