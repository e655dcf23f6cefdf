"""docs/doctor.md: its table is the catalogue, and its example is what the doctor prints.

`python -m tests.cli.test_doctor_document` writes both."""

import logging
import re
from pathlib import Path

import pytest

from sparrowmq.admin.doctor import cluster, group, member_states, topic
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
    """The page with the current output of the code."""
    text = _EXAMPLE.sub(lambda found: found[1] + example() + found[2], text)
    return _TABLE.sub(lambda found: found[1] + table(), text)


def test_the_page_has_the_catalogue_and_an_example_as_the_code_prints_them() -> None:
    text = PAGE.read_text("utf-8")
    assert current(text) == text, "run: python -m tests.cli.test_doctor_document"


LIMITS = [
    ("disk-nearly-full", f"{cluster.DISK_SHARE * 100:.0f} % of the disk"),
    ("clock-skew", f"{cluster.SKEW_S:.0f} s"),
    ("slave-behind", f"lacks {cluster.BEHIND_BYTES >> 20} MiB"),
    ("queues-uneven", f"{topic.UNEVEN_SHARE:.0f} times the mean"),
    ("queues-uneven", f"the topic {topic.UNEVEN_LEAST} messages"),
    ("retention-overtakes-lag", f"as old as {topic.RETENTION_SHARE * 100:.0f} %"),
    ("lag-grows", f"by {group.LEAST_GROWTH} messages"),
    ("lag-one-queue", f"{group.ONE_QUEUE_SHARE * 100:.0f} % of the lag"),
    ("lag-one-queue", f"and {group.LEAST_LAG} messages"),
    ("stuck-at-offset", f"is {group.STUCK_MS // 1000} s old"),
    ("handler-slow", f"{member_states.SLOW_MS / 1000:.0f} s per call"),
    ("handler-hangs", f"{member_states.HANG_MS // 1000} s: "),
    ("handler-fails", f"{member_states.FAILED_SHARE * 100:.0f} % of the messages"),
    ("filter-matches-nothing", f"there are {group.LEAST_SAMPLES}"),
    ("dead-letters-growing", f"less than {group.DEAD_LATELY_MS // 60_000} minutes"),
]


@pytest.mark.parametrize(("finding", "limit"), LIMITS)
def test_the_page_has_the_limits_of_the_code(finding: str, limit: str) -> None:
    rows = PAGE.read_text("utf-8").partition("## Thresholds")[2].splitlines()
    (row,) = (row for row in rows if row.startswith(f"| `{finding}` |") and row.count("|") == 3)
    assert limit in row


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    PAGE.write_text(current(PAGE.read_text("utf-8")), "utf-8")
