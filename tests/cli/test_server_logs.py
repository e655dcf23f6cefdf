"""What servers log when they start, recover and stop: few lines, each with its figures."""

import re
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cli.in_process import run
from tests.cli.servers import Up, stop, up
from tests.patience import PATIENCE_S


def logged_by(server: Up) -> list[str]:
    """What a server has logged when it was stopped: levels and texts."""
    code, logged = stop(server)
    assert code == 0, logged
    return [re.sub(r"^\S+ \S+ (\S+) +\S+: ", r"\1 ", line) for line in logged.splitlines()]


def test_a_start_and_a_stop_are_a_few_lines_with_figures(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with up(data) as server:
        at = ("--name-servers", server.name_server)
        assert run("topic", "create", "orders", "--queues", "3", *at).returncode == 0
        assert run("send", "orders", "hello", *at).returncode == 0
        first = logged_by(server)
    with up(data) as server:
        second = logged_by(server)
    assert "INFO recovery: the store is empty" in first
    assert "INFO recovery: the last stop was clean; nothing to scan" in second
    (opened,) = (line for line in second if line.startswith(f"INFO opened {data} in "))
    assert re.search(r"in \d+\.\d\d s: log 0 to \d+ \(\d+ B\), 1 topic, 0 groups, 1 queue$", opened)
    text = "INFO stopping: SIGTERM was received; a second signal ends the process at once"
    assert text in second
    (stopped,) = (line for line in second if line.startswith("INFO stopped in "))
    assert re.search(r"s: log synced up to \d+, progress of 0 groups saved$", stopped)
    assert second.index(text) <= 8
    assert len(second) <= 12


def test_a_start_after_a_kill_logs_what_was_scanned(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        assert run("send", "orders", "x", "--name-servers", server.name_server).returncode == 0
        server.process.kill()
        server.process.communicate()
    with up(tmp_path) as server:
        (recovery,) = (line for line in logged_by(server) if "recovery: " in line)
    assert recovery.startswith("INFO recovery: the last stop was not clean; scanned 1 record (")


def test_a_server_uses_the_time_zone_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "FIVE-5")  # five hours ahead of UTC
    with up(tmp_path) as server:
        at = ("--name-servers", server.name_server)
        assert run("send", "orders", "x", "--key", "k", *at).returncode == 0
        stop(server)
    (index,) = (tmp_path / "index").iterdir()
    named = datetime.strptime(index.name[:14], "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    ahead = named - datetime.fromtimestamp(index.stat().st_mtime, UTC)
    assert abs(ahead - timedelta(hours=5)) < timedelta(hours=1)


def test_a_second_signal_ends_a_server_at_once_with_a_log_line(tmp_path: Path) -> None:
    with up(tmp_path) as server:
        server.process.send_signal(signal.SIGSTOP)  # so that both are there when it looks
        server.process.send_signal(signal.SIGTERM)
        server.process.send_signal(signal.SIGINT)
        server.process.send_signal(signal.SIGCONT)
        _, logged = server.process.communicate(timeout=PATIENCE_S)
    assert "stopping: SIG" in logged
    (last,) = (line for line in logged.splitlines() if "ending at once: a second signal" in line)
    number = signal.SIGINT if "SIGINT; the next start recovers" in last else signal.SIGTERM
    assert server.process.returncode == 128 + number
