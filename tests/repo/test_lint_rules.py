"""The linter refuses code that would make the core depend on its machine."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

AMBIENT = {
    "time": "import time\n\nnow = time.time()\n",
    "imported_time": "from time import monotonic\n\nnow = monotonic()\n",
    "datetime": "from datetime import UTC, datetime\n\nnow = datetime.now(UTC)\n",
    "random": "import random\n\npicked = random.choice([1, 2])\n",
    "imported_random": "from random import random\n\nchance = random()\n",
    "environment": "import os\n\nhome = os.environ['HOME']\n",
    "file": "import os\n\nfile = os.open('a', os.O_RDONLY)\n",
    "task": "import asyncio\n\n\ndef go() -> None:\n    asyncio.create_task(None)\n",
}
CORE = ["protocol", "store", "net", "broker", "nameserver", "client"]
READS = "with open('a') as file:\n    file.read()\n"
TAKES_RANDOM = "import random\n\nchance = random.Random(1).random()\n"
PRINTS = "print(1)\n"

PATCHED_PRIVATE = re.compile(
    r'(?:setattr|delattr|patch)\((?:[^()"]+,)?\s*"(?:[\w.]+\.)?_[A-Za-z]\w*"'
)
"""A private that is replaced by its name in a string, which the linter does not see."""

SOURCES = {
    **{f"{package}/{name}.py": source for package in CORE for name, source in AMBIENT.items()},
    "broker/reads.py": READS,
    "broker/takes_random.py": TAKES_RANDOM,
    "broker/prints.py": PRINTS,
    "cli/prints.py": PRINTS,
    "clock.py": "import time\n\nnow = time.time_ns()\n",
}
"""Files of a package sparrowmq that ruff reads in one run: starting it is what costs."""


@pytest.fixture(scope="module")
def complaints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """The rules that ruff, with our configuration, finds broken, by file."""
    folder = tmp_path_factory.mktemp("linted")
    package = folder / "src" / "sparrowmq"
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name, source in SOURCES.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(source)
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format=json", "src"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 1, found.stderr
    broken: dict[str, set[str]] = {name: set() for name in SOURCES}
    for complaint in json.loads(found.stdout):
        path = Path(complaint["filename"]).relative_to(package).as_posix()
        broken[path].add(complaint["code"])
    return broken


@pytest.mark.parametrize("name", AMBIENT)
@pytest.mark.parametrize("package", CORE)
def test_the_core_cannot_ask_for_time_chance_environment_or_files(
    name: str, package: str, complaints: dict[str, set[str]]
) -> None:
    assert "TID251" in complaints[f"{package}/{name}.py"]


def test_the_core_cannot_open_files_by_itself(complaints: dict[str, set[str]]) -> None:
    assert "PTH123" in complaints["broker/reads.py"]


@pytest.mark.parametrize("name", ["broker/takes_random.py", "clock.py"])
def test_a_passed_in_random_and_the_clock_module_are_fine(
    name: str, complaints: dict[str, set[str]]
) -> None:
    assert complaints[name] == set()


def test_printing_is_for_the_command_line_only(complaints: dict[str, set[str]]) -> None:
    assert "T201" in complaints["broker/prints.py"]
    assert complaints["cli/prints.py"] == set()


def test_no_test_replaces_a_private() -> None:
    for path in {*(ROOT / "tests").rglob("*.py")} - {Path(__file__)}:
        found = PATCHED_PRIVATE.findall(path.read_text(encoding="utf-8"))
        assert not found, f"{path} replaces {found}: give it a name that others may use"


@pytest.mark.parametrize(
    ("line", "is_private"),
    [
        ('monkeypatch.setattr(waiting, "_PAGE", 3)', True),
        ('patch.delattr("sparrowmq.console.audit._ROLL_BYTES")', True),
        ('monkeypatch.setattr(waiting, "PAGE", 3)', False),
        ('patch.setattr(kind.__init__, "__defaults__", (1,))', False),
    ],
)
def test_a_replaced_private_is_noticed(line: str, is_private: bool) -> None:
    assert bool(PATCHED_PRIVATE.search(line)) is is_private
