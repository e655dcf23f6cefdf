"""The lock files: complete, hashed, in agreement with each other and with pyproject.toml."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

LOCKS = sorted((ROOT / "locks").glob("*.txt"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def pins(lock: Path) -> dict[str, set[str]]:
    """Package name to the versions that a lock pins (more than one where Pythons differ)."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([\w.-]+)==([\w.!+]+)", lock.read_text(), re.MULTILINE):
        found.setdefault(normal(name), set()).add(version)
    return found


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    """The package names of requirement strings."""
    return {normal(re.split(r"[^\w.-]", text, maxsplit=1)[0]) for text in requirements}


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_pin_has_hashes_and_no_line_is_an_option(lock: Path) -> None:
    entries = re.split(r"\n(?=[\w#-])", lock.read_text().strip())
    for entry in entries:
        assert entry.startswith("#") or re.match(r"[\w.-]+==.*--hash=sha256:", entry, re.DOTALL)


def test_the_locks_cover_the_projects_requirements() -> None:
    project, extras = PYPROJECT["project"], PYPROJECT["project"]["optional-dependencies"]
    runtime = names(project["dependencies"])
    dev = names(PYPROJECT["dependency-groups"]["dev"]) | names(extras["console"])
    assert runtime | dev <= pins(ROOT / "locks" / "dev.txt").keys()
    assert runtime | names(extras["spark"]) <= pins(ROOT / "locks" / "spark.txt").keys()


def test_the_locks_agree_on_shared_packages() -> None:
    dev, spark = pins(ROOT / "locks" / "dev.txt"), pins(ROOT / "locks" / "spark.txt")
    assert {name: dev[name] for name in dev.keys() & spark.keys()} == {
        name: spark[name] for name in dev.keys() & spark.keys()
    }
