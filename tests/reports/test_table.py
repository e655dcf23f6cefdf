"""docs/reports.md has a row for every report and names tests that exist."""

import ast
import re

import pytest

from tests.repo.tree import ROOT

DOCUMENT = ROOT / "docs" / "reports.md"
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
NONE_YET = "no test: "
NUMBERS = """
after crashes        467 405 1434 495 7355 678 8239
on storage errors    2706 3129 5235 7016
at the start         6904 7729 9328 9705 9455
offsets              3503 1825 2705 2181 551 3401 9038
disks and load       1400 2398 573 3407 7948 8875 9737
clocks and input     6679 1637 3786 8801
delays               1869 7077 4226 3966 6269 3473
transactions         544 1568 9500 5574
retries              2724 6163 1679
subscriptions        2836 2954 5473 1589
consumers            2837 2732 4016 1918 1190 2621 5465 2085
replication          3015 2528
"""


def rows() -> list[list[str]]:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    cells = [line.split("|")[1:-1] for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in each] for each in cells[2:]]


def functions_in(path: str) -> set[str]:
    file = ROOT / path
    if not file.is_file():
        return set()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_report_has_one_row() -> None:
    numbers = [int(cells[0]) for cells in rows()]
    assert sorted(numbers) == sorted(int(number) for number in re.findall(r"\d+", NUMBERS))


@pytest.mark.parametrize("cells", rows(), ids=[cells[0] for cells in rows()])
def test_a_row_describes_the_report_the_solution_and_the_test(cells: list[str]) -> None:
    _, happened, done, shown = cells
    assert happened.endswith(".")
    assert done.endswith(".")
    if shown.startswith(NONE_YET):
        return
    references = [REFERENCE.fullmatch(part) for part in shown.split(", ")]
    assert references
    for reference in references:
        assert reference is not None, shown
        assert reference[2] in functions_in(reference[1]), reference[0]


def test_every_test_by_number_is_in_its_row() -> None:
    named = {cells[0]: cells[3] for cells in rows()}
    for file in sorted((ROOT / "tests" / "reports").glob("test_*_reports.py")):
        for name in functions_in(str(file.relative_to(ROOT))):
            if not name.startswith("test_"):
                continue
            assert name.startswith("test_report_"), name
            number = name.removeprefix("test_report_").partition("_")[0]
            assert f"{file.name}::{name}`" in named[number], name
