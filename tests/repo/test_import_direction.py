"""The import contracts of pyproject.toml catch forbidden imports, tried on a skeleton package."""

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
    ("protocol/frame.py", "asyncio"),
    ("protocol/frame.py", "socket"),
    ("protocol/frame.py", "time"),
    ("protocol/frame.py", "random"),
    ("store/log.py", "sparrowmq.net.server"),
    ("net/server.py", "sparrowmq.store.files"),
    ("client/producer.py", "sparrowmq.broker.send"),
    ("client/group/rebalance.py", "sparrowmq.client.consuming.push"),
    ("client/consuming/push.py", "sparrowmq.client.sending.trace"),
    ("nameserver/routing.py", "sparrowmq.client.producer"),
    ("broker/send.py", "sparrowmq.admin.topics"),
    ("console/pages.py", "sparrowmq.spark.source"),
    ("cli/main.py", "sparrowmq.testing.cluster"),
    ("cli/main.py", "sparrowmq.store.log"),
    ("admin/topics.py", "sparrowmq.store.log"),
    ("client/producer.py", "sparrowmq.store.log"),
    ("spark/source.py", "sparrowmq.store.log"),
]


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report about a skeleton with every forbidden import and a package without a layer."""
    files = {**SKELETON, "gossip/ring.py": ""}
    for where, imported in FORBIDDEN:
        files[where] += f"import {imported}\n"
    kept, report = lint_imports(tmp_path_factory.mktemp("skeleton"), files)
    assert not kept
    return report


def lint_imports(folder: Path, files: dict[str, str]) -> tuple[bool, str]:
    """Writes the files as package sparrowmq; True if they keep the contracts, and the report."""
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


@pytest.mark.parametrize(("where", "imported"), FORBIDDEN)
def test_a_forbidden_import_is_reported(where: str, imported: str, broken: str) -> None:
    importer = "sparrowmq." + where.removesuffix(".py").replace("/", ".")
    assert f"{importer} -> {imported} (l." in broken


def test_a_package_without_a_layer_is_reported(broken: str) -> None:
    _, unlisted = broken.split("not listed as layers:")
    assert "- sparrowmq.gossip\n" in unlisted
