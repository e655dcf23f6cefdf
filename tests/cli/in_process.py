"""Commands run inside of the test: no interpreter to start, and a failure is an exception here."""

import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import app
from tests.patience import be_patient


class Ran(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


def run(
    *arguments: str, cwd: Path | None = None, answer: str | bytes = "", **variables: str
) -> Ran:
    """Run a command to its end, with these environment variables; `answer` is standard input."""
    return _run(*arguments, cwd=cwd, answer=answer, is_patient=True, variables=variables)


def run_impatiently(*arguments: str) -> Ran:
    """The same, giving up as it would for a user: for tests in which no server answers."""
    return _run(*arguments, cwd=None, answer="", is_patient=False, variables={})


def _run(
    *arguments: str,
    cwd: Path | None,
    answer: str | bytes,
    is_patient: bool,
    variables: dict[str, str],
) -> Ran:
    with ExitStack() as stack:
        stack.enter_context(_own_logs())
        stack.enter_context(own_signals())
        if is_patient:
            be_patient(stack.enter_context(pytest.MonkeyPatch.context()).setitem)
        if cwd is not None:
            stack.enter_context(chdir(cwd))
        ended = CliRunner().invoke(
            app, list(arguments), prog_name="sparrowmq", input=answer, env=variables
        )
    if ended.exception is not None and not isinstance(ended.exception, SystemExit):
        raise ended.exception
    return Ran(ended.exit_code, ended.stdout, ended.stderr)


@contextmanager
def own_signals() -> Iterator[None]:
    """Servers handle signals until their process ends; here others follow, and expect to."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            if signal.getsignal(number) is not handler:  # never in threads, which may not
                signal.signal(number, handler)


@contextmanager
def _own_logs() -> Iterator[None]:
    """Servers set up the logs of their process; those of the test are put back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
