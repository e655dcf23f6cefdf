"""The documents: their links have targets, and they keep the promises made about them."""

import re
from pathlib import Path

import pytest

from tests.repo.tree import ROOT, markdown_files

LONGEST_CELL = 130
CELL_BAR = re.compile(r"(?<!\\)\|")
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def prose(path: Path) -> str:
    """A document without its code blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def anchors(path: Path) -> set[str]:
    """The names that links can give to a document's headings, made as Git hosts make them."""
    headings = re.findall(r"^#+ +(.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def is_broken(link: str, document: Path) -> bool:
    """Whether a relative link misses its file or its heading; links to the web are not followed."""
    if re.match(r"[a-z]+:", link):
        return False
    name, _, anchor = link.partition("#")
    target = document.parent / name if name else document
    return not target.exists() or (anchor != "" and anchor not in anchors(target))


@pytest.mark.parametrize("document", markdown_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_of_a_document_has_a_target(document: Path) -> None:
    assert [link for link in LINK.findall(prose(document)) if is_broken(link, document)] == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text("# One heading, here\n")
    assert not is_broken("#one-heading-here", document)
    assert not is_broken("a.md", document)
    assert is_broken("b.md", document)
    assert is_broken("a.md#two", document)


@pytest.mark.parametrize("name", ["reliability.md", "status.md", "performance.md"])
def test_a_cell_of_a_table_is_a_line_at_most(name: str) -> None:
    """What takes longer to say is text below the table."""
    text = LINK.sub(lambda link: link[0][1 : link[0].index("]")], prose(ROOT / "docs" / name))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    cells = [cell.strip() for row in rows for cell in CELL_BAR.split(row)]
    assert len(cells) > 20
    assert [cell for cell in cells if len(cell) > LONGEST_CELL] == []


def test_the_changelog_has_an_unreleased_section() -> None:
    assert "\n## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_readme_shows_the_two_commands_of_a_fresh_machine_first() -> None:
    first_block = FENCE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert first_block is not None
    commands = re.findall(r"^\./dev (\w+)", first_block.group(), re.MULTILINE)
    assert commands == ["demo", "test"]


def test_the_architecture_fits_on_four_screens_and_describes_every_package() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    # A screen: 60 lines of 120 characters.
    assert sum(-(-max(len(line), 1) // 120) for line in text.splitlines()) <= 4 * 60
    packages = [path.parent.name for path in (ROOT / "src" / "sparrowmq").glob("*/__init__.py")]
    for package in packages:
        assert f"\n### `{package}`" in text, f"ARCHITECTURE.md has no paragraph on {package}"
    assert text.count("**Invariant.**") >= len(packages)


def test_every_decision_is_numbered_without_gaps_and_listed() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    index = (ROOT / "docs" / "decisions" / "README.md").read_text(encoding="utf-8")
    assert all(f"({path.name})" in index for path in decisions)
