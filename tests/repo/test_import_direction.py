"""The import contracts of pyproject.toml catch what they are there for, on a skeleton package."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

SKELETON = {
    "clock.py": "import time\n",
    "protocol/frame.py": "from sparrowmq import clock\n",
    "store/log.py": "from sparrowmq.protocol import frame\n",
    "store/files.py": "",
    "net/server.py": "from sparrowmq.protocol import frame\n",
    "broker/send.py": "from sparrowmq.store import log\nfrom sparrowmq.net import server\n",
    "nameserver/routing.py": "from sparrowmq.net import server\n",
    "client/producer.py": "from sparrowmq.net import server\n",
    "client/group/rebalance.py": "",
    "client/consuming/push.py": "from sparrowmq.client.group import rebalance\n",
    "client/sending/trace.py": "from sparrowmq.client import producer\n",
    "admin/topics.py": "from sparrowmq.client import producer\n",
    "console/pages.py": "from sparrowmq.admin import topics\n",
    "spark/source.py": "from sparrowmq.client import producer\nfrom sparrowmq.store import files\n",
    "cli/main.py": "from sparrowmq.broker import send\nfrom sparrowmq.store import files\n",
    "testing/cluster.py": "from sparrowmq.broker import send\nfrom sparrowmq.store import log\n",
}

FORBIDDEN = [
    ("protocol/frame.py", "import asyncio"),
    ("protocol/frame.py", "import socket"),
    ("protocol/frame.py", "from time import time"),
    ("protocol/frame.py", "import random"),
    ("store/log.py", "from sparrowmq.net import server"),
    ("net/server.py", "from sparrowmq.store import files"),
    ("client/producer.py", "from sparrowmq.broker import send"),
    ("client/group/rebalance.py", "from sparrowmq.client.consuming import push"),
    ("client/consuming/push.py", "from sparrowmq.client.sending import trace"),
    ("nameserver/routing.py", "from sparrowmq.client import producer"),
    ("broker/send.py", "from sparrowmq.admin import topics"),
    ("console/pages.py", "from sparrowmq.spark import source"),
    ("cli/main.py", "from sparrowmq.testing import cluster"),
    ("cli/main.py", "from sparrowmq.store import log"),
    ("admin/topics.py", "from sparrowmq.store import log"),
    ("client/producer.py", "from sparrowmq.store import log"),
    ("spark/source.py", "from sparrowmq.store import log"),
]


def lint_imports(folder: Path, files: dict[str, str]) -> tuple[bool, str]:
    """Writes the files as package sparrowmq and checks them with the project's contracts."""
    package = folder / "sparrowmq"
    for name, source in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(source)
    run = "from importlinter.cli import lint_imports_command as lint; lint()"
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache", "--no-logo"]
    done = subprocess.run(
        [sys.executable, "-c", run, *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "sparrowmq" in done.stdout or "Contracts" in done.stdout, done.stdout + done.stderr
    return done.returncode == 0, done.stdout


def test_the_intended_directions_are_allowed(tmp_path: Path) -> None:
    kept, report = lint_imports(tmp_path, SKELETON)
    assert kept, report


@pytest.mark.parametrize(("where", "line"), FORBIDDEN)
def test_a_forbidden_import_is_reported(where: str, line: str, tmp_path: Path) -> None:
    kept, report = lint_imports(tmp_path, {**SKELETON, where: SKELETON[where] + line + "\n"})
    assert not kept
    assert "sparrowmq." + where.removesuffix(".py").replace("/", ".") in report


def test_a_package_without_a_layer_is_reported(tmp_path: Path) -> None:
    kept, report = lint_imports(tmp_path, {**SKELETON, "gossip/ring.py": ""})
    assert not kept
    assert "gossip" in report
