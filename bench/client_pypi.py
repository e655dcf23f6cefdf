"""The RocketMQ clients on PyPI, and whether they can be measured here at all."""

import subprocess
import venv
from pathlib import Path

_LONGEST_S = 180
_NEEDED = {
    "rocketmq-client-python": "from rocketmq.client import Producer",
    "rocketmq-python-client": "from rocketmq import Producer; import grpc",
}
"""What is installed, and what a program would import of it."""


def found_out(folder: Path) -> dict[str, str]:
    """Install each where nothing else is, import it, and say in a sentence what came of it."""
    return {name: _tried(folder / name, name, code) for name, code in _NEEDED.items()}


def _tried(folder: Path, name: str, code: str) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    try:
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", name]
        installed = _run(pip)
        if installed.returncode != 0:
            return f"does not install: {_last_line(installed)}"
        imported = _run([python, "-c", code])
    except subprocess.TimeoutExpired:
        return f"does not install: no end after {_LONGEST_S} s"
    if imported.returncode != 0:
        return f"installs, but cannot be used: {_last_line(imported)}"
    if "grpc" in code:
        return "installs, but speaks gRPC only: it needs Apache's proxy in front of a broker"
    return "installs and can be imported; nobody wrote its measurement yet"


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST_S)


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit {done.returncode}"
