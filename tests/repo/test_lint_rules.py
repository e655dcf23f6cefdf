"""The linter refuses what would make the core depend on the machine it runs on."""

import subprocess
import sys

import pytest

from tests.repo.tree import ROOT


def complaints(source: str, path: str) -> set[str]:
    """The rules that ruff, with our configuration, finds broken in a file of that path."""
    found = subprocess.run(
        [
            sys.executable,
            "-m",
            "ruff",
            "check",
            "--output-format=concise",
            "--stdin-filename",
            path,
            "-",
        ],
        input=source,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode in (0, 1), found.stderr
    return {line.split()[1] for line in found.stdout.splitlines() if line.startswith(path)}


AMBIENT = [
    "import time\n\nnow = time.time()\n",
    "from time import monotonic\n\nnow = monotonic()\n",
    "from datetime import UTC, datetime\n\nnow = datetime.now(UTC)\n",
    "import random\n\npicked = random.choice([1, 2])\n",
    "from random import random\n\nchance = random()\n",
    "import os\n\nhome = os.environ['HOME']\n",
    "import os\n\nfile = os.open('a', os.O_RDONLY)\n",
    "import asyncio\n\n\ndef go() -> None:\n    asyncio.create_task(None)\n",
]


@pytest.mark.parametrize("source", AMBIENT)
@pytest.mark.parametrize("package", ["protocol", "store", "net", "broker", "nameserver", "client"])
def test_the_core_cannot_ask_for_time_chance_environment_or_files(
    source: str, package: str
) -> None:
    assert "TID251" in complaints(source, f"src/sparrowmq/{package}/thing.py")


def test_the_core_cannot_open_files_by_itself() -> None:
    source = "with open('a') as file:\n    file.read()\n"
    assert "PTH123" in complaints(source, "src/sparrowmq/broker/thing.py")


def test_a_passed_in_random_and_the_clock_module_are_fine() -> None:
    source = "import random\n\nchance = random.Random(1).random()\n"
    assert complaints(source, "src/sparrowmq/broker/thing.py") == set()
    assert complaints("import time\n\nnow = time.time_ns()\n", "src/sparrowmq/clock.py") == set()


def test_printing_is_for_the_command_line_only() -> None:
    assert "T201" in complaints("print(1)\n", "src/sparrowmq/broker/thing.py")
    assert complaints("print(1)\n", "src/sparrowmq/cli/thing.py") == set()
