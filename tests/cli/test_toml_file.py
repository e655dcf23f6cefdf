"""A TOML file: every setting with its line, every mistake with a suggestion."""

import re
from pathlib import Path

import pytest

from sparrowmq.cli.settings.servers import all_settings
from sparrowmq.cli.settings.toml_file import lines_of, read_toml

TEXT = '''# a comment
data = "/srv"
name-servers = [
  "a:1",  # the first
  "b:2",
]

store.retention = "1h"
limit = { idle = "3s", max-connections = 7 }

[broker]
broker-name = """
x"""
"port" = 7
[ nameserver ]  # the other
port = 8
'''


def test_every_key_knows_the_line_it_begins_in() -> None:
    assert lines_of(TEXT) == {
        ("data",): 2,
        ("name-servers",): 3,
        ("store", "retention"): 8,
        ("limit", "idle"): 9,
        ("limit", "max-connections"): 9,
        ("broker",): 11,
        ("broker", "broker-name"): 12,
        ("broker", "port"): 14,
        ("nameserver",): 15,
        ("nameserver", "port"): 16,
    }


def test_a_setting_names_its_origin_in_every_spelling(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(TEXT)
    found = read_toml(path, all_settings()).given
    assert found["name-servers"].value == "a:1,b:2"
    assert found["store-retention"].origin == f"{path} line 8: [store] retention"
    assert found["limit-max-connections"].origin == f"{path} line 9: [limit] max-connections"
    assert found["nameserver-port"].origin == f"{path} line 16: [nameserver] port"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prot = 1", "line 1: prot is not a setting; did you mean port? all settings: sparrowmq"),
        ("[broker]\n\nfluhs = 1", "line 3: [broker] fluhs is not a setting; did you mean flush?"),
        (
            "[store]\nretentoin = 1",
            "line 2: [store] retentoin is not a setting; did you mean reten",
        ),
        (
            "[broker]\nretention = 1",
            "[broker] retention is not a setting; did you mean [store] reten",
        ),
        (
            "[broker]\nbrokerName = 'a'",
            "[broker] brokerName is not a setting; did you mean broker-na",
        ),
        ("deleteWhen = 4", "deleteWhen is not a setting; did you mean store-deletion-hour?"),
        (
            "[broker]\nxyzzy = 1",
            "[broker] xyzzy is not a setting; all settings: sparrowmq config sho",
        ),
        ("[borker]\nport = 1", "there is no section [borker]; did you mean [broker]? allowed are"),
        ("[kafka]", "line 1: there is no section [kafka]; allowed are [nameserver], [broker],"),
        ("[[broker]]\nport = 1", "line 1: broker is not a setting"),
        ("[broker]\nport = {}", "line 2: [broker] port is a table, must be a text, number"),
        ("[broker.more]", "line 1: [broker] more is not a setting"),
        ("kafka = {}", "line 1: there is no section [kafka]"),
        ("[broker.more]\nport = 1", "line 2: [broker] more.port is not a setting"),
        (
            "store-retention = 1\n[store]\nretention = 2",
            "line 3: [store] retention is given twice, also as",
        ),
        (
            "[broker]\nlog-level = 'debug'",
            "line 2: [broker] log-level cannot be set in a file, it is a flag of the command, not a"
            " setting: start the server with --log-level, or set SPARROWMQ_LOG_LEVEL",
        ),
        ("log_level = 'debug'", "start the server with --log-level, or set SPARROWMQ_LOG_LEVEL"),
        ("json = true", "line 1: json cannot be set in a file, it is a flag of the command"),
        ("[nameserver]\ninsecure = true", "[nameserver] insecure cannot be set in a file, it is a"),
        ("port = ", "is not TOML: Invalid value"),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_a_suggestion(
    text: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    (problem,) = read_toml(path, all_settings()).problems
    assert says in problem
    assert problem.startswith(str(path))


def test_every_mistake_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text("[broker]\nprot = 1\nport = 7\n[kafka]\na = 1\nb = 2\n[store]\nx = 1\n")
    found = read_toml(path, all_settings())
    lines = [re.sub(r".* (line \d+): .*", r"\1", problem) for problem in found.problems]
    assert lines == ["line 2", "line 5", "line 6", "line 8"]
    assert found.given["port"].value == "7"


@pytest.mark.parametrize(
    "text",
    [
        "[tls]\nenable = true",
        "[broker]\nauthenticationEnabled = true",
        "authorization-enabled = true",
        "[broker]\nacl_enable = true",
        "[broker]\ntls-server-mode = 'enforcing'",
    ],
)
def test_unsupported_security_settings_are_refused_as_such(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    (problem,) = read_toml(path, all_settings()).problems
    assert "but there is no " in problem
    assert "protect the port by other means" in problem
