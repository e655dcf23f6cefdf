"""docs/doctor.md: its table is the catalogue, and its example is what the doctor prints.

`python -m tests.cli.test_doctor_document` writes both."""

import logging
import re
from pathlib import Path

from sparrowmq.admin.doctor.catalogue import CATALOGUE, About
from sparrowmq.cli.commands.doctor import paragraphs
from tests.admin.doctor.wrong_groups import SCENES

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"
_WIDTH = 100
_EXAMPLE = re.compile(r"(\$ sparrowmq doctor group billing\n).*?(\n```)", re.DOTALL)
_TABLE = re.compile(r"(\| finding \| severity .*?\n\|---.*?\n).*", re.DOTALL)


def example() -> str:
    findings = SCENES.play("stuck-at-offset").findings
    return "\n".join(paragraphs(findings, _WIDTH, has_colours=False)).rstrip()


def table() -> str:
    rows = []
    for about in About:
        rows.append(f"| **{about}** | | | |")
        rows += [
            f"| `{each.id}` | {each.severity} | {each.what} | {each.remedy} |"
            for each in CATALOGUE.values()
            if each.about is about
        ]
    return "\n".join(rows) + "\n"


def current(text: str) -> str:
    """The page with what the code says now."""
    text = _EXAMPLE.sub(lambda found: found[1] + example() + found[2], text)
    return _TABLE.sub(lambda found: found[1] + table(), text)


def test_the_page_has_the_catalogue_and_an_example_as_the_code_prints_them() -> None:
    text = PAGE.read_text("utf-8")
    assert current(text) == text, "run: python -m tests.cli.test_doctor_document"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    PAGE.write_text(current(PAGE.read_text("utf-8")), "utf-8")
