"""Nothing in the repository depends on the machine or the package index it was written with."""

import os
import re
from functools import cache
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, text_of, tracked_files

# Written in pieces, so that this file does not find itself. Apache's tools write below a folder of
# their own among the temporary ones; that name is a fact about Apache, not about a machine.
MACHINE_PATHS = [
    r"/wor" r"k/",
    r"/roo" r"t/",
    r"/tm" r"p/(?!rocketmq/)",
    r"/hom" r"e/\w",
    r"/User" r"s/\w",
    r"/op" r"t/",
]
INDEX_HOSTS = [
    r"pypi\.or" "g",
    r"pythonhosted\.or" "g",
    r"repo1?\.maven",
    r"proxy\.golang",
    r"registry\.npm",
    r"-index-ur" "l ",
]


@pytest.mark.slow
@pytest.mark.parametrize("pattern", MACHINE_PATHS)
def test_no_file_names_a_path_of_a_developers_machine(pattern: str) -> None:
    # A folder of the same name inside the project, such as tests/work/x, does not count.
    assert mentions(r"(?<![\w.\-*}>)])" + pattern) == []


@pytest.mark.parametrize("pattern", INDEX_HOSTS)
def test_no_file_names_a_package_index(pattern: str) -> None:
    assert mentions(pattern) == []


@cache
def texts() -> dict[str, str]:
    """Every text file of the repository by its path."""
    found = {str(path.relative_to(ROOT)): text_of(path) for path in tracked_files()}
    return {name: text for name, text in found.items() if text is not None}


def mentions(pattern: str) -> list[str]:
    """Where the pattern occurs, as path:line."""
    return [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}"
        for name, text in texts().items()
        for match in re.finditer(pattern, text)
    ]


@pytest.mark.parametrize("name", ["dev", ".ci/run"])
def test_what_people_start_is_executable(name: str) -> None:
    path = ROOT / name
    if path.exists() or name == "dev":  # the sdist leaves .ci out
        assert os.access(path, os.X_OK)
        assert path.read_text().startswith("#!/usr/bin/env ")


def test_the_mark_for_typed_packages_is_there() -> None:
    assert (ROOT / "src" / "sparrowmq" / "py.typed").is_file()


def test_the_search_finds_a_planted_path(tmp_path: Path) -> None:
    line = "see " + "/wor" + "k/main"
    assert re.search(r"(?<![\w.\-*}>)])" + MACHINE_PATHS[0], line)
