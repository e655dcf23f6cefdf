"""Which Python runs Spark's planning and its tasks. A separate file because every process that
imports anything from `sparrowmq.spark` runs it, executors too: it imports next to nothing.

Spark looks for formats and runs tasks with PYSPARK_DRIVER_PYTHON, PYSPARK_PYTHON or the `python3`
on PATH, in this order, as they are when its Java starts. If a script runs in the Python of a
virtual environment that is not activated, that `python3` is another one, without this package, and
Spark reports DATA_SOURCE_NOT_FOUND. So importing `sparrowmq.spark` sets PYSPARK_PYTHON: the one
exception to the rule that importing has no effect, because a plain `SparkSession.builder` calls
none of our code before its Java starts.
"""

import os
import shutil
import sys
from collections.abc import Mapping, MutableMapping
from pathlib import Path

WORKER_PYTHON = "PYSPARK_PYTHON"
_SPARKS_CHOICE = (
    WORKER_PYTHON,
    "PYSPARK_DRIVER_PYTHON",
    "PYSPARK_GATEWAY_PORT",  # spark-submit has started Java already, with its own choice
)


def prefer_this_python(environ: MutableMapping[str, str], executable: str = sys.executable) -> bool:
    """Set PYSPARK_PYTHON to this Python, unless the user or spark-submit chose one or PATH leads to
    this one anyway. Returns whether it was set."""
    if not executable or any(name in environ for name in _SPARKS_CHOICE):
        return False
    if _is_on_path(executable, environ):
        return False
    environ[WORKER_PYTHON] = executable
    return True


def _is_on_path(executable: str, environ: Mapping[str, str]) -> bool:
    """Whether `python3` is this one. The Pythons of all virtual environments are links to a few
    files, so their folders are compared and not the files."""
    found = shutil.which("python3", path=environ.get("PATH", ""))
    return found is not None and Path(found).parent == Path(executable).parent


IS_OUR_CHOICE = prefer_this_python(os.environ)
"""Whether the import of this module set PYSPARK_PYTHON."""


def set_python_for(
    master: str, environ: MutableMapping[str, str], *, is_our_choice: bool = IS_OUR_CHOICE
) -> None:
    """Choose the Python of our own session: this one for a local master. On a cluster this Python
    may not exist, so there only the user's own choice stays."""
    if master.startswith("local"):
        environ.setdefault(WORKER_PYTHON, sys.executable)
    elif is_our_choice and environ.get(WORKER_PYTHON) == sys.executable:
        del environ[WORKER_PYTHON]
