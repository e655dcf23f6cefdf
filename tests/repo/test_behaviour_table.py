"""The table of worked examples in docs/behaviour.md is well-formed and names tests that exist."""

import ast
import re
from pathlib import Path

import pytest

from tests.repo.tree import ROOT

DOCUMENT = ROOT / "docs" / "behaviour.md"
HEADING = "## Worked examples"
NOT_YET = "not yet"
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows(document: str) -> list[list[str]]:
    """The cells of each row below the heading, header and separator left out."""
    _, _, section = document.partition(HEADING)
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines[2:]]


def complaint_about(cells: list[str], root: Path) -> str | None:
    """What is wrong with a row, None for a good one."""
    if len(cells) != 3:
        return f"{len(cells)} cells instead of 3"
    rule, example, shown_by = cells
    if not re.fullmatch(r"[1-8]\.\d+", rule):
        return f"rule {rule!r} is not a number such as 4.7"
    if not example:
        return "no example"
    if shown_by == NOT_YET:
        return None
    parts = [part.strip() for part in shown_by.split(",")]
    return next(filter(None, (_complaint_about_reference(part, root) for part in parts)), None)


def _complaint_about_reference(text: str, root: Path) -> str | None:
    match = REFERENCE.fullmatch(text)
    if match is None:
        return f"{text!r} is neither `tests/….py::test_…` in backquotes nor {NOT_YET!r}"
    path, name = match.groups()
    if not (root / path).is_file():
        return f"there is no {path}"
    if name not in _functions(root / path):
        return f"{path} has no {name}"
    return None


def _functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(tree) if isinstance(node, kinds)}


TABLE = rows(DOCUMENT.read_text(encoding="utf-8"))


@pytest.mark.parametrize("cells", TABLE, ids=[" ".join(cells[:2]) for cells in TABLE])
def test_every_row_names_a_rule_an_example_and_an_existing_test_or_not_yet(
    cells: list[str],
) -> None:
    assert complaint_about(cells, ROOT) is None


def test_every_rule_of_the_table_is_a_rule_of_the_document() -> None:
    rules = set(re.findall(r"(?<![\d.])([1-8]\.\d+) [A-Z*`]", DOCUMENT.read_text(encoding="utf-8")))
    assert {cells[0] for cells in TABLE} <= rules


def test_no_example_is_listed_twice() -> None:
    examples = [cells[1] for cells in TABLE]
    assert len(examples) == len(set(examples)) > 0


@pytest.mark.parametrize(
    ("cells", "complaint"),
    [
        (["3.2", "in turn"], "2 cells"),
        (["three", "in turn", NOT_YET], "is not a number"),
        (["3.2", "", NOT_YET], "no example"),
        (["3.2", "in turn", "maybe"], "neither"),
        (["3.2", "in turn", "`tests/gone.py::test_a`"], "there is no tests/gone.py"),
        (["3.2", "in turn", "`tests/test_here.py::test_b`"], "has no test_b"),
        (["3.2", "in turn", "`tests/test_here.py::test_a`"], None),
    ],
)
def test_a_bad_row_is_found(cells: list[str], complaint: str | None, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_here.py").write_text("def test_a() -> None: ...\n")
    found = complaint_about(cells, tmp_path)
    assert found is None if complaint is None else complaint in (found or "")
