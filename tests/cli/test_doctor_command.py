"""`sparrowmq doctor` through the entry point, against a real cluster in this process."""

import json
import os
import pty
import shlex
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from sparrowmq.admin.doctor.catalogue import CATALOGUE
from sparrowmq.blocking import Message, Producer
from sparrowmq.cli.main import app
from sparrowmq.testing import Cluster, cluster
from tests.admin.doctor.facts_tables import WRONG as FACTS
from tests.admin.doctor.test_decisions import decide
from tests.cli.in_process import Ran, run, run_impatiently


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster() as made:
        made.create_topic("orders", queues=1)
        made.create_topic("empty", queues=1)
        with Producer("shop", name_servers=made.name_server) as producer:
            producer.send(Message("orders", b"one sparrow"))
        yield made


def doctor(running: Cluster, *arguments: str) -> Ran:
    return run("doctor", *arguments, "--for", "0s", "-n", running.name_server)


def test_pipes_get_columns_and_an_exit_code_of_1_from_a_warning_on(running: Cluster) -> None:
    ended = doctor(running, "topic", "orders")
    assert ended.returncode == 1
    assert [line.split("\t") for line in ended.stdout.splitlines()] == [
        ["SEVERITY", "FINDING", "SUBJECT", "EVIDENCE", "CAUSE", "DO", "COMMAND"],
        [
            "warning",
            "nobody-consumes",
            "topic orders",
            "1 message, and no group reads it",
            CATALOGUE["nobody-consumes"].cause,
            CATALOGUE["nobody-consumes"].remedy,
            "sparrowmq topic show orders",
        ],
    ]
    where = f"(name servers {running.name_server})"
    assert ended.stderr == f"checked topic orders: 1 warning {where}\n"


def test_a_healthy_topic_reports_what_was_checked(running: Cluster) -> None:
    ended = doctor(running, "topic", "empty")
    assert ended.returncode == 0
    assert len(ended.stdout.splitlines()) == 1
    assert ended.stderr.startswith("checked topic empty: nothing is wrong (name servers ")
    assert doctor(running, "topic", "empty", "--quiet").stderr == ""


def test_programs_get_one_document_of_a_stable_shape(running: Cluster) -> None:
    ended = doctor(running, "topic", "orders", "--json")
    assert ended.returncode == 1
    found = json.loads(ended.stdout)
    assert list(found) == ["checked", "items", "notMade", "truncated", "errors"]
    (item,) = found["items"]
    columns = ["severity", "finding", "subject", "evidence", "cause", "do", "command"]
    assert list(item) == columns
    assert (item["severity"], item["finding"]) == ("warning", "nobody-consumes")
    assert (found["notMade"], found["errors"], found["truncated"]) == ([], [], False)


def test_only_findings_of_the_chosen_severity_are_shown_and_counted(running: Cluster) -> None:
    ended = doctor(running, "topic", "orders", "--severity", "error")
    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 1)


def test_everything_is_examined_without_arguments(running: Cluster) -> None:
    ended = doctor(running)
    assert "\tnobody-consumes\ttopic orders\t" in ended.stdout
    assert "checked 1 name server and 1 broker, 2 topics and 0 groups: " in ended.stderr


def test_the_catalogue_needs_no_cluster() -> None:
    ended = run("doctor", "--list", "-n", "127.0.0.1:1")
    rows = [line.split("\t") for line in ended.stdout.splitlines()]
    assert rows[0] == ["FINDING", "ABOUT", "SEVERITY", "MEANING", "DO"]
    assert [row[0] for row in rows[1:]] == list(CATALOGUE)
    listed = json.loads(run("doctor", "--list", "--json").stdout)
    assert len(listed["items"]) == len(CATALOGUE)


def test_an_unreachable_name_server_is_a_finding() -> None:
    ended = run_impatiently("doctor", "-n", "127.0.0.1:1")
    assert ended.returncode == 1
    assert "error\tnameserver-silent\tname server 127.0.0.1:1\t" in ended.stdout
    assert "not made for everything else: " in ended.stderr


WRONG = [
    (("message", "--key", "o-17"), 2, "sparrowmq doctor message --topic TOPIC --key KEY"),
    (("queue", "x"), 2, "'queue' cannot be examined, only cluster, topic, group, message"),
    (("topic",), 2, "which topic? write: sparrowmq doctor topic NAME"),
    (("group", "nope"), 1, "sparrowmq: group nope does not exist"),
    (("message", "0A"), 2, "'0A' is not 32 or 56 hexadecimal digits"),
    (("message", "0A000001" + "F" * 24), 1, "give its topic"),
    (("topic", "a b"), 2, "characters that are not allowed"),
    (("--severity", "bad"), 2, "'bad' is not one of 'error', 'warning', 'note'"),
]


@pytest.mark.parametrize(("arguments", "code", "text"), WRONG)
def test_wrong_usage_lists_what_is_allowed(
    running: Cluster, arguments: tuple[str, ...], code: int, text: str
) -> None:
    ended = doctor(running, *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert text in ended.stderr


def pasted_commands() -> list[str]:
    found = (each for _, facts in FACTS for each in decide(facts).findings)
    return sorted({each.command for each in found})


@pytest.mark.parametrize("command", pasted_commands())
def test_a_command_of_a_finding_can_be_pasted_as_it_is(command: str) -> None:
    program, *words = shlex.split(command)
    if program != "sparrowmq":
        assert command == "mqadmin addWritePerm -b broker-a -n n1:9876"
        return
    found: click.Command = app
    context = click.Context(found)
    while isinstance(found, click.Group) and words:
        word = words.pop(0)
        inner = found.get_command(context, word)
        assert inner is not None, f"{word} of {command}"
        found = inner
    # Raises for an unknown option, and for a required option or argument that is missing.
    found.make_context(found.name, words, parent=context)


def test_people_at_a_terminal_get_a_paragraph_for_each_finding(running: Cluster) -> None:
    ours, theirs = pty.openpty()
    words = ["doctor", "topic", "orders", "-n", running.name_server, "-q"]
    ended = subprocess.run(
        [sys.executable, "-m", "sparrowmq", *words],
        stdout=theirs,
        stderr=subprocess.PIPE,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "80"},
    )
    os.close(theirs)
    shown = os.read(ours, 65_536).decode().splitlines()
    os.close(ours)
    assert (ended.returncode, ended.stderr) == (1, b"")
    assert shown == [
        "warning nobody-consumes: topic orders",
        "  A topic has messages and no live consumer.",
        "  evidence  1 message, and no group reads it",
        "  cause     its consumers are stopped, or subscribe to another name",
        "  do        start a consumer, or stop sending",
        "            $ sparrowmq topic show orders",
        "",
    ]


def test_a_message_is_found_by_its_key_instead_of_its_id(running: Cluster) -> None:
    at = ("--name-servers", running.name_server)
    sent = run("send", "keyed", "hello", "--key", "o-17", *at)
    ended = doctor(running, "message", "--topic", "keyed", "--key", "o-17")
    assert f"checked message {sent.stdout.split()[1]} of topic keyed" in ended.stderr
    missing = doctor(running, "message", "--topic", "keyed", "--key", "none")
    assert "message with key none does not exist; topic keyed has none" in missing.stderr
