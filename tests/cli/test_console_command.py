"""`sparrowmq console`, and the console of `sparrowmq up`."""

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from sparrowmq.cli.commands import console
from sparrowmq.cli.contexts import Contexts
from sparrowmq.cli.main import app
from sparrowmq.console.sockets import open_listener
from sparrowmq.testing import Cluster
from tests.cli.in_process import run
from tests.cli.servers import clean_environment
from tests.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--listen", "0.0.0.0"], "give a users file with --users"),
        (["--add-user", "ada"], "--add-user needs the file"),
        (["--users", "missing.txt"], "missing.txt cannot be read"),
    ],
)
def test_what_is_unsafe_or_incomplete_is_refused(
    flags: list[str], says: str, tmp_path: Path
) -> None:
    refused = run("console", "--port", "0", *flags, cwd=tmp_path)
    assert refused.returncode == 2
    assert says in " ".join(refused.stderr.split())


def test_a_password_is_read_from_a_pipe(tmp_path: Path) -> None:
    words = ("console", "--users", "users.txt", "--add-user", "ada")
    added = run(*words, cwd=tmp_path, answer="correct horse\n")
    assert (added.returncode, added.stdout, added.stderr) == (0, "users.txt: ada is a reader\n", "")
    short = run(*words, cwd=tmp_path)
    assert short.returncode == 2
    assert "the password has 0 characters" in " ".join(short.stderr.split())


@pytest.mark.parametrize(
    ("flags", "name", "others"),
    [
        ([], "live", ["staging"]),
        (["--context", "staging"], "staging", ["live"]),
        (["-n", "a:1"], "live", []),
        (["-n", "c:3"], "", []),
        (["-n", "c:3", "--also", "staging"], "", ["staging"]),
        (["--listen", "0.0.0.0", "--users", "u", "--insecure"], "live", []),
        (
            ["--listen", "0.0.0.0", "--users", "u", "--insecure", "--also", "staging"],
            *("live", ["staging"]),
        ),
    ],
)
def test_other_clusters_are_shown_on_loopback_or_when_they_are_named(
    flags: list[str], name: str, others: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = Contexts(path=tmp_path / "sparrowmq" / "contexts.toml")
    contexts.added("live", ("a:1",)).added("staging", ("b:2",)).used("live").write()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    served: list[tuple[str, list[str]]] = []

    def serve(given: object, name: str, others: dict[str, tuple[str, ...]]) -> int:
        served.append((name, sorted(others)))
        return 0

    monkeypatch.setattr(console, "serve_console", serve)
    ended = CliRunner().invoke(app, ["console", *flags])
    assert ended.exit_code == 0, ended.output
    assert served == [(name, others)]


def test_a_cluster_that_has_no_name_is_not_shown_also(tmp_path: Path) -> None:
    refused = run("console", "--also", "nowhere", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--also names the context 'nowhere'" in " ".join(refused.stderr.split())


def test_a_taken_port_means_the_next_free_one() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with open_listener("127.0.0.1", port, or_next=True) as found:
            assert port < found.getsockname()[1] <= port + 20
        with pytest.raises(OSError, match="in use"):
            open_listener("127.0.0.1", port)


def test_up_starts_a_console_names_it_and_takes_it_along(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparrowmq", "up", "--data", str(tmp_path / "data")]
    ports = ["--port", "0", "--nameserver-port", "0", "--console-port", "0"]
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [*command, *ports],
        env=clean_environment() | state,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"console (http://127\.0\.0\.1:\d+)/", line)
        assert found is not None, line
        with urllib.request.urlopen(f"{found[1]}/brokers", timeout=PATIENCE_S) as page:
            assert "broker-a" in page.read().decode()
        process.terminate()
        _, logged = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, logged
    with pytest.raises(OSError):
        urllib.request.urlopen(found[1], timeout=PATIENCE_S)
    assert (tmp_path / "data" / "console" / "history.bin").exists(), "it ended in order"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_console_alone_ends_in_order_by_a_signal_although_a_page_is_open(
    number: signal.Signals, tmp_path: Path, sparrowmq_session_cluster: Cluster
) -> None:
    command = [sys.executable, "-m", "sparrowmq", "console", "--port", "0"]
    at = ["--state", str(tmp_path / "console"), "-n", sparrowmq_session_cluster.name_server]
    with subprocess.Popen(
        [*command, *at],
        env=clean_environment() | {"XDG_STATE_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"^sparrowmq ready: console (http://127\.0\.0\.1:\d+)/", line)
        assert found is not None, line
        with urllib.request.urlopen(f"{found[1]}/live?page=/brokers", timeout=PATIENCE_S) as stream:
            assert stream.readline()
            process.send_signal(number)
            _, logged = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, logged
    assert f"stopping: {number.name} was received" in logged
    assert "Traceback" not in logged
    assert (tmp_path / "console" / "history.bin").exists(), "it ended in order"
