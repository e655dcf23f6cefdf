"""Every commands/*.txt: commands against a separate cluster, and the output of each."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest

from sparrowmq.cli.main import app
from sparrowmq.testing import cluster
from tests.transcripts.command_line import printed, ran
from tests.transcripts.stage import Stage

HERE = Path(__file__).parent / "commands"
STORIES = sorted(HERE.glob("*.txt"))

SERVERS = {"up", "broker run", "nameserver run", "console"}
"""Run until they are stopped: tests/cli starts them as processes."""
ON_SPARK = {
    "pipeline archive compact",
    "pipeline archive query",
    "pipeline dead-letters",
    "pipeline drain",
    "pipeline replay",
    "spark package",
}
"""Need a Spark session, or its executors' packages: tests/spark runs them."""
WITH_SLAVES = {"broker promote", "broker demote", "slave retire", "store follow"}
"""Need slaves: here they are refused, and tests/cli/test_broker_roles.py sees them at work."""
MOVES = {"migrate plan", "migrate run"}
"""Need a second cluster: tests/cli/test_migrate.py."""


def retold(story: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The story with what is printed now below each command; its comments stay. `{id}` in a command
    is the last message id that was printed, `{name_server}` an address."""
    last_id = ""
    for line in story.splitlines():
        if line.startswith(("#", "@", ">", "$")) or not line.strip():
            yield line
        if line.startswith("@"):
            stage.follow(line[1:].strip())
        if line.startswith((">", "$")):
            words = line.replace("{id}", last_id).replace("{name_server}", stage.name_server)
            ended = ran(words, monkeypatch)
            last_id = next(iter(re.findall(r"\b[0-9A-F]{32}\b", ended.stdout)), last_id)
            yield from printed(line, ended)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_command_prints_the_output_of_the_transcript(
    path: Path, updates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = path.read_text("utf-8")
    with cluster(brokers=2) as running, ExitStack() as stack:
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
        monkeypatch.setenv("XDG_CONFIG_HOME", "transcripts-config")
        monkeypatch.setenv("XDG_STATE_HOME", "transcripts-state")
        monkeypatch.chdir(tmp_path)
        stage = Stage(running.name_server, stack)
        now = "\n".join(retold(story, stage, monkeypatch)) + "\n"
    if updates:
        path.write_text(now, "utf-8")
    assert now.splitlines() == path.read_text("utf-8").splitlines()


def leaves(command: click.Command, words: tuple[str, ...], above: click.Context) -> Iterator[str]:
    """The words of every command that is not a group."""
    if not isinstance(command, click.Group):
        yield " ".join(words)
        return
    context = click.Context(command, info_name=words[-1] if words else None, parent=above)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, (*words, name), context)


def told(*, done: bool) -> set[str]:
    """The commands that some transcript has; `done` for those that it shows at their work."""
    runs: list[tuple[str, list[str]]] = []
    for path in STORIES:
        for line in path.read_text("utf-8").splitlines():
            if line.startswith((">", "$")):
                runs.append((f"{line[1:].strip()} ", []))
            elif runs:
                runs[-1][1].append(line.strip())
    return {
        words
        for words in leaves(app, (), click.Context(app))
        for line, printed in runs
        if line.startswith(f"{words} ")
        and not (done and any(each.startswith("(exit ") for each in printed))
    }


def test_every_command_has_a_transcript() -> None:
    missing = set(leaves(app, (), click.Context(app))) - told(done=False)
    assert missing == SERVERS | ON_SPARK


def test_every_command_has_a_transcript_in_which_it_does_its_work() -> None:
    assert told(done=False) - told(done=True) == WITH_SLAVES | MOVES
