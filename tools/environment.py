"""Creates `.venv` from the lock files, and updates it only where something changed.

    nothing ── create ──▶ empty ── install locks ──▶ locked ── install the project ──▶ ready

Each step ends by writing a stamp with its source; a step whose stamp is missing or different is
repeated. A run that was killed leaves the file `setup-unfinished`, and the next one starts with a
fresh environment, because the old one may be incomplete. A lock keeps two calls apart. All this
runs before anything is installed, so it uses only the standard library.
"""

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tools.progress import follow

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "stamps"
UNFINISHED = ROOT / ".cache" / "setup-unfinished"

NO_VENV = """\
{python} cannot create virtual environments: its module {module} is missing.
  Debian, Ubuntu:  apt-get install python3-venv
  elsewhere:       install venv and pip for that Python, or uv (used when it is on PATH)"""
NO_INSTALL = (
    "{what} failed:\n\n{output}\nCheck that the package index is reachable, and run ./dev again."
)


class SetupFailed(Exception):
    """The environment could not be created; the text says why and what to do."""


@dataclass(frozen=True)
class Step:
    name: str
    source: str
    """What the step depends on; when it changes, the step is due again."""
    act: Callable[[], None]

    @property
    def stamp(self) -> Path:
        return STAMPS / self.name

    @property
    def is_due(self) -> bool:
        return not self.stamp.exists() or self.stamp.read_text() != self.source


def ensure(*locks: str) -> Path:
    """The environment's Python, with the project and the named locks installed.

    Raises SetupFailed. Costs a few file reads if nothing has changed.
    """
    steps = [
        Step("python", f"{_interpreter()} {'uv' if _uv() else 'pip'}", _create),
        *(Step(name, _digest(lock_file(name)), partial(_install, name)) for name in locks),
        Step("project", _digest(ROOT / "pyproject.toml"), _install_project),
    ]
    if _due(steps):
        with _alone():
            _bring_up_to_date(steps)
    return PYTHON


def _due(steps: list[Step]) -> bool:
    return UNFINISHED.exists() or not PYTHON.exists() or any(step.is_due for step in steps)


def _bring_up_to_date(steps: list[Step]) -> None:
    if not _due(steps):  # another call has done it while this one waited
        return
    started = time.monotonic()
    if UNFINISHED.exists() or not PYTHON.exists():
        shutil.rmtree(VENV, ignore_errors=True)
    UNFINISHED.touch()
    try:
        for step in steps:
            if step.is_due:
                step.act()
                STAMPS.mkdir(exist_ok=True)
                step.stamp.write_text(step.source)
    except SetupFailed:
        UNFINISHED.unlink()  # the tool failed by itself and cleaned up: what was there still works
        raise
    UNFINISHED.unlink()
    print(f"dev: environment ready after {time.monotonic() - started:.0f} s", flush=True)


@contextmanager
def _alone() -> Iterator[None]:
    UNFINISHED.parent.mkdir(exist_ok=True)
    with (UNFINISHED.parent / "setup.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("dev: another ./dev is setting up the environment, waiting for it", flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        # pip inherits the lock: if this process is killed, the next one waits for the orphan.
        os.set_inheritable(file.fileno(), True)
        yield


def _create() -> None:
    if _is_usable():
        return
    command = [sys.executable, "-m", "venv", "--clear"]
    if _uv():
        command.append("--without-pip")
    else:
        for module in ("venv", "ensurepip"):
            if importlib.util.find_spec(module) is None:
                raise SetupFailed(NO_VENV.format(python=sys.executable, module=module))
    _run([*command, str(VENV)], f"making .venv with Python {platform.python_version()}")


def _is_usable() -> bool:
    """True for an environment that was created by hand with the same interpreter."""
    if not PYTHON.exists():
        return False
    probe = "import sys; print(sys.base_prefix, sys.version)" + ("" if _uv() else "; import pip")
    found = subprocess.run([PYTHON, "-c", probe], capture_output=True, text=True, check=False)
    return found.returncode == 0 and found.stdout.strip() == _interpreter()


def _install(lock: str) -> None:
    path = lock_file(lock)
    # The lock is complete, so there is nothing to resolve; pip is faster and stricter that way.
    arguments = ["--require-hashes", "--no-deps", "-r", str(path)]
    _run([*_installer(), *arguments], f"installing {path.relative_to(ROOT)}", packages_in(path))


def _install_project() -> None:
    arguments = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    _run([*_installer(), *arguments], "installing the project itself, editable")


def _installer() -> list[str]:
    if uv := _uv():
        return [uv, "pip", "install", "--python", str(PYTHON)]
    return [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]


def _run(command: list[str], title: str, total: int = 0) -> None:
    code, output = follow(command, title, total)
    if code != 0:
        raise SetupFailed(NO_INSTALL.format(what=title, output=output))


def _uv() -> str | None:
    return shutil.which("uv")


def _interpreter() -> str:
    return f"{sys.base_prefix} {sys.version}"


def lock_file(name: str) -> Path:
    """Where the lock of that name is."""
    return ROOT / "locks" / f"{name}.txt"


def packages_in(lock: Path) -> int:
    """How many packages a lock file pins; other lines are indented or comments."""
    return sum(line[:1].isalnum() for line in lock.read_text().splitlines())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
