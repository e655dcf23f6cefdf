"""How `sparrowmq consume` ends: nothing that was shown comes again, nothing unshown is lost."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.servers import (
    AS_A_COMMAND,
    clean_environment,
    sparrowmq,
    sparrowmq_on_a_full_disk,
    up,
)
from tests.patience import PATIENCE_S


@contextmanager
def consuming(name_server: str) -> Iterator[subprocess.Popen[str]]:
    """`sparrowmq consume`, killed at the end if it still runs."""
    arguments = ["consume", "orders", "--group", "g", "--name-servers", name_server]
    with subprocess.Popen(
        [sys.executable, "-c", AS_A_COMMAND, *arguments],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def send(name_server: str, body: str) -> None:
    sent = sparrowmq("send", "orders", body, "--sharding-key", "k", "--name-servers", name_server)
    assert sent.returncode == 0, sent.stderr


def shown(process: subprocess.Popen[str]) -> str:
    """The body of the next message."""
    assert process.stdout is not None
    return process.stdout.readline().rpartition(": ")[2].strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_the_next_run_goes_on_where_this_one_was(
    number: signal.Signals, tmp_path: Path
) -> None:
    with up(tmp_path / "data") as server:
        send(server.name_server, "first")
        with consuming(server.name_server) as process:
            assert shown(process) == "first"
            process.send_signal(number)
            _, said = process.communicate(timeout=PATIENCE_S)
        assert (process.returncode, said) == (128 + number, "")
        send(server.name_server, "second")
        with consuming(server.name_server) as process:
            assert shown(process) == "second"


def test_a_reader_that_is_gone_ends_it_and_what_it_did_not_see_stays(tmp_path: Path) -> None:
    with up(tmp_path / "data") as server:
        send(server.name_server, "first")
        with consuming(server.name_server) as process:
            assert process.stdout is not None
            assert shown(process) == "first"
            process.stdout.close()
            send(server.name_server, "second")
            assert process.wait(PATIENCE_S) == 1
            assert process.stderr is not None
            assert process.stderr.read() == ""
        with consuming(server.name_server) as process:
            assert shown(process) == "second"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_messages_that_cannot_be_written_are_not_consumed(tmp_path: Path) -> None:
    with up(tmp_path / "data") as server:
        at = ("--name-servers", server.name_server)
        send(server.name_server, "first")
        ended = sparrowmq_on_a_full_disk("consume", "orders", "--group", "g", *at)
        assert ended.returncode == 1
        assert ended.stderr.startswith("sparrowmq: messages cannot be written: ")
        assert "No space left" in ended.stderr
        with consuming(server.name_server) as process:
            assert shown(process) == "first"


def test_a_topic_that_does_not_exist_is_named_with_the_remedy(tmp_path: Path) -> None:
    with up(tmp_path / "data") as server, consuming(server.name_server) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "topic orders does not exist" in said
        assert "sparrowmq topic create orders" in said
        send(server.name_server, "first")
        assert shown(process) == "first"
