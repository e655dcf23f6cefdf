"""Every setting, given wrongly in every way, is refused in the words in which it was written.

Generated from the declarations: a new setting is covered by being declared.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import get_origin

import click
import pytest

from sparrowmq.cli.commands import config
from sparrowmq.cli.settings.apache_conf import TAKEN
from sparrowmq.cli.settings.servers import all_settings, nameserver_settings
from sparrowmq.cli.settings.settings import ServerSetting
from sparrowmq.cli.settings.toml_file import SECTIONS
from tests.cli.in_process import run

(CONFIG,) = config.commands()
APACHE = {name: key for key, (name, _) in TAKEN.items()}
FIELD = re.compile("[a-z]_[a-z]")
"""In a name of a field, and in no word of Apache's."""
# Refused by some settings and not by others; a refusal has to name them as well.
DOUBTFUL = ("-1", "0", "1", "70000", "9" * 22, "")

Way = Callable[[ServerSetting, str, Path], tuple[str, list[str]]]
"""Gives a setting a value; how and where it was written, and the flags for it."""


def by_flag(setting: ServerSetting, text: str, folder: Path) -> tuple[str, list[str]]:
    return f"flag --{setting.name}", [f"--{setting.name}={text}"]


def by_variable(setting: ServerSetting, text: str, folder: Path) -> tuple[str, list[str]]:
    return f"environment variable {setting.variable}", []


def by_toml(setting: ServerSetting, text: str, folder: Path) -> tuple[str, list[str]]:
    path = folder / "x.toml"
    section = next(
        (name for name, prefix in SECTIONS.items() if prefix and setting.name.startswith(prefix)),
        "broker",
    )
    key = setting.name.removeprefix(SECTIONS[section])
    path.write_text(f"# mine\n[{section}]\n\n{key} = {json.dumps(text)}\n")
    return f"{path} line 4: [{section}] {key}", ["--config", str(path)]


def by_broker_conf(setting: ServerSetting, text: str, folder: Path) -> tuple[str, list[str]]:
    path = folder / "broker.conf"
    path.write_text(f"# Apache's\n{APACHE[setting.name]}={text}\n")
    return f"{path} line 2: {APACHE[setting.name]}", ["--config", str(path)]


WAYS: dict[str, Way] = {
    "flag": by_flag,
    "variable": by_variable,
    "toml": by_toml,
    "broker.conf": by_broker_conf,
}
CASES = [
    pytest.param(setting, way, id=f"{setting.name} by {way}")
    for setting in all_settings()
    for way in WAYS
    if way != "broker.conf" or setting.name in APACHE
]


def unusable(setting: ServerSetting) -> str:
    """A text that no setting of that kind can have."""
    is_text = setting.kind in (str, Path, Path | None) or get_origin(setting.kind) is tuple
    return "a\x01b" if is_text else "perhaps"


def refused(
    setting: ServerSetting, way: str, text: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> str | None:
    """The error about a value, which begins with what was written; None if it is accepted."""
    written, flags = WAYS[way](setting, text, folder)
    server = "nameserver" if setting in nameserver_settings() else "broker"
    with monkeypatch.context() as patch:
        if way == "variable":
            patch.setenv(setting.variable, text)
        try:
            CONFIG.main(["show", server, *flags], standalone_mode=False)
        except click.UsageError as error:
            said = error.format_message()
            assert said.startswith(f"{written} is {text!r}"), said
            return said.removeprefix(written)
    return None


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "way"), CASES)
def test_a_value_of_the_wrong_kind_is_quoted_with_the_allowed_ones(
    setting: ServerSetting, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(setting, way, unusable(setting), tmp_path, monkeypatch)
    assert said is not None
    assert "must" in said
    assert not FIELD.search(said)


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "way"), CASES)
def test_a_value_out_of_range_is_quoted_with_the_allowed_range(
    setting: ServerSetting, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for text in DOUBTFUL:
        said = refused(setting, way, text, tmp_path, monkeypatch)
        if said is not None:
            assert "must" in said or "is not host:port" in said
            assert not FIELD.search(said)


@pytest.mark.parametrize("setting", nameserver_settings(), ids=lambda each: each.name)
def test_the_short_flag_of_a_name_server_is_reported_as_it_was_written(
    setting: ServerSetting,
) -> None:
    flag = "--" + setting.name.removeprefix("nameserver-")
    ran = run("nameserver", flag, unusable(setting))
    assert ran.returncode == 2
    assert f"Error: flag {flag} is {unusable(setting)!r}, must" in ran.stderr


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--store-merge-gap=-1", "must be 0 to 1MiB"),
        ("--store-merge-gap=1048577", "must be 0 to 1MiB"),
        ("--store-utc-offset=-13h", "must be -12h to 14h"),
        ("--store-utc-offset=15h", "must be -12h to 14h"),
    ],
)
def test_a_number_that_makes_no_sense_is_refused_with_its_range(flag: str, says: str) -> None:
    with pytest.raises(click.UsageError, match=says):
        CONFIG.main(["show", "broker", flag], standalone_mode=False)


@pytest.mark.parametrize("flag", ["--store-merge-gap=1MiB", "--store-utc-offset=-12h"])
def test_the_ends_of_a_range_are_allowed(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    CONFIG.main(["show", "broker", flag], standalone_mode=False)
    name, _, value = flag.removeprefix("--").partition("=")
    shown = {line.split()[0]: line.split()[1] for line in capsys.readouterr().out.splitlines()}
    assert shown[name] == value
