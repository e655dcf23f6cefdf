"""`--watch` repeats a command until a signal ends it; with `--json` each round is a line. Other
commands that take as long as one lets them end in the same way."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import click
import pytest

from sparrowmq.admin import admin
from sparrowmq.admin.values import Listing
from sparrowmq.cli.main import app
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import run
from tests.cli.servers import AS_A_COMMAND, clean_environment
from tests.patience import PATIENCE_S
from tests.transcripts.test_commands import leaves

WATCHED = {
    "topic show": ("orders",),
    "topic stats": ("orders",),
    "group list": (),
    "group show": ("billing",),
    "group lag": ("billing",),
    "group members": ("billing",),
    "dlq list": (),
    "cluster show": (),
    "broker list": (),
    "broker show": ("broker-a",),
    "nameserver list": (),
    "quota list": (),
    "slave list": (),
    "rebalance explain": ("billing",),
}
"""Every command that has the option, and what to look at."""
LASTING = {
    "message tail": ("news", "--since", "-1h"),
    "doctor": ("group", "billing", "--for", "1h"),
}
"""Commands that take as long as they are told to, or for ever."""
ANNOUNCED = """
import asyncio
sleep = asyncio.sleep

async def announced(seconds, *more):
    if seconds == 3600:
        print("waits", flush=True)
    return await sleep(seconds, *more)

asyncio.sleep = announced
"""
"""The doctor prints nothing between its two looks at a group."""
BOTH = (signal.SIGINT, signal.SIGTERM)


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster() as made:
        made.create_topic("orders", queues=1)
        made.create_topic("news", queues=1)
        at = ("--name-servers", made.name_server)
        assert run("group", "create", "billing", *at).returncode == 0
        reset = ("group", "reset", "billing", "--topic", "orders", "--to", "latest", "--yes")
        assert run(*reset, *at).returncode == 0
        yield made


def watching(stack: ExitStack, running: Cluster, words: str, *more: str) -> subprocess.Popen[str]:
    return started(stack, running, AS_A_COMMAND, *words.split(), *WATCHED[words], *more)


def started(
    stack: ExitStack, running: Cluster, code: str, *arguments: str
) -> subprocess.Popen[str]:
    at = ("--name-servers", running.name_server)
    return stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-c", code, *arguments, *at],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )


def test_these_are_all_commands_that_can_be_watched() -> None:
    def parameters(words: str) -> Iterator[str]:
        command: click.Command = app
        for word in words.split():
            assert isinstance(command, click.Group)
            below = command.get_command(click.Context(command), word)
            assert below is not None
            command = below
        for each in command.params:
            yield from each.opts

    found = {
        words for words in leaves(app, (), click.Context(app)) if "--watch" in parameters(words)
    }
    assert found == set(WATCHED)


@pytest.mark.slow
def test_every_round_is_a_line_of_json_and_a_signal_ends_it_quietly(running: Cluster) -> None:
    with ExitStack() as stack:
        watchers = [
            (words, watching(stack, running, words, "--json", "--watch", "50ms"))
            for words in WATCHED
        ]
        for index, (words, process) in enumerate(watchers):
            ended_quietly(words, process, BOTH[index % 2])


@pytest.mark.parametrize("number", BOTH)
def test_the_lag_of_a_group_is_watched(number: signal.Signals, running: Cluster) -> None:
    with ExitStack() as stack:
        process = watching(stack, running, "group lag", "--json", "--watch", "50ms")
        documents = ended_quietly("group lag", process, number)
    assert [each["lag"] for each in documents] == [0, 0]
    assert [each["items"][0]["queue"] for each in documents] == ["broker-a/0"] * 2


def ended_quietly(words: str, process: subprocess.Popen[str], number: int) -> list[dict[str, Any]]:
    """The documents of two rounds, after which the process was ended."""
    assert process.stdout is not None
    assert process.stderr is not None
    documents = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(number)
    # Not communicate(), which knows nothing of what readline() has read ahead
    rest, said = process.stdout.read(), process.stderr.read()
    process.wait(PATIENCE_S)
    assert all(json.loads(line) for line in rest.splitlines()), words
    assert process.returncode == 128 + number, (words, said)
    assert said == ("\n" if number == signal.SIGINT else ""), words
    for each in documents:
        assert {"errors", "truncated"} <= set(each), words
    return documents


@pytest.mark.slow
@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("words", LASTING)
def test_a_command_that_lasts_is_ended_quietly_by_a_signal(
    words: str, number: signal.Signals, running: Cluster
) -> None:
    sent = run("send", "news", "first", "--name-servers", running.name_server)
    assert sent.returncode == 0, sent.stderr
    with ExitStack() as stack:
        code = ANNOUNCED + AS_A_COMMAND
        process = started(stack, running, code, *words.split(), *LASTING[words])
        assert process.stdout is not None
        assert process.stdout.readline()  # a message, or that it waits
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (128 + number, "\n" if number == signal.SIGINT else "")


def test_a_pipe_gets_a_table_for_each_round(running: Cluster) -> None:
    with ExitStack() as stack:
        process = watching(stack, running, "group lag", "--watch", "50ms")
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        process.terminate()
    assert lines[0] == lines[2]
    assert lines[0].startswith("GROUP\tTOPIC\tQUEUE\t")
    assert lines[1].startswith("billing\torders\tbroker-a/0\t0\t0\t0\t")


def test_a_group_that_is_deleted_meanwhile_does_not_hide_the_others(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = admin.Admin.groups

    async def outdated(self: admin.Admin) -> Listing[str]:
        return Listing(("billing", "deleted", *await groups(self)))

    monkeypatch.setattr(admin.Admin, "groups", outdated)
    at = ("--name-servers", running.name_server)
    ended = run("group", "lag", *at)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[1].startswith("billing\torders\t")
    assert run("group", "lag", "deleted", *at).returncode == 1
