"""`sparrowmq send` sends any body byte for byte, however it is given."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sparrowmq.testing import Cluster
from tests.cli.in_process import run
from tests.cli.servers import AS_A_COMMAND, clean_environment
from tests.patience import PATIENCE_S
from tests.seeds import in_part

BINARY = bytes(range(1, 256))  # no argument can hold a zero
TEXT = "größer ✓".encode()


@pytest.fixture
def at(sparrowmq_session_cluster: Cluster) -> tuple[str, str]:
    return ("--name-servers", sparrowmq_session_cluster.name_server)


def shown(body: bytes) -> str:
    """A body in one line: bytes that are not text or would control a terminal as \\xNN."""
    text = body.decode("utf-8", "backslashreplace")
    return re.sub("[\x00-\x08\x0a-\x1f\x7f-\x9f]", lambda each: f"\\x{ord(each[0]):02x}", text)


def consumed(topic: str, at: tuple[str, str]) -> str:
    """The body as `consume` shows it."""
    got = run("consume", topic, "--group", f"of-{topic}", "--count", "1", *at)
    assert got.returncode == 0, got.stderr
    return got.stdout.partition(": ")[2].removesuffix("\n")


@pytest.mark.parametrize("body", [BINARY, TEXT], ids=["binary", "text"])
@pytest.mark.parametrize("way", ["file", "stdin", "dash", "file-dash"])
def test_a_body_from_a_file_or_standard_input_is_sent_as_it_is(
    way: str, body: bytes, at: tuple[str, str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    topic = f"body-{request.node.callspec.id}"
    path = tmp_path / "body"
    path.write_bytes(body)
    words = {
        "file": ["--file", str(path)],
        "stdin": [],
        "dash": ["-"],
        "file-dash": ["--file", "-"],
    }
    sent = run("send", topic, *words[way], *at, answer=b"" if way == "file" else body)
    assert sent.returncode == 0, sent.stderr
    assert consumed(topic, at) == shown(body)


@pytest.mark.skipif(os.name == "nt", reason="arguments are text there")
@pytest.mark.parametrize("body", [BINARY, TEXT], ids=["binary", "text"])
@pytest.mark.parametrize("encoding", in_part(["latin-1", "utf-8"], few=1))
def test_an_argument_is_sent_unchanged_in_any_locale(
    body: bytes, encoding: str, at: tuple[str, str], request: pytest.FixtureRequest
) -> None:
    topic = f"argument-{request.node.callspec.id}"
    mode = {"PYTHONUTF8": "1"} if encoding == "utf-8" else {"PYTHONUTF8": "0", "LC_ALL": "C.ISO"}
    sent = subprocess.run(
        [sys.executable, "-c", AS_A_COMMAND, "send", topic, body, *at],
        env=clean_environment() | mode,
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert sent.returncode == 0, sent.stderr
    assert consumed(topic, at) == shown(body)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["text", "--file", "x"], "BODY and --file cannot be combined"),
        (["--file", "missing"], "'missing' does not exist"),
        (["--file", "empty"], "the message is empty"),
        (["--file", "."], "is a directory"),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(words: list[str], says: str, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "empty").touch()
    refused = run("send", "orders", *words, cwd=tmp_path)
    assert refused.returncode == 2
    assert says in refused.stderr


def test_a_tag_that_is_not_text_is_refused_without_a_traceback(at: tuple[str, str]) -> None:
    refused = run("send", "orders", "x", "--tag", os.fsdecode(b"\xff"), *at)
    assert refused.returncode in (1, 2)
    assert "Traceback" not in refused.stderr


def test_a_send_that_creates_a_topic_reports_it(at: tuple[str, str]) -> None:
    said = [run("send", "ordrs", "x", "--count", "2", *at).stderr for _ in range(2)]
    assert said == [f"topic ordrs was created by this message (name servers {at[1]})\n", ""]
