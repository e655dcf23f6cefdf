"""Commands against a cluster, and what they print, without what differs from run to run.

> topic list            as a pipe gets it: tab-separated (shown as `│`)
$ topic list            as people see it at a terminal
! …                     standard error
(exit 1)                how it ended, unless with 0
@ …                     what happens meanwhile: stage.py
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq import __version__
from sparrowmq.cli.commands.pipeline_options import operator_name
from sparrowmq.cli.shell import Shell
from tests.cli.in_process import Ran, run

_FRAMES_OF_PYTHON = re.compile(r'^  File "[^"]*/lib/python3[^"]*".*\n(?:    .*\n)*', re.MULTILINE)
"""In a stack; they differ from version to version."""
_MASKS = (
    (r"\b\d{8}-\d{6}-[0-9a-f]+\b", "RESET-ID"),
    (re.escape(operator_name()), "OPERATOR"),
    (r"\b127\.0\.0\.1@\d+#\d+", "MEMBER"),
    (r"(?<=consumed│)[\d.]+", "SECONDS"),
    (r"(?<=│\?│)[\d.]+", "SECONDS"),
    (r"\b\d+\.\d+s\b", "SECONDS"),
    (r"(?<=in per s: )[\d.]+", "RATE"),
    (r"(?<=twice in )\d+\.\d+", "SECONDS"),
    # That of the retry topic is taken a little later
    (r"(?<=PYTHON│V5_3_3│)\d+│[\d.]+", "QUEUES│RATE"),
    (r"(?<=PYTHON  V5_3_3  )\d+  [\d.]+", "QUEUES  RATE"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", "TIME"),
    (r"\bthread \d+$", "thread N"),
    (r"File \"[^\"]*/(\w+\.py)\", line \d+", r'File "\1", line N'),
    (r"^\d+ more without code", "N more without code"),
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"\b[0-9A-F]{32}\b", "ID"),
    (r"\b\d+@[\w.-]+", "CLIENT"),
    (r"(?<=Ms\": )\d{13}", "MS"),
    (r"(?<=\"value\": \")\d{8,10}", "CRC"),
    (r"(?<=\"disk\": )0\.\d+", "DISK"),
    (r"(?<=│)0\.\d{3,}(?=│)", "DISK"),
    (r"(?<=│)0\.\d+(?=│[^│]*│TIME)", "DISK"),
    (r"(?<=  )\d+%(?=  )", "DISK"),
    (r"\(\d+%\)|\b\d+% used", "DISK"),
    (r"(?<=disk used│)0\.\d+", "DISK"),
    (re.escape(__version__), "OUR-VERSION"),
)


def ran(line: str, monkeypatch: pytest.MonkeyPatch) -> Ran:
    """How a command of a transcript ends; one that begins with `$` believes in a terminal."""
    with monkeypatch.context() as patch:
        if line.startswith("$"):
            patch.setattr(Shell, "is_terminal", True)
        return run(*shlex.split(line[1:]))


def printed(line: str, ended: Ran) -> Iterator[str]:
    """What it printed, as the transcript has it."""
    text = _FRAMES_OF_PYTHON.sub("", ended.stdout).replace("\t", "│")
    if line.startswith("$"):
        text = re.sub(r" {2,}", "  ", text)  # widths follow from ports and times
    yield from (f"    {masked(each).rstrip() or '~'}" for each in text.splitlines())
    yield from (f"    ! {masked(each)}".rstrip() for each in ended.stderr.splitlines())
    if ended.returncode:
        yield f"    (exit {ended.returncode})"


def masked(text: str) -> str:
    """A line without ports, times and ids, nor the folder of the story."""
    text = text.replace(f"{Path.cwd()}/", "")
    for pattern, word in _MASKS:
        text = re.sub(pattern, word, text)
    return text
