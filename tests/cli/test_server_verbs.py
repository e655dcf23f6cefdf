"""`sparrowmq broker` and `sparrowmq nameserver`: a server without a verb, commands with one."""

import click
import pytest
from click.testing import CliRunner

from sparrowmq.cli.commands import servers
from sparrowmq.cli.server_group import ServerGroup
from sparrowmq.cli.settings.options import SettingsCommand, options
from sparrowmq.cli.settings.servers import nameserver_settings
from tests.cli.in_process import run

REFUSED = "is for a server that is started, and slave works on servers that run; what it takes"


def program(started: list[object]) -> click.Group:
    """A server that notes its port instead of running, and `slave` as a verb."""
    server = SettingsCommand(
        "nameserver",
        callback=lambda **values: started.append(values["nameserver_port"]),
        params=options(nameserver_settings()),
        help="Run it.\n\nExample:\n  sparrowmq nameserver --nameserver-port 1",
        groups={"Addresses": ["nameserver-port"]},
    )
    made = ServerGroup(server, modules={"slave": "slave"})
    return click.Group("sparrowmq", commands=[made])


def invoke(*arguments: str) -> tuple[list[object], str]:
    """The ports of servers that were started, and what was said."""
    started: list[object] = []
    ran = CliRunner().invoke(program(started), ["nameserver", *arguments], prog_name="sparrowmq")
    return started, ran.output


@pytest.mark.parametrize(
    ("arguments", "port"),
    [
        ((), None),
        (("run",), None),
        (("--nameserver-port", "7"), "7"),
        (("run", "--nameserver-port", "7"), "7"),
    ],
)
def test_settings_run_a_server_with_run_and_without(
    arguments: tuple[str, ...], port: str | None
) -> None:
    assert invoke(*arguments) == ([port], "")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--nameserver-port", "7", "slave", "list"), f"--nameserver-port {REFUSED}"),
        (("--nameserver-port", "7", "slave", "retire", "--yes"), f"--nameserver-port {REFUSED}"),
        (("slave", "list", "--nameserver-port", "7"), f"--nameserver-port {REFUSED}"),
        (("slave", "list", "--yes"), "No such option '--yes'"),
        (("--nameserver-port", "7", "run"), "settings come after run: sparrowmq nameserver run …"),
        (("--nameserver-port", "7", "8"), "Got unexpected extra argument (8)"),
        (("slvae",), "there is no command 'slvae'; did you mean slave? there are: run, slave"),
    ],
)
def test_a_verb_comes_first_and_takes_no_settings(arguments: tuple[str, ...], says: str) -> None:
    started, output = invoke(*arguments)
    assert started == []
    assert says in " ".join(output.split())


def test_help_names_the_verbs_and_every_verb_has_its_own() -> None:
    assert "Commands: run, slave" in invoke("--help")[1]
    assert "Commands" not in invoke("run", "--help")[1]
    assert "sparrowmq nameserver run --nameserver-port 1" in invoke("run", "--help")[1]
    assert "retire" in invoke("slave", "--help")[1]


@pytest.mark.parametrize("command", ["broker", "nameserver"])
def test_both_servers_have_run(command: str) -> None:
    found = {each.name: each for each in servers.commands()}[command]
    assert isinstance(found, ServerGroup)
    assert found.list_commands(click.Context(found))[0] == "run"
    wrong = run(command, "run", "--listen", "not a host!")
    assert wrong.returncode == 2
    assert wrong == run(command, "--listen", "not a host!")._replace(stderr=wrong.stderr)


def test_a_mistyped_variable_is_reported_to_a_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARROWMQ_PROT", "1")
    assert "SPARROWMQ_PROT" in invoke("slave", "list", "--name-servers", "nowhere")[1]
    assert "SPARROWMQ_PROT" not in invoke("run")[1]
