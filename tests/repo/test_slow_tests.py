"""A run takes the fast tests and says how many are left; `--slow` takes those, and properties."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

TESTS = """
import pytest
from hypothesis import given, settings, strategies
from tests.seeds import seeds

def test_fast():
    print("fast ran")

@pytest.mark.slow
def test_slow():
    print("slow ran")

@pytest.mark.parametrize("seed", seeds(3, few=2))
def test_seeded(seed):
    print("seed", seed, "ran")

@given(strategies.integers())
def test_property(number):
    print(settings.default.max_examples, "examples")
"""


def run(folder: Path, *arguments: str) -> str:
    """The output of a run of TESTS with the hooks of this repository's tests."""
    (folder / "test_it.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    command = [sys.executable, "-m", "pytest", "-s", "-v", "-p", "tests.conftest", *arguments]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_run_takes_the_fast_tests_and_ends_with_the_number_of_slow_ones(tmp_path: Path) -> None:
    output = run(tmp_path)
    assert "fast ran" in output
    assert "seed 1 ran" in output
    assert "20 examples" in output
    assert "slow ran" not in output
    assert "seed 2 ran" not in output
    assert output.splitlines()[-1] == "slow tests left for ./dev test --slow: 2"


def test_with_slow_a_run_takes_the_slow_tests_and_repeats_the_properties(tmp_path: Path) -> None:
    output = run(tmp_path, "--slow")
    assert "slow ran" in output
    assert "seed 2 ran" in output
    assert "200 examples" in output
    assert "fast ran" not in output
    assert "seed 1 ran" not in output
    assert "slow tests left" not in output


@pytest.mark.slow
def test_processes_of_a_run_count_the_remaining_tests_once(tmp_path: Path) -> None:
    output = run(tmp_path, "-n", "2", "--dist", "loadgroup")
    assert output.splitlines()[-1] == "slow tests left for ./dev test --slow: 2"
