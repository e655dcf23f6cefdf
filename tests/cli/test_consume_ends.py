"""How `sparrowmq consume` ends: no shown message is repeated, no unshown one is lost."""

import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from zlib import crc32

import pytest

from sparrowmq.testing import Cluster
from tests.cli.in_process import run
from tests.cli.servers import AS_A_COMMAND, running, sparrowmq_on_a_full_disk
from tests.patience import PATIENCE_S


@pytest.fixture
def name_server(sparrowmq_session_cluster: Cluster) -> str:
    return sparrowmq_session_cluster.name_server


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own: the cluster serves others as well."""
    return f"ends-{crc32(request.node.name.encode()):08x}"


def consuming(topic: str, name_server: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """`sparrowmq consume`, killed at the end if it still runs."""
    arguments = ["consume", topic, "--group", f"of-{topic}", "--name-servers", name_server]
    return running([sys.executable, "-c", AS_A_COMMAND, *arguments])


def send(topic: str, name_server: str, body: str) -> None:
    sent = run("send", topic, body, "--sharding-key", "k", "--name-servers", name_server)
    assert sent.returncode == 0, sent.stderr


def shown(process: subprocess.Popen[str]) -> str:
    """The body of the next message."""
    assert process.stdout is not None
    return process.stdout.readline().rpartition(": ")[2].strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_a_signal_the_next_run_resumes_where_this_one_stopped(
    number: signal.Signals, topic: str, name_server: str
) -> None:
    send(topic, name_server, "first")
    with consuming(topic, name_server) as process:
        assert shown(process) == "first"
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (128 + number, "")
    send(topic, name_server, "second")
    with consuming(topic, name_server) as process:
        assert shown(process) == "second"


@pytest.mark.parametrize(("level", "is_more"), [("warning", False), ("debug", True)])
def test_the_log_level_option_sets_the_log_level(
    level: str, is_more: bool, topic: str, name_server: str
) -> None:
    send(topic, name_server, "first")
    at = ("--group", f"of-{topic}", "--name-servers", name_server, "--log-level", level)
    ended = run("consume", topic, "--count", "1", *at)
    assert (ended.returncode, " DEBUG " in ended.stderr) == (0, is_more)


@pytest.mark.slow
def test_a_closed_pipe_ends_it_and_unshown_messages_stay(topic: str, name_server: str) -> None:
    send(topic, name_server, "first")
    with consuming(topic, name_server) as process:
        assert process.stdout is not None
        assert shown(process) == "first"
        process.stdout.close()
        send(topic, name_server, "second")
        assert process.wait(PATIENCE_S) == 1
        assert process.stderr is not None
        assert process.stderr.read() == ""
    with consuming(topic, name_server) as process:
        assert shown(process) == "second"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_messages_that_cannot_be_written_are_not_consumed(topic: str, name_server: str) -> None:
    send(topic, name_server, "first")
    group = ("--group", f"of-{topic}", "--name-servers", name_server)
    ended = sparrowmq_on_a_full_disk("consume", topic, *group)
    assert ended.returncode == 1
    assert ended.stderr.startswith("sparrowmq: messages cannot be written: ")
    assert "No space left" in ended.stderr
    with consuming(topic, name_server) as process:
        assert shown(process) == "first"


def test_a_missing_topic_is_named_with_the_remedy(topic: str, name_server: str) -> None:
    with consuming(topic, name_server) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert f"topic {topic} does not exist" in said
        assert f"sparrowmq topic create {topic}" in said
        send(topic, name_server, "first")
        assert shown(process) == "first"
