"""A class is known by its name alone: two classes of one name would be mistaken for each other."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

SOURCE = ROOT / "src"


def public_classes(text: str) -> list[str]:
    """Names of the classes that a module defines and others may use."""
    return re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE)


def shared_names(files: dict[str, str]) -> dict[str, list[str]]:
    """Class names with more than one file; those of `blocking` are meant to be the same."""
    places = defaultdict(list)
    for path, text in files.items():
        if "/blocking/" not in path:
            for name in public_classes(text):
                places[name].append(path)
    return {name: paths for name, paths in places.items() if len(paths) > 1}


def source_files() -> dict[str, str]:
    return {path.as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


def test_no_two_classes_share_a_name() -> None:
    assert shared_names(source_files()) == {}


@pytest.mark.parametrize(
    ("path", "text", "is_shared"),
    [
        ("src/b.py", "class Window: ...", True),
        ("src/b.py", "class _Window: ...", False),
        ("src/blocking/b.py", "class Window: ...", False),
        ("src/b.py", "def window(): ...", False),
    ],
)
def test_a_shared_name_is_noticed(path: str, text: str, is_shared: bool) -> None:
    files = {"src/a.py": "class Window: ...", path: text}
    assert bool(shared_names(files)) is is_shared


def test_every_class_of_blocking_has_an_asynchronous_one() -> None:
    files = source_files()
    blocking = {
        name
        for path, text in files.items()
        if "/blocking/" in path and not Path(path).name.startswith("facade")
        for name in public_classes(text)
        if not name.endswith("Settings")
    }
    others = {
        name
        for path, text in files.items()
        if "/blocking/" not in path
        for name in public_classes(text)
    }
    assert blocking <= others
