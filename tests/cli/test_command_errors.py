"""Mistakes at the command line: each is named with what is allowed and what to do next."""

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from sparrowmq.cli.main import app
from sparrowmq.cli.message_output import line_of
from sparrowmq.cli.settings.servers import all_settings
from sparrowmq.cli.settings.settings import ServerSetting
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.record import Record
from sparrowmq.testing import Cluster
from tests.cli.in_process import run, run_impatiently
from tests.cli.servers import sparrowmq, sparrowmq_on_a_full_disk
from tests.cli.silent_broker import closed_port


def commands(group: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands that do something."""
    if not isinstance(group, click.Group):
        yield path
        return
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def has_address(host: str) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return False
    return True


@pytest.mark.parametrize("path", sorted(commands(app)), ids=" ".join)
def test_the_help_of_every_command_describes_it(path: tuple[str, ...]) -> None:
    ran = run(*path, "--help")
    assert ran.returncode == 0
    assert ran.stdout.startswith(f"Usage: sparrowmq {' '.join(path)} ")
    assert f"  sparrowmq {' '.join(path)}" in ran.stdout.partition("Example")[2]


def groups(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands whose help lists others."""
    yield path
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        if isinstance(found, click.Group):
            yield from groups(found, (*path, name))


@pytest.mark.parametrize("path", sorted(groups(app)), ids=" ".join)
def test_a_list_of_commands_cuts_no_sentence(path: tuple[str, ...]) -> None:
    listed = run(*path, "--help", COLUMNS="80").stdout.partition("Commands:\n")[2]
    assert [line for line in listed.splitlines() if line.endswith("...")] == []


@pytest.mark.parametrize("setting", all_settings(), ids=lambda each: each.name)
def test_every_setting_is_explained(setting: ServerSetting) -> None:
    assert setting.meaning.endswith(".")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["tpoic"], "there is no command 'tpoic'; did you mean topic? there are: nameserver, br"),
        (
            ["topic", "lst"],
            "did you mean list? there are: create, delete, list, route, show, spread, stats",
        ),
        (["group", "lag", "a/b"], "group 'a/b' has characters that are not allowed; allowed"),
        (["group", "lag", "g", "--topic", "a/b"], "topic 'a/b' has characters that are not"),
        (["pipeline", "xyzzy"], "no command 'xyzzy'; there are: archive, drain"),
        (["up", "--flushh", "1"], "--flush"),
        (["send", "t", ""], "the message is empty; give BODY, --file, or standard input"),
        (["send", "t"], "the message is empty; give BODY, --file, or standard input"),
        (["send", "t", "x", "--property", "a"], "--property 'a' is not NAME=VALUE"),
        (["topic", "list", "-n", "here"], "'--name-servers' / '-n': address 'here' is not host:po"),
        (["consume", "t", "--group", "g", "-n", ";"], "has no address, such as 127.0.0.1:9876"),
        (["store", "dump", ".", "--limit", "-1"], "'--limit': -1 is not in the range x>=1"),
        (["store", "dump", ".", "--from", "-1"], "'--from': -1 is not in the range x>=0"),
        (["broker", "--port", "1"], "flag --port is '1', must be 0, or 3 to 65535"),
    ],
)
def test_wrong_arguments_exit_with_2_and_list_what_is_allowed(
    arguments: list[str], says: str
) -> None:
    ran = run(*arguments)
    assert ran.returncode == 2
    assert says in ran.stderr


def test_an_unknown_context_is_named_with_those_that_exist(tmp_path: Path) -> None:
    contexts = tmp_path / "sparrowmq" / "contexts.toml"
    contexts.parent.mkdir()
    contexts.write_text('[contexts.production]\nname-servers = ["10.0.0.1:9876"]\n')
    ran = run(
        "topic",
        "list",
        XDG_CONFIG_HOME=str(tmp_path),
        SPARROWMQ_CONTEXT="prd",
        SPARROWMQ_NAME_SERVERS="",
    )
    assert ran.returncode == 2
    assert ran.stderr.splitlines()[-1] == (
        "Error: environment variable SPARROWMQ_CONTEXT names the context 'prd', which is not in"
        f" {contexts}; it has: production"
    )


def test_a_wrong_address_in_the_environment_names_the_variable() -> None:
    ran = run("topic", "list", SPARROWMQ_NAME_SERVERS="here")
    assert ran.returncode == 2
    assert "(from environment variable SPARROWMQ_NAME_SERVERS)" in ran.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "list"),
        ("topic", "create", "t"),
        ("topic", "route", "t"),
        ("topic", "delete", "t"),
        ("send", "t", "x"),
        ("consume", "t", "--group", "g"),
    ],
    ids=" ".join,
)
def test_without_a_server_a_command_exits_with_1_and_a_one_line_remedy(
    arguments: tuple[str, ...],
) -> None:
    with closed_port() as address:
        ran = run_impatiently(*arguments, "--name-servers", address)
    assert ran.returncode == 1
    (line,) = ran.stderr.splitlines()
    assert line.startswith("sparrowmq: ")
    assert address in line
    assert "sparrowmq up" in line
    assert "--name-servers" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("broker", "--port", "0", "--data", "file"), "choose another one with --data"),
        (("nameserver", "--port", "0", "--listen", "192.0.2.1", "--insecure"), "with --listen"),
        (
            ("nameserver", "--port", "0", "--kv-config-path", "broken.json"),
            "'broken.json', must be a key-value configuration: ",
        ),
    ],
    ids=["data", "listen", "key-value file"],
)
def test_a_server_that_cannot_start_exits_with_1_and_the_remedy(
    arguments: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    if "192.0.2.1" in arguments and has_address("192.0.2.1"):
        pytest.skip("this machine lets processes listen on addresses that are not its own")
    (tmp_path / "file").write_text("")
    (tmp_path / "broken.json").write_text("{")
    ran = sparrowmq(*arguments, cwd=tmp_path)
    assert ran.returncode == 1
    (line,) = [each for each in ran.stderr.splitlines() if each.startswith("sparrowmq: ")]
    assert says in line
    assert "Traceback" not in ran.stderr


def test_a_broker_where_a_name_server_belongs_is_recognised(
    sparrowmq_session_cluster: Cluster,
) -> None:
    broker = sparrowmq_session_cluster.broker_addresses["broker-a"]
    for command in (["topic", "list"], ["send", "t", "x"], ["consume", "t", "--group", "g"]):
        ran = run(*command, "--name-servers", broker)
        assert ran.returncode == 1
        (line,) = ran.stderr.splitlines()
        assert f"({broker}, from --name-servers)" in line
        assert "broker" in line.replace(broker, "")
        assert "port 9876 by default" in line


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("arguments", [["config", "show"], ["--help"]], ids=" ".join)
def test_output_that_cannot_be_written_is_one_line_and_code_1(arguments: list[str]) -> None:
    ran = sparrowmq_on_a_full_disk(*arguments)
    assert ran.returncode == 1
    assert ran.stderr == "sparrowmq: No space left on device\n"


def test_of_many_stores_a_few_are_suggested(tmp_path: Path) -> None:
    for name in "abcde":
        (tmp_path / name / "commitlog").mkdir(parents=True)
    ran = run("store", "verify", str(tmp_path))
    assert ran.returncode == 2
    assert ran.stderr.endswith(f"{tmp_path / 'c'} or another?\n")


def test_an_error_about_a_file_names_the_file(
    tmp_path: Path, sparrowmq_session_cluster: Cluster
) -> None:
    (tmp_path / "file").touch()
    state = tmp_path / "file" / "state"
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    assert run("topic", "create", "cli-drained", *at).returncode == 0
    ran = sparrowmq("pipeline", "drain", "cli-drained", "--group", "g", "--state", str(state), *at)
    assert ran.returncode == 1
    assert re.fullmatch(f"sparrowmq: {state}.*: Not a directory\n", ran.stderr)


def test_a_body_is_shown_in_one_line_and_controls_no_terminal() -> None:
    record = Record(
        *(100, 0, 0, 0, 0, 7, 0, 0, 0, b"\x7f\x00\x00\x01\x00\x00\x00\x01", 0),
        *(b"\x7f\x00\x00\x01\x00\x00\x00\x01", 0, 0, b"x\x1b[2J\ny\t\xc3\xa9\xff", "orders", b""),
    )
    assert line_of(MessageExt(record, "broker-a")) == "broker-a/0/7: x\\x1b[2J\\x0ay\té\\xff"
