"""Settings of the server commands: shown, explained, and refused before anything starts."""

import json
from pathlib import Path

import pytest

from sparrowmq.cli.settings.servers import broker_settings, nameserver_settings
from tests.cli.in_process import run


@pytest.mark.parametrize(
    "arguments",
    [
        ("up", "--listen", "0.0.0.0"),
        ("broker", "--listen", "192.0.2.1"),
        ("nameserver", "--listen", "::"),
        ("up", "--nameserver-listen", "0.0.0.0"),
    ],
)
def test_an_address_that_other_machines_reach_has_to_be_allowed(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    refused = run(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert "--insecure" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_setting_is_a_usage_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    refused = run("up", "--flush", "maybe", cwd=tmp_path)
    assert refused.returncode == 2
    assert "flag --flush is 'maybe', must be one of async, sync" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_config_show_names_the_origin_of_every_value(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[broker]\nport = 7\n")
    shown = run("config", "show", "--config", "x.toml", "--ha-port", "8", cwd=tmp_path)
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert lines["KEY"] == "KEY\tVALUE\tORIGIN"
    assert lines["port"] == "port\t7\tx.toml line 2: [broker] port"
    assert lines["ha-port"] == "ha-port\t8\tflag --ha-port"
    assert lines["flush"] == "flush\tasync\tdefault"
    names = run("config", "show", "nameserver", cwd=tmp_path)
    assert "nameserver-port" in names.stdout


def test_every_setting_is_explained_by_help() -> None:
    text = run("broker", "--help-all").stdout
    assert "--flush-interval DURATION" in text
    assert "How long an asynchronously flushed message may stay" in " ".join(text.split())


@pytest.mark.parametrize(
    ("command", "lines"),
    [("up", 23), ("broker", 40), ("nameserver", 40)],  # 24 lines less one for the prompt
)
def test_help_fits_on_a_screen_and_help_all_shows_the_rest(command: str, lines: int) -> None:
    text = run(command, "--help", COLUMNS="80").stdout
    assert len(text.splitlines()) <= lines
    assert "Addresses:" in text
    assert "Settings and logs:" in text
    assert f"more options: sparrowmq {command} --help-all" in text
    assert command != "up" or ("--console-port PORT" in text and "--no-console" in text)
    everything = run(command, "--help-all", COLUMNS="80").stdout
    settings = nameserver_settings() if command == "nameserver" else broker_settings()
    overruled = ("name-servers", "broker-id") if command == "up" else ()
    shown = [each.name for each in settings if each.name not in overruled]
    assert [name for name in shown if f"--{name} " not in everything] == []


@pytest.mark.parametrize(
    ("flag", "default"),
    [
        ("--data DIRECTORY", "./sparrowmq-data"),
        ("--name-servers HOST:PORT,…", "127.0.0.1:9876"),
        ("--listen HOST", "127.0.0.1"),
        ("--port PORT", "10911"),
        ("--flush async|sync", "async"),
        ("--flush-interval DURATION", "500ms"),
        ("--max-message SIZE", "4MiB"),
        ("--max-topics NUMBER", "10000"),
        ("--vip-alias true|false", "true"),
        ("--store-clean-ratio RATIO", "0.75"),
        ("--store-deletion-hour HOUR", "4"),
        ("--store-delay-levels DURATION,…", "1s,5s,10s"),
    ],
)
def test_help_explains_each_setting_and_shows_its_real_default(flag: str, default: str) -> None:
    text = " ".join(run("broker", "--help-all").stdout.split())
    after = text.partition(f"{flag} ")[2]
    assert after.partition("[default: ")[2].startswith(default), after[:200]


def test_without_a_default_none_is_shown() -> None:
    assert "(none)" not in run("broker", "--help-all").stdout


def test_config_show_changed_shows_only_what_is_not_the_default(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("fileReservedTime=72\ndiskMaxUsedSpaceRatio=88\n")
    flags = ("--config", "broker.conf", "--port", "7", "--limit-max-connections", "9")
    shown = run("config", "show", "--changed", *flags, cwd=tmp_path, SPARROWMQ_FLUSH="sync")
    _, *lines = shown.stdout.splitlines()
    assert {line.split("\t")[0]: line.split("\t", 1)[1] for line in lines} == {
        "port": "7\tflag --port",
        "flush": "sync\tenvironment variable SPARROWMQ_FLUSH",
        "limit-max-connections": "9\tflag --limit-max-connections",
        "store-clean-ratio": "0.88\tbroker.conf line 2: diskMaxUsedSpaceRatio",
        "store-force-clean-ratio": "0.928\tfollows store-clean-ratio",
        "store-refuse-ratio": "0.952\tfollows store-clean-ratio",
    }


def test_config_show_as_json_has_settings_and_warnings(tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("noSuchKey=1\nlistenPort=7\n")
    shown = run(
        "config", "show", "--json", "--config", "broker.conf", cwd=tmp_path, SPARROWMQ_DTA="x"
    )
    document = json.loads(shown.stdout)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert document["server"] == "broker"
    assert document["settings"]["port"] == {
        "value": "7",
        "default": "10911",
        "origin": "broker.conf line 2: listenPort",
        "changed": True,
    }
    assert document["settings"]["flush"]["changed"] is False
    assert document["problems"] == []
    first, second = document["warnings"]
    assert "noSuchKey" in first
    assert "SPARROWMQ_DTA" in second


def test_config_show_as_json_has_every_problem(tmp_path: Path) -> None:
    shown = run("config", "show", "--json", "--port", "70000", "--flush", "maybe", cwd=tmp_path)
    assert (shown.returncode, shown.stderr) == (2, "")
    problems = json.loads(shown.stdout)["problems"]
    assert sorted(problem.split(" is ")[0] for problem in problems) == [
        "flag --flush",
        "flag --port",
    ]


def test_up_names_the_problems_of_both_servers_at_once(tmp_path: Path) -> None:
    flags = ("--port", "x", "--nameserver-port", "y", "--store-retention", "0", "--listen", "::")
    refused = run("up", *flags, cwd=tmp_path)
    assert refused.returncode == 2
    assert "Error: 4 settings cannot be used:" in refused.stderr
    for flag in flags[::2]:
        assert refused.stderr.count(f"\n  flag {flag} is ") == 1
    assert list(tmp_path.iterdir()) == []


def test_with_json_every_problem_is_a_line_of_the_log(tmp_path: Path) -> None:
    refused = run("up", "--json", "--port", "x", "--nameserver-port", "y", cwd=tmp_path)
    assert refused.returncode == 2
    lines = [json.loads(line) for line in refused.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["error", "error"]


def test_with_json_no_warning_is_held_back_however_many_there_are(tmp_path: Path) -> None:
    many = 100
    (tmp_path / "broker.conf").write_text("".join(f"noSuchKey{n}=%s\n" for n in range(many)))
    # Refused afterwards for its address, so that nothing starts
    flags = ("--config", "broker.conf", "--listen", "10.0.0.1")
    refused = run("broker", "--json", *flags, cwd=tmp_path)
    lines = [json.loads(line) for line in refused.stderr.splitlines()]
    assert [line["level"] for line in lines] == ["warning"] * many + ["error"]
    assert len({line["message"] for line in lines}) == many + 1


@pytest.mark.parametrize("level", ["debug", "ERROR"])
def test_the_log_level_of_a_server_is_a_flag_or_a_variable(level: str, tmp_path: Path) -> None:
    (tmp_path / "broker.conf").write_text("noSuchKey=1\n")
    flags = ("--json", "--config", "broker.conf", "--listen", "0.0.0.0")
    for more, variables in (
        (("--log-level", level), {}),
        ((), {"SPARROWMQ_LOG_LEVEL": level}),
    ):
        refused = run("broker", *flags, *more, cwd=tmp_path, **variables)
        assert ('"warning"' in refused.stderr) is (level == "debug")


def test_a_log_level_that_does_not_exist_is_refused() -> None:
    refused = run("up", "--log-level", "loud")
    assert refused.returncode == 2
    text = "flag --log-level is 'loud', must be one of debug, info, warning, error"
    assert text in refused.stderr


@pytest.mark.parametrize("command", [("up",), ("broker",), ("nameserver",), ("config", "show")])
def test_a_wrong_log_level_hides_no_other_problem(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("prot = 1\n")
    refused = run(
        *command, "--config", "x.toml", cwd=tmp_path, SPARROWMQ_LOG_LEVEL="loud", SPARROWMQ_DTA="x"
    )
    assert refused.returncode == 2
    assert "Error: 2 settings cannot be used:" in refused.stderr
    text = "\n  environment variable SPARROWMQ_LOG_LEVEL is 'loud', must be one of debug, info,"
    assert text in refused.stderr
    assert "\n  x.toml line 1: prot is not a setting" in refused.stderr
    assert refused.stderr.startswith("warning: environment variable SPARROWMQ_DTA is not known")


def test_a_flag_of_the_other_server_hides_no_other_problem() -> None:
    refused = run("config", "show", "--nameserver-port", "1", "--flush", "maybe")
    assert "flag --nameserver-port is not a setting of a broker\n" in refused.stderr
    assert "flag --flush is 'maybe'" in refused.stderr


@pytest.mark.parametrize(
    ("server", "flag", "says"),
    [
        ("nameserver", "--port", "flag --port is not a setting of a nameserver; did you mean"),
        ("nameserver", "--flush", "flag --flush is not a setting of a nameserver\n"),
        ("broker", "--nameserver-port", "flag --nameserver-port is not a setting of a broker\n"),
    ],
)
def test_config_show_refuses_flags_of_the_other_server(server: str, flag: str, says: str) -> None:
    refused = run("config", "show", server, flag, "1")
    assert refused.returncode == 2
    assert says in refused.stderr
