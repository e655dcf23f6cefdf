"""Ctrl-C ends a command quietly at any moment, also while it is still being imported."""

import signal
import socket
import subprocess
import sys

import pytest

from tests.cli.servers import AS_A_COMMAND, clean_environment
from tests.patience import PATIENCE_S

# Sends itself the signal at the moment in which a module is looked for.
INTERRUPTED = """
import runpy, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, {at_start})
sys.meta_path.insert(0, CtrlC())
runpy.run_module('sparrowmq', run_name='__main__', alter_sys=True)
"""


def interrupted_at(
    module: str, *arguments: str, at_start: str = "signal.default_int_handler"
) -> subprocess.CompletedProcess[str]:
    code = INTERRUPTED.format(module=module, at_start=at_start)
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.parametrize("module", ["click", "sparrowmq.cli.command_group"])
def test_while_the_program_is_imported_it_ends_as_any_other_process(module: str) -> None:
    ran = interrupted_at(module, "--help")
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("sparrowmq.cli.commands.topic", ["topic", "list"]),
        (
            "sparrowmq.broker.server",
            ["up", "--port", "0", "--nameserver-port", "0", "--no-console"],
        ),
    ],
    ids=["topic", "up"],
)
def test_while_a_command_is_imported_it_ends_with_the_code_that_shells_know(
    module: str, arguments: list[str]
) -> None:
    ran = interrupted_at(module, *arguments)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "\n")


@pytest.mark.slow
def test_a_parent_that_ignores_the_signal_is_heeded() -> None:
    ran = interrupted_at("click", "--help", at_start="signal.SIG_IGN")
    assert ran.returncode == 0
    assert ran.stdout.startswith("Usage: ")


def test_a_stopped_pipeline_reports_that_it_can_be_resumed() -> None:
    ran = interrupted_at("sparrowmq.cli.commands.pipeline_archive", "pipeline", "archive")
    assert (ran.returncode, ran.stdout) == (130, "")
    assert ran.stderr == "\nsparrowmq: stopped; run it again to go on\n"


# `sparrowmq send` that announces the moment in which it waits for its standard input.
WAITING = """
import signal, sys
from sparrowmq.cli.main import app

class Announced:
    def __init__(self, real):
        self.buffer, self._real = self, real

    def isatty(self):
        return False

    def read(self):
        print("waiting", flush=True)
        return self._real.read()

signal.signal(signal.SIGINT, signal.{at_start})
sys.stdin = Announced(sys.stdin.buffer)
app(["send", "orders", "-"], prog_name="sparrowmq")
"""


@pytest.mark.parametrize(
    ("number", "at_start", "says"),
    [
        (signal.SIGTERM, "default_int_handler", ""),
        (signal.SIGINT, "default_int_handler", "\n"),
        # Shells let commands in the background ignore Ctrl-C.
        (signal.SIGTERM, "SIG_IGN", ""),
    ],
    ids=["SIGTERM", "SIGINT", "SIGTERM in the background"],
)
def test_a_command_that_waits_ends_quietly_by_a_signal(
    number: signal.Signals, at_start: str, says: str
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAITING.format(at_start=at_start)],
        env=clean_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (128 + number, says)


@pytest.mark.parametrize(("number", "says"), [(signal.SIGTERM, ""), (signal.SIGINT, "\n")])
def test_a_command_that_waits_for_an_answer_ends_quietly_by_a_signal(
    number: signal.Signals, says: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-c", AS_A_COMMAND, "topic", "list", "-n", address],
            env=clean_environment(),
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            silent.settimeout(PATIENCE_S)
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)  # the question that is never answered
                process.send_signal(number)
                _, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (128 + number, says)
