"""Addresses of a broker: those that clients cannot reach are reported before it starts."""

import json
from pathlib import Path

import pytest

from tests.cli.in_process import run

REFUSED = ("--flush", "maybe")  # so that nothing starts

UNREACHABLE = [
    pytest.param(
        ("--advertise", "10.0.0.5"),
        "flag --advertise is '10.0.0.5', but the broker accepts connections from this machine only"
        " (listen is 127.0.0.1 (default))",
        id="loopback by default",
    ),
    pytest.param(
        ("--advertise", "mq.example.org", "--listen", "localhost"),
        "(flag --listen is 'localhost')",
        id="loopback by name",
    ),
    pytest.param(
        ("--listen", "0.0.0.0", "--insecure"),
        "flag --listen is '0.0.0.0', and clients would connect to 0.0.0.0, which is their own",
        id="every address, none advertised",
    ),
    pytest.param(
        ("--advertise", "::", "--listen", "::", "--insecure"),
        "flag --advertise is '::', and clients would connect to ::",
        id="every address advertised",
    ),
]


@pytest.mark.parametrize(("flags", "says"), UNREACHABLE)
@pytest.mark.parametrize("command", [("up",), ("broker",), ("config", "show")], ids=" ".join)
def test_an_address_that_clients_cannot_reach_logs_a_warning(
    command: tuple[str, ...], flags: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    ran = run(*command, *flags, *REFUSED, cwd=tmp_path)
    (warning,) = (line for line in ran.stderr.splitlines() if line.startswith("warning: "))
    assert says in warning
    assert "; set " in warning


def test_the_key_of_a_broker_conf_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("brokerName=a\nbrokerIP1=10.0.0.5\n")
    shown = run("config", "show", "--config", "broker.conf", cwd=tmp_path)
    assert shown.returncode == 0
    assert "warning: broker.conf line 2: brokerIP1 is '10.0.0.5' (here advertise" in shown.stderr


def test_with_json_the_warning_is_among_the_others(tmp_path: Path) -> None:
    flags = ("--json", "--advertise", "10.0.0.5")
    (warning,) = json.loads(run("config", "show", *flags, cwd=tmp_path).stdout)["warnings"]
    logged = run("broker", *flags, *REFUSED, cwd=tmp_path).stderr.splitlines()
    assert [json.loads(line)["level"] for line in logged] == ["warning", "error"]
    assert json.loads(logged[0])["message"] == warning


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("--advertise", "127.0.0.1", "--listen", "0.0.0.0", "--insecure"),
        ("--advertise", "10.0.0.5", "--listen", "0.0.0.0", "--insecure"),
        ("--listen", "10.0.0.5", "--insecure"),
    ],
    ids=" ".join,
)
def test_an_address_that_clients_may_reach_needs_no_warning(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    shown = run("config", "show", *flags, cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (0, "")


@pytest.mark.parametrize("server", ["broker", "nameserver"])
def test_config_show_refuses_the_address_that_the_server_would_refuse(
    server: str, tmp_path: Path
) -> None:
    (tmp_path / "x.toml").write_text(
        "[broker]\nlisten = '0.0.0.0'\nadvertise = 'mq'\n[nameserver]\nlisten = '::'\n"
    )
    file = ("--config", "x.toml")
    shown = run("config", "show", server, *file, cwd=tmp_path)
    started = run(server, *file, cwd=tmp_path)
    assert shown.returncode == started.returncode == 2
    problem = started.stderr.partition("Error: ")[2]
    assert "which other machines can reach" in problem
    assert shown.stderr.partition("Error: ")[2] == problem
    allowed = run("config", "show", server, *file, "--insecure", cwd=tmp_path)
    assert (allowed.returncode, allowed.stderr) == (0, "")
