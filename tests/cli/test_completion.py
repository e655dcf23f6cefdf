"""Shells complete commands, options and the names of topics and groups, without ever printing."""

import json
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from sparrowmq.cli.completion import FRESH_MS, CachedNames
from sparrowmq.cli.main import app
from sparrowmq.testing import Cluster
from tests.cli.in_process import run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "sparrowmq"


def completed(*words: str) -> list[str]:
    """What a shell offers for the last word."""
    shell = BashComplete(app, {}, "sparrowmq", "_SPARROWMQ_COMPLETE")
    return [each.value for each in shell.get_completions(list(words[:-1]), words[-1])]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(shell: str) -> None:
    script = run("completion", shell)
    assert script.returncode == 0
    assert f"_SPARROWMQ_COMPLETE={shell}_complete" in script.stdout


def test_another_shell_is_refused_with_those_there_are() -> None:
    refused = run("completion", "tcsh")
    assert refused.returncode == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in refused.stderr


def test_commands_and_options_are_completed() -> None:
    assert completed("top") == ["topic"]
    assert "update" in completed("topic", "")
    assert "--dry-run" in completed("topic", "update", "--d")
    assert completed("broker", "cl") == ["clean"]
    assert completed("broker", "--por") == ["--port"]
    assert "--dry-run" in completed("broker", "config", "set", "--")


def test_names_of_topics_and_groups_come_from_the_cluster_that_is_named(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    for name in ("complete-a", "complete-b"):
        assert run("topic", "create", name, *at).returncode == 0
    assert completed("topic", "show", *at, "complete-") == ["complete-a", "complete-b"]
    assert completed("send", *at, "complete-b") == ["complete-b"]
    one = ("consume", "complete-a", "--group", "complete-g", "--timeout", "10ms")
    assert run(*one, *at).returncode == 0
    assert completed("client", "list", *at, "--group", "complete-") == ["complete-g"]


def test_names_of_brokers_and_groups_are_completed_where_commands_take_them(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    for name in ("complete-h", "complete-i"):
        assert run("group", "create", name, *at).returncode == 0
    assert run("topic", "create", "complete-t", *at).returncode == 0
    for words, found in (
        (("broker", "show", *at, "bro"), ["broker-a"]),
        (("broker", "config", "get", *at, ""), ["broker-a"]),
        (("broker", "promote", *at, ""), ["broker-a"]),
        (("slave", "retire", *at, ""), ["broker-a"]),
        (("topic", "update", "orders", *at, "--broker", "b"), ["broker-a"]),
        (("group", "create", "new", *at, "--broker", "b"), ["broker-a"]),
        *(
            (("group", verb, *at, "complete-h"), ["complete-h"])
            for verb in (
                *("show", "update", "delete", "lag", "members", "subscriptions", "reset"),
                *("undo", "clone", "pause", "resume"),
            )
        ),
        (("group", "clone", "complete-h", *at, "complete-i"), ["complete-i"]),
        (("group", "create", *at, "complete-h"), []),
        (("group", "reset", "complete-h", *at, "--topic", "complete-t"), ["complete-t"]),
        (("message", "get", *at, "complete-t"), ["complete-t"]),
        (("message", "deliver", "0", *at, "--group", "complete-i"), ["complete-i"]),
        (("doctor", *at, "gr"), ["group"]),
        (("doctor", "group", *at, "complete-h"), ["complete-h"]),
        (("doctor", "topic", *at, "complete-t"), ["complete-t"]),
        (("doctor", "message", *at, ""), []),
        (("dlq", "show", *at, "complete-"), []),
        (("broker", "drain", *at, "bro"), ["broker-a"]),
        (("broker", "drain", "broker-a", *at, "--ignore-group", "complete-h"), ["complete-h"]),
        (("broker", "resume", *at, ""), ["broker-a"]),
        (("slave", "list", *at, ""), ["broker-a"]),
        (("topic", "spread", "orders", *at, "--broker", "b"), ["broker-a"]),
        (("quota", "set", *at, "topic", "complete-t"), ["complete-t"]),
        (("quota", "set", *at, "consumer-group", "complete-h"), ["complete-h"]),
        (("quota", "set", *at, "producer-group", "complete-"), []),
        (("quota", "unset", *at, "topic", "complete-t"), ["complete-t"]),
        (("quota", "set", "topic", "orders", *at, "--group", "complete-i"), ["complete-i"]),
        (("quota", "set", "topic", "orders", *at, "--broker", "b"), ["broker-a"]),
        (("pipeline", "drain", *at, "complete-t"), ["complete-t"]),
        (("pipeline", "replay", *at, "complete-t"), ["complete-t"]),
    ):
        assert completed(*words) == found, words


def test_contexts_are_completed_without_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert completed("context", "use", "") == []
    for name in ("production", "staging"):
        assert run("context", "add", name, "--name-servers", "10.0.0.1:9876").returncode == 0
    for words in (
        *(("context", verb, "pro") for verb in ("show", "use", "remove")),
        ("topic", "list", "--context", "pro"),
        ("migrate", "plan", "pro"),
        ("migrate", "run", "staging", "pro"),
    ):
        assert completed(*words) == ["production"], words
    assert completed("context", "add", "pro") == []
    (tmp_path / "sparrowmq" / "contexts.toml").write_text("[")
    assert completed("context", "use", "") == []


def test_a_silent_cluster_has_no_names_and_nothing_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert completed("topic", "show", "-n", "127.0.0.1:1", "") == []
    assert completed("topic", "show", "-n", "nonsense", "") == []
    assert capfd.readouterr() == ("", "")


def test_names_are_kept_for_a_while_and_a_broken_file_is_ignored(cache: Path) -> None:
    now_ms = 1_000_000
    names = CachedNames(cache, lambda: now_ms)

    def found() -> list[str]:
        return names.get("127.0.0.1:1", "topics", lambda admin: admin.topics())

    assert found() == []
    (path,) = cache.iterdir()
    path.write_text(json.dumps({"at": now_ms, "names": ["orders"]}))
    assert found() == ["orders"]
    now_ms += FRESH_MS
    assert found() == []
    path.write_text("{")
    assert found() == []
