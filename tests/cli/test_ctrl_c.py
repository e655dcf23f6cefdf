"""Ctrl-C ends a command quietly at any moment, also while it is still being imported."""

import signal
import subprocess
import sys

import pytest

from tests.cli.servers import clean_environment
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
        ("sparrowmq.broker.server", ["up", "--port", "0", "--nameserver-port", "0"]),
    ],
    ids=["topic", "up"],
)
def test_while_a_command_is_imported_it_ends_with_the_code_that_shells_know(
    module: str, arguments: list[str]
) -> None:
    ran = interrupted_at(module, *arguments)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "\n")


def test_a_parent_that_ignores_the_signal_is_heeded() -> None:
    ran = interrupted_at("click", "--help", at_start="signal.SIG_IGN")
    assert ran.returncode == 0
    assert ran.stdout.startswith("Usage: ")
