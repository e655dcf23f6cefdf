"""Every commands/*.txt: commands against a separate cluster, and the output of each."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from sparrowmq.cli.main import app
from sparrowmq.cli.server_group import ServerGroup
from tests.transcripts.command_line import printed, ran
from tests.transcripts.stage import Stage, cluster_of

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent / "commands"
STORIES = sorted(HERE.glob("*.txt"))

ON_SPARK = {
    "pipeline archive": "tests/spark/jobs/test_command_output.py",
    "pipeline archive compact": "tests/spark/jobs/test_command_output.py",
    "pipeline archive query": "tests/spark/jobs/test_command_output.py",
    "pipeline dead-letters": "tests/spark/jobs/test_command_output.py",
    "pipeline drain": "tests/spark/jobs/test_command_output.py",
    "pipeline replay": "tests/spark/jobs/test_command_output.py",
    "spark package": "tests/spark/test_package.py",
}
"""Commands without a transcript, and the test that compares their output: they need a Spark session
or its executors' packages, which tests in tests/spark share."""
SERVERS = {"up", "broker run", "nameserver run", "console"}
TAKES_PART = {"send", "consume"}
"""Commands that are clients: what they print is one line a message (docs/operate.md)."""
LOCAL = {"context", "store", "completion", "config", "spark"}
LOOKING = {
    *("list", "show", "route", "stats", "lag", "members", "subscriptions", "get", "tail"),
    *("trace", "health", "explain", "simulate", "plan", "doctor", "export"),
}
"""Nouns and verbs that change no cluster."""


def retold(story: str, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The story with what is printed now below each command; its comments stay. `{id}` in a command
    is the last message id that was printed, `{member}` the last client id, `{name_server}` an
    address, `{second}` that of a second cluster."""
    known = {"id": "", "member": "", "name_server": stage.name_server}
    for line in story.splitlines():
        if line.startswith(("#", "@", ">", "$")) or not line.strip():
            yield line
        if line.startswith("@"):
            stage.follow(line[1:].strip())
        if line.startswith((">", "$")):
            known["second"] = stage.second
            words = re.sub(r"\{(\w+)\}", lambda found: known[found[1]], line)
            ended = ran(words, monkeypatch)
            for name, pattern in _IDS.items():
                known[name] = next(iter(re.findall(pattern, ended.stdout)), known[name])
            yield from printed(line, ended)


_IDS = {"id": r"\b[0-9A-F]{32}\b", "member": r"\b127\.0\.0\.1@\d+#\d+"}


SLOW = {"parted", "servers", "stacks"}
"""Those with many servers or a process of their own. Faster tests of the same commands are in
tests/cli: test_store_follow, test_processes, test_group_commands."""


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=[pytest.mark.slow] * (path.stem in SLOW))
        for path in STORIES
    ],
)
def test_a_command_prints_the_output_of_the_transcript(
    path: Path, updates: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = path.read_text("utf-8")
    with cluster_of(story) as running, ExitStack() as stack:
        monkeypatch.setenv("SPARROWMQ_NAME_SERVERS", running.name_server)
        monkeypatch.setenv("XDG_CONFIG_HOME", "transcripts-config")
        monkeypatch.setenv("XDG_STATE_HOME", "transcripts-state")
        monkeypatch.chdir(tmp_path)
        stage = Stage(running, stack)
        now = "\n".join(retold(story, stage, monkeypatch)) + "\n"
    if updates:
        path.write_text(now, "utf-8")
    assert now.splitlines() == path.read_text("utf-8").splitlines()


def leaves(command: click.Command, words: tuple[str, ...], above: click.Context) -> Iterator[str]:
    """The words of every command: of those that are not groups, and of groups that do something
    themselves. Servers count by their verb `run`."""
    if not isinstance(command, click.Group):
        yield " ".join(words)
        return
    if command.invoke_without_command and not isinstance(command, ServerGroup):
        yield " ".join(words)
    context = click.Context(command, info_name=words[-1] if words else None, parent=above)
    for name in command.list_commands(context):
        below = command.get_command(context, name)
        assert below is not None
        yield from leaves(below, (*words, name), context)


class Run(NamedTuple):
    """A command of a transcript, and what it printed."""

    line: str
    printed: list[str]

    @property
    def is_done(self) -> bool:
        """Whether it ended with 0, and was no dry run."""
        ended = any(each.startswith("(exit ") for each in self.printed)
        return not (ended or "--dry-run" in self.line)


def runs_of(words: str) -> list[Run]:
    """The runs of a command in all transcripts."""
    found: list[Run] = []
    for path in STORIES:
        for line in path.read_text("utf-8").splitlines():
            if line.startswith((">", "$")):
                found.append(Run(f"{line[1:].strip()} ", []))
            elif found:
                found[-1].printed.append(line.strip())
    return [each for each in found if each.line.startswith(f"{words} ")]


def every_command() -> set[str]:
    return set(leaves(app, (), click.Context(app)))


def test_every_command_has_a_transcript_in_which_it_does_its_work() -> None:
    missing = {
        words for words in every_command() if not any(each.is_done for each in runs_of(words))
    }
    assert missing == ON_SPARK.keys()


def test_commands_without_a_transcript_have_another_test_of_their_output() -> None:
    for words, test in ON_SPARK.items():
        text = (ROOT / test).read_text("utf-8")
        assert words in text.replace('", "', " "), words


def test_every_command_that_changes_a_cluster_names_it() -> None:
    changing = {
        words
        for words in every_command() - ON_SPARK.keys() - TAKES_PART - SERVERS
        if words.split()[0] not in LOCAL and words.split()[-1] not in LOOKING
    }
    named = {
        words
        for words in changing
        for each in runs_of(words)
        if any(re.match(r"! .*\(name servers ADDRESS", line) for line in each.printed)
    }
    assert changing - named == set()
    assert {"topic create", "group undo", "broker demote", "message deliver"} <= changing
