"""The verbs of `./dev`: each sets up what it needs, then runs the actual program."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tools.browser import find_browser
from tools.environment import ROOT, VENV, SetupFailed, ensure

Verb = Callable[[list[str]], int]

CHECKED = ("dev", "src", "tests", "tools", "bench")
"""What is type-checked, if it exists."""
LOCKS = ("dev", "spark")
"""What tests, checks, the demo and measurements need; all of them use Spark."""
BROWSER_LOCK = "browser"
"""What drives a browser; installed only where there is one to drive."""
WORKERS = "4"
"""Processes of a test run, on the two cores of a small machine: tests also wait for processes and
disks, and three of them leave a sixth of the cores idle."""
SLOW_WORKERS = "6"
"""They wait for Java, killed processes and time-outs; six were not seen to be faster than four."""


def run(arguments: Sequence[str]) -> int:
    """Runs the verb that is the first argument; returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    name, *rest = arguments
    if name not in VERBS:
        print(f"./dev has no verb {name!r}.\n\n{_usage()}", file=sys.stderr)
        return 2
    try:
        return VERBS[name](rest)
    except SetupFailed as error:
        print(f"\ndev: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def demo(arguments: list[str]) -> int:
    """start everything, send, consume with two members, run a Spark pipeline, show the result"""
    return _module("tools.demo", arguments)


def up(arguments: list[str]) -> int:
    """run a name server and a broker on loopback until Ctrl-C"""
    ensure("dev")
    command = VENV / "bin" / "sparrowmq"
    return os.execv(command, [str(command), "up", *arguments])


def test(arguments: list[str]) -> int:
    """run all fast tests, in about four minutes; --slow: all others; arguments go to pytest"""
    # Sets of strings have the same order every time, so that a failure repeats.
    os.environ.setdefault("PYTHONHASHSEED", "0")
    _keep_bytecode()
    # loadgroup: tests/conftest.py decides which tests share a process.
    locks = (*LOCKS, BROWSER_LOCK) if find_browser() else LOCKS
    workers = SLOW_WORKERS if "--slow" in arguments else WORKERS
    return _module("pytest", ["-n", workers, "--dist", "loadgroup", *arguments], locks)


def check(arguments: list[str]) -> int:
    """check format, lint, types and import direction; --fix repairs what it can"""
    if arguments not in ([], ["--fix"]):
        print(f"./dev check takes only --fix, not {arguments}", file=sys.stderr)
        return 2
    scripts = ensure(*LOCKS).parent
    fix = bool(arguments)
    folders = [name for name in CHECKED if (ROOT / name).exists()]
    tools: list[list[str]] = [
        ["ruff", "format", *([] if fix else ["--check"])],
        ["ruff", "check", *(["--fix"] if fix else [])],
        ["mypy", "--strict", *folders],
        ["lint-imports", "--no-logo"],
    ]
    failed = [" ".join(tool[:2]) for tool in tools if _tool(scripts, tool) != 0]
    if failed:
        print(f"\ncheck failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def interop(arguments: list[str]) -> int:
    """run Apache's Java and Go clients against our servers, and our clients against Apache's"""
    return _module("tests.interop", arguments)


def bench(arguments: list[str]) -> int:
    """run benchmarks next to Apache's broker (--quick: two minutes)"""
    return _module("bench", arguments)


def faults(arguments: list[str]) -> int:
    """inject kills, power cuts, damaged files and hostile input; look for lost messages"""
    return _module("tests.faults", arguments)


VERBS: dict[str, Verb] = {
    verb.__name__: verb for verb in (demo, up, test, check, interop, bench, faults)
}


def _usage() -> str:
    lines = [f"  {name:8} {verb.__doc__}" for name, verb in VERBS.items()]
    return "\n".join(["usage: ./dev VERB [arguments]", "", *lines])


def _module(name: str, arguments: list[str], locks: Sequence[str] = LOCKS) -> int:
    """Replaces this process by `python -m name` in the root, so that signals and exit code are its
    own."""
    if name != "pytest" and not _exists(name):
        print(f"dev: {name} does not exist yet", file=sys.stderr)
        return 2
    python = ensure(*locks)
    os.chdir(ROOT)
    return os.execv(python, [str(python), "-m", name, *arguments])


def _keep_bytecode() -> None:
    """Lets Python keep compiled modules, out of sight if the environment asks it not to.

    A test run starts more than a hundred Python processes. Without bytecode each of them compiles
    the package and its dependencies again, and pytest rewrites every assertion in each worker:
    minutes in all.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        os.environ.setdefault("PYTHONPYCACHEPREFIX", str(ROOT / ".cache" / "bytecode"))


def _exists(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def _tool(scripts: Path, command: list[str]) -> int:
    print(f"── {' '.join(command)}", flush=True)
    started = time.monotonic()
    code = subprocess.run([scripts / command[0], *command[1:]], cwd=ROOT, check=False).returncode
    print(f"── {'ok' if code == 0 else 'failed'}, {time.monotonic() - started:.1f} s\n", flush=True)
    return code
