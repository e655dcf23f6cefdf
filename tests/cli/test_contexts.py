"""`sparrowmq context …` and `--context`: named clusters, and which one a command reaches."""

import json
import os
import stat
import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparrowmq.cli.contexts import change_contexts, known_contexts
from sparrowmq.cluster_address import find_name_servers
from sparrowmq.testing import Cluster
from tests.cli.in_process import Ran, run, run_impatiently
from tests.patience import PATIENCE_S

AWAY = "127.0.0.1:1"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contexts are kept."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    return tmp_path / "sparrowmq" / "contexts.toml"


def added(name: str, addresses: str = AWAY) -> Ran:
    ran = run("context", "add", name, "--name-servers", addresses)
    assert ran.returncode == 0, ran.stderr
    return ran


def test_contexts_are_added_listed_used_shown_and_removed(home: Path) -> None:
    assert str(home) in added("production", "10.0.0.1:9876,10.0.0.2:9876").stderr
    added("local")
    assert run("context", "use", "production").returncode == 0
    assert run("context", "list").stdout.splitlines() == [
        "NAME\tNAME-SERVERS\tIN-USE",
        "local\t127.0.0.1:1\tno",
        "production\t10.0.0.1:9876, 10.0.0.2:9876\tyes",
    ]
    shown = json.loads(run("context", "show", "--json").stdout)
    assert shown["items"] == [
        {"name": "production", "nameServers": ["10.0.0.1:9876", "10.0.0.2:9876"], "inUse": True}
    ]
    assert run("context", "remove", "production").returncode == 0
    none = run("context", "show")
    assert (none.returncode, none.stdout) == (1, "")
    assert "no context is in use" in none.stderr
    assert [each.split("\t")[0] for each in run("context", "list").stdout.splitlines()] == [
        "NAME",
        "local",
    ]


def test_the_file_is_readable_by_its_owner_only_and_replaced_atomically(home: Path) -> None:
    added("a.b")
    assert stat.S_IMODE(home.stat().st_mode) == 0o600
    before = home.read_text()
    home.parent.chmod(0o500)
    try:
        if os.access(home.parent, os.W_OK):
            pytest.skip("the superuser may write everywhere")
        refused = run("context", "use", "a.b")
    finally:
        home.parent.chmod(0o700)
    assert refused.returncode == 1
    assert "cannot be written" in refused.stderr
    assert home.read_text() == before
    assert [each.name for each in home.parent.iterdir()] == ["contexts.toml"]


def test_contexts_that_are_added_at_the_same_time_are_all_kept(home: Path) -> None:
    names = [f"cluster-{number}" for number in range(8)]
    begun = threading.Barrier(len(names))

    def add(name: str) -> None:
        begun.wait(PATIENCE_S)
        change_contexts(lambda known: known.added(name, ("10.0.0.1:9876",)))

    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(add, names))
    assert sorted(known_contexts().clusters) == names


def test_programs_do_not_follow_the_context_in_use(home: Path) -> None:
    added("production", "10.0.0.1:9876")
    assert run("context", "use", "production").returncode == 0
    assert tomllib.loads(home.read_text())["in-use"] == "production"
    environment = {"XDG_CONFIG_HOME": str(home.parent.parent)}
    assert find_name_servers(environment=environment).addresses == ("127.0.0.1:9876",)
    environment["SPARROWMQ_CONTEXT"] = "production"
    assert find_name_servers(environment=environment).addresses == ("10.0.0.1:9876",)


def test_commands_follow_the_option_then_the_variables_then_the_context_in_use(
    home: Path, sparrowmq_session_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = sparrowmq_session_cluster.name_server
    added("live", there)
    added("away", AWAY)
    assert run("topic", "list", "--context", "live").returncode == 0
    assert run("context", "use", "live").returncode == 0
    assert run("topic", "list").returncode == 0
    for name, value in (("SPARROWMQ_NAME_SERVERS", AWAY), ("SPARROWMQ_CONTEXT", "away")):
        with monkeypatch.context() as variables:
            variables.setenv(name, value)
            assert run("topic", "list", "--context", "live").returncode == 0
            failed = run_impatiently("topic", "list")
            assert failed.returncode == 1
            assert f"({AWAY}, from " in failed.stderr
            assert f"counts more: {AWAY}" in run("context", "show").stderr
    assert run("context", "use", "away").returncode == 0
    failed = run_impatiently("topic", "list")
    assert f"no name server answers ({AWAY}, from context away, in use)" in failed.stderr


def test_a_change_names_the_cluster_it_was_made_in(
    home: Path, sparrowmq_session_cluster: Cluster
) -> None:
    added("live", sparrowmq_session_cluster.name_server)
    made = run("send", "context-topic", "x", "--context", "live")
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("add", "", "-n", AWAY), "'' is not a name for a context; allowed are up to 64 letters"),
        (("add", "../x", "-n", AWAY), "'../x' is not a name for a context"),
        (("add", "x" * 65, "-n", AWAY), "allowed are up to 64 letters"),
        (("add", "x", "-n", ","), "a context needs an address"),
        (("add", "x", "-n", "host"), "'host'"),
        (("add", "known", "-n", "b:1"), f"context known exists, with {AWAY}; to change it, first:"),
        (("use", "knwon"), "'knwon', which is not in "),
        (("remove", "other"), "it has: known"),
        (("show", "other"), "it has: known"),
    ],
)
def test_an_invalid_context_is_refused_and_changes_nothing(
    home: Path, command: tuple[str, ...], said: str
) -> None:
    added("known")
    before = home.read_text()
    refused = run("context", *command)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert said in refused.stderr
    assert home.read_text() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("in-use = 3", "in-use is 3, must be the name of a context"),
        ('in-use = "gone"', "the line in-use names the context 'gone', which is not in "),
        ("[contexts", "cannot be read"),
        ("# caf\xe9", "cannot be read"),  # not UTF-8
    ],
)
def test_a_wrong_file_is_named_and_no_other_cluster_is_used(
    home: Path, text: str, said: str
) -> None:
    home.parent.mkdir()
    home.write_bytes(text.encode("latin-1"))
    refused = run("topic", "list")
    assert refused.returncode == 2
    assert said in refused.stderr
    assert str(home) in refused.stderr


def test_an_address_and_a_context_exclude_each_other(home: Path) -> None:
    added("known")
    refused = run("topic", "list", "-n", AWAY, "--context", "known")
    assert refused.returncode == 2
    assert "--name-servers and --context cannot be combined" in refused.stderr
    unknown = run("topic", "list", "--context", "other")
    assert unknown.returncode == 2
    assert "--context names the context 'other', which is not in" in unknown.stderr
