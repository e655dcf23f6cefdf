"""Logs and warnings on standard error: for people, or one JSON object per line."""

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import click
from click.core import ParameterSource

from sparrowmq.json_lines import JsonLines

Warn: TypeAlias = Callable[[str], None]
"""Reports a problem that does not stop a command."""

LOG_LEVEL_VARIABLE = "SPARROWMQ_LOG_LEVEL"
_PER_TEMPLATE = 20
_WINDOW_MS = 10_000


class FloodGate(logging.Filter):
    """Lets a message template through a few times per window, and says when it holds back more."""

    def __init__(self, most: int = _PER_TEMPLATE, window_ms: int = _WINDOW_MS) -> None:
        super().__init__()
        self._most = most
        self._window_ms = window_ms
        self._window = 0
        self._seen: Counter[str] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to write a record."""
        window = int(record.created * 1000) // self._window_ms
        if window != self._window:
            self._window = window
            self._seen.clear()
        template = str(record.msg)
        self._seen[template] += 1
        count = self._seen[template]
        if count == self._most:
            record.msg = f"{record.getMessage()} (more of these follow; held back for some seconds)"
            record.args = ()
        return count <= self._most


def set_up_logs(*, as_json: bool = False, level: str = "info") -> None:
    """Send every log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(FloodGate())
    people = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if as_json else people)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


# ---- the option --log-level

_LEVELS = ("debug", "info", "warning", "error")
_LOG_LEVEL: dict[str, Any] = {
    "metavar": "LEVEL",
    "show_default": True,
    "envvar": LOG_LEVEL_VARIABLE,
    "help": "One of debug, info, warning, error.",
}


class LogLevel(NamedTuple):
    """The level that a server logs at, and a problem for which it must not start."""

    level: str
    problem: str = ""


def log_level_option() -> click.Option:
    """The option for servers, which set up their logs themselves, and report a wrong level together
    with all other problems of their settings."""
    return click.Option(["--log-level"], default="info", callback=_read_level, **_LOG_LEVEL)


def _read_level(ctx: click.Context, param: click.Parameter, text: str) -> LogLevel:
    if text.lower() in _LEVELS:
        return LogLevel(text.lower())
    is_flag = ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE
    origin = "flag --log-level" if is_flag else f"environment variable {LOG_LEVEL_VARIABLE}"
    return LogLevel("info", f"{origin} is {text!r}, must be one of {', '.join(_LEVELS)}")


def _set_up(ctx: click.Context, param: click.Parameter, level: str) -> None:
    """Set up logs until the command ends: a program with its own logs may have called it."""
    root = logging.getLogger()
    handlers, before = root.handlers[:], root.level
    root.handlers[:] = []  # `force` would close them
    set_up_logs(level=level)

    def restore() -> None:
        root.handlers[:] = handlers
        root.setLevel(before)

    ctx.call_on_close(restore)


with_log_level = click.option(
    "--log-level",
    type=click.Choice(_LEVELS, case_sensitive=False),
    default="warning",
    expose_value=False,
    callback=_set_up,
    **_LOG_LEVEL,
)
"""For long-running commands; their logs are set up before they start."""


# ---- warnings and errors of commands


@contextmanager
def without_client_warnings() -> Iterator[None]:
    """For a block whose failure the command reports itself: a client's warning says the same.

    A level below warning was requested explicitly and still applies.
    """
    logger = logging.getLogger("sparrowmq.client")
    before = logger.level
    if logging.getLogger().level >= logging.WARNING:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


def print_warning(text: str) -> None:
    """Print a warning for people."""
    click.echo(f"warning: {text}", err=True)


def log_warning(text: str) -> None:
    """Write a warning to the log, for programs that read it."""
    # The text itself is the template: warnings with one template would count as a flood.
    logging.getLogger("sparrowmq").warning(text)


def log_error(text: str) -> None:
    """Write to the log why a command ends."""
    logging.getLogger("sparrowmq").error(text)
