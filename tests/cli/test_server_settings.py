"""Settings of the server commands: shown, explained, and refused before anything starts."""

from pathlib import Path

import pytest

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


def test_config_show_says_where_every_value_comes_from(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("[broker]\nport = 7\n")
    shown = run("config", "show", "--config", "x.toml", "--ha-port", "8", cwd=tmp_path)
    lines = {line.split()[0]: line for line in shown.stdout.splitlines()}
    assert lines["port"].split(maxsplit=1)[1] == "7  (x.toml line 2: [broker] port)"
    assert lines["ha-port"].split(maxsplit=1)[1] == "8  (flag --ha-port)"
    assert lines["flush"].split(maxsplit=1)[1] == "async  (default)"
    names = run("config", "show", "nameserver", cwd=tmp_path)
    assert "nameserver-port" in names.stdout


def test_every_setting_is_explained_by_help() -> None:
    text = run("broker", "--help").stdout
    assert "--flush-interval VALUE" in text
    assert "How long an asynchronously flushed message may stay" in " ".join(text.split())
