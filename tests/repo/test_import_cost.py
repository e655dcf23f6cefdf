"""`import sparrowmq` is cheap, and clients import on every system: a command or a Spark worker pays
only for what it uses."""

import subprocess
import sys

import pytest

MODULES = "import sys, sparrowmq; print(*sys.modules)"
WITHOUT_POSIX = """
import asyncio, concurrent.futures, logging, multiprocessing, ssl, subprocess, sys, tempfile
sys.modules.update(dict.fromkeys(("fcntl", "resource", "pwd", "grp", "termios", "syslog")))
import sparrowmq, sparrowmq.blocking
for package in (sparrowmq, sparrowmq.blocking):
    for name in package.__all__:
        getattr(package, name)
print("ok")
"""
"""As on Windows, whose standard library lacks these modules."""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    """Every module that a bare import loads."""
    shown = subprocess.run(
        [sys.executable, "-c", MODULES], capture_output=True, text=True, check=True
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize(
    "heavy",
    ["asyncio", "typer", "click", "rich", "lark", "starlette", "uvicorn", "pyspark", "pyarrow"],
)
def test_importing_the_package_does_not_load(heavy: str, loaded: set[str]) -> None:
    assert heavy not in loaded


def test_clients_do_not_need_modules_of_posix() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX], capture_output=True, text=True, check=False
    )
    assert ran.stdout == "ok\n", ran.stderr


def test_the_version_is_a_semantic_version() -> None:
    import sparrowmq

    parts = sparrowmq.__version__.split(".")
    assert len(parts) == 3
    assert all(part.isdecimal() for part in parts)
