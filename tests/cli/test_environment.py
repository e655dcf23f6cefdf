"""Variables that begin with SPARROWMQ_: none is ignored silently."""

import re
from pathlib import Path

import pytest

from sparrowmq.cli.settings.environment import unknown_variables
from sparrowmq.cli.settings.servers import all_settings, broker_settings
from sparrowmq.cli.settings.settings import resolve
from tests.cli.in_process import run
from tests.cli.servers import ROOT


def warnings_about(*names: str, text: str = "x") -> list[str]:
    return [each.text for each in unknown_variables(dict.fromkeys(names, text), all_settings())]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SPARROWMQ_DTA", "SPARROWMQ_DATA"),
        ("SPARROWMQ_FLUSHH", "SPARROWMQ_FLUSH"),
        ("SPARROWMQ_FLUSH_INTERVALL", "SPARROWMQ_FLUSH_INTERVAL"),
        ("SPARROWMQ_NAME_SERVER", "SPARROWMQ_NAME_SERVERS"),
        ("SPARROWMQ_RETENTION", "SPARROWMQ_STORE_RETENTION"),
        ("SPARROWMQ_NAMESRV_ADDR", "SPARROWMQ_NAME_SERVERS"),
        ("SPARROWMQ_FLUSH_DISK_TYPE", "SPARROWMQ_FLUSH"),
        ("sparrowmq_data", "SPARROWMQ_DATA"),
    ],
)
def test_a_mistyped_variable_is_named_with_the_one_that_was_meant(name: str, meant: str) -> None:
    (text,) = warnings_about(name)
    assert text == (
        f"environment variable {name} is not known and has no effect;"
        f" did you mean {meant}? all settings: sparrowmq config show"
    )


def test_a_variable_that_resembles_no_setting_is_named_with_where_to_look() -> None:
    (text,) = warnings_about("SPARROWMQ_XYZZY")
    assert text.endswith("has no effect; all settings: sparrowmq config show")


def test_for_a_variable_of_name_servers_their_settings_are_shown() -> None:
    (text,) = warnings_about("SPARROWMQ_NAMESERVER_PRT")
    assert "SPARROWMQ_NAMESERVER_PORT?" in text
    assert text.endswith("sparrowmq config show nameserver")


@pytest.mark.parametrize("setting", all_settings(), ids=lambda each: each.variable)
def test_the_variable_of_every_setting_is_recognised(setting: object) -> None:
    assert warnings_about(setting.variable) == []  # type: ignore[attr-defined]


def test_variables_read_by_other_parts_of_the_project_are_recognised() -> None:
    folders = ("src", "tests", "tools", "bench")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    ours = [path for path in files if ROOT / "tests" / "cli" not in path.parents]
    names: set[str] = set()
    for path in [ROOT / "dev", *ours]:
        names.update(re.findall(r"\bSPARROWMQ_[A-Z_]*[A-Z]", path.read_text(encoding="utf-8")))
    assert {"SPARROWMQ_DEV_NEWER", "SPARROWMQ_CONFIG", "SPARROWMQ_NAME_SERVERS"} <= names
    assert warnings_about(*names) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("SPARROWMQ_SERVICE_HOST", "10.0.0.1"),
        ("SPARROWMQ_SERVICE_PORT_REMOTING", "10911"),
        ("SPARROWMQ_PORT_10911_TCP_ADDR", "10.0.0.1"),
        ("SPARROWMQ_BROKER_SERVICE_HOST", "10.0.0.1"),
        ("SPARROWMQ_BROKER_PORT", "tcp://10.0.0.1:10911"),
    ],
)
def test_variables_that_kubernetes_sets_for_services_give_no_warning(name: str, text: str) -> None:
    assert warnings_about(name, text=text) == []


def test_a_port_that_kubernetes_set_is_refused_with_the_remedy() -> None:
    environment = {"SPARROWMQ_PORT": "tcp://10.0.0.1:10911"}
    (problem,) = resolve(broker_settings(), flags={}, environment=environment, file={}).problems
    assert re.search(r"SPARROWMQ_PORT is 'tcp:.* Service named sparrowmq,", problem)


@pytest.mark.parametrize(
    "name",
    ["ACL_ENABLE", "AUTHENTICATION_ENABLED", "AUTHORIZATION_ENABLED", "TLS_ENABLE", "USE_TLS"],
)
@pytest.mark.parametrize("command", ["broker", "nameserver", "up"])
def test_servers_refuse_a_variable_that_asks_for_protection(
    name: str, command: str, tmp_path: Path
) -> None:
    ran = run(command, cwd=tmp_path, **{f"SPARROWMQ_{name}": "true"})
    assert ran.returncode == 2
    assert f"environment variable SPARROWMQ_{name} is 'true', but there is no" in ran.stderr
    assert list(tmp_path.iterdir()) == []


def test_commands_warn_and_continue(tmp_path: Path) -> None:
    variables = {"SPARROWMQ_FLUSHH": "sync", "SPARROWMQ_NAME_SERVERS": "127.0.0.1:1"}
    for command in (["store", "verify", "."], ["topic", "list"], ["up", "--flush", "maybe"]):
        ran = run(*command, cwd=tmp_path, **variables)
        first = ran.stderr.splitlines()[0]
        assert first.startswith("warning: environment variable SPARROWMQ_FLUSHH is not known")
        assert "did you mean SPARROWMQ_FLUSH?" in first
        assert ran.stderr.count("FLUSHH") == 1


def test_config_show_lists_unknown_variables_below_the_settings(tmp_path: Path) -> None:
    shown = run("config", "show", cwd=tmp_path, SPARROWMQ_DTA="/srv")
    assert shown.returncode == 0
    assert shown.stderr == ""
    name, text = shown.stdout.splitlines()[-1].split("\t", 1)
    assert name == "SPARROWMQ_DTA"
    assert text == "not known, without effect; did you mean SPARROWMQ_DATA?\tenvironment"


def test_a_variable_named_like_a_flag_names_the_alternative(tmp_path: Path) -> None:
    text = "it is a flag of the command, not a setting: start the server with --insecure"
    shown = run("config", "show", cwd=tmp_path, SPARROWMQ_INSECURE="true")
    assert f"without effect; {text}\tenvironment" in shown.stdout
    refused = run("up", "--flush", "maybe", cwd=tmp_path, SPARROWMQ_INSECURE="true")
    assert f"SPARROWMQ_INSECURE is not known and has no effect; {text}\n" in refused.stderr


def test_unknown_variables_are_named_along_with_other_problems(tmp_path: Path) -> None:
    shown = run("config", "show", "--flush", "maybe", cwd=tmp_path, SPARROWMQ_DTA="/srv")
    assert shown.returncode == 2
    assert "did you mean SPARROWMQ_DATA?" in shown.stderr
    assert "flag --flush is 'maybe'" in shown.stderr
