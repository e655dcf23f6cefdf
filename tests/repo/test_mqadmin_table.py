"""The table of mqadmin's commands in docs/compatibility.md is the one that its run wrote."""

from collections import Counter

import pytest

from sparrowmq.protocol.codes import RequestCode
from tests.interop.mqadmin_commands import COMMANDS, Command, Kind
from tests.interop.mqadmin_table import (
    HEAD,
    NOT_YET,
    PAGE,
    ROW,
    is_as_expected,
    table_of,
    with_table,
)
from tests.interop.scenarios.mqadmin import Result
from tests.repo.test_compatibility_table import ROWS as REQUEST_ROWS

DOCUMENT = PAGE.read_text(encoding="utf-8")
ROWS = {name: (state, codes) for name, state, codes in ROW.findall(DOCUMENT)}
REMEDY = "run python -m tests.interop.mqadmin_table and look at what it changed"


def test_the_table_names_every_command_that_the_run_knows() -> None:
    assert list(ROWS) == [command.name for command in COMMANDS], REMEDY


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_row_agrees_with_the_expected_outcome_of_the_command(command: Command) -> None:
    state, codes = ROWS[command.name]
    assert state == command.kind.value, REMEDY
    asked = {int(code) for code in codes.split(",") if code.strip()}
    assert asked <= {int(code) for code in RequestCode}


def test_a_command_that_differs_from_apache_is_not_there_yet() -> None:
    served, refused, planned = (
        next(one for one in COMMANDS if one.kind is kind)
        for kind in (Kind.SERVED, Kind.REFUSED, Kind.PLANNED)
    )
    apache = {served.name: ["success"]}
    results = [
        Result(served, ["failure"], [17], is_refused=False),
        Result(refused, [], [513], is_refused=False),
        Result(planned, [], [3001], is_refused=False),
    ]
    assert _states(table_of(results, apache)) == ["not yet", "not yet", "not yet"]
    assert not any(is_as_expected(one, apache) for one in results)
    results = [
        Result(served, ["success"], [17], is_refused=False),
        Result(refused, [], [513], is_refused=True),
        Result(planned, [], [3001], is_refused=True),
    ]
    assert _states(table_of(results, apache)) == ["works", "refused by design", "not yet"]
    assert all(is_as_expected(one, apache) for one in results)


def _states(table: str) -> list[str]:
    return [state for _, state, _ in ROW.findall(table)]


def test_a_command_is_not_there_yet_exactly_if_its_requests_are_not() -> None:
    """The table of commands and the table of requests say the same of users and access lists."""
    for name, (state, codes) in ROWS.items():
        asked = {REQUEST_ROWS[int(code)][1] for code in codes.split(",") if code.strip()}
        assert (state == NOT_YET) == (NOT_YET in asked), name


def test_the_status_counts_the_table() -> None:
    kinds = Counter(command.kind for command in COMMANDS)
    works = kinds[Kind.SERVED] + kinds[Kind.LOCAL]
    counts = (
        f"{works} of {len(COMMANDS)} commands work, {kinds[Kind.REFUSED]} are refused by design, "
        f"{kinds[Kind.PLANNED]} wait for authentication"
    )
    assert counts in (PAGE.parent / "status.md").read_text(encoding="utf-8")


def test_only_the_table_is_replaced() -> None:
    page = f"before\n\n{HEAD}| `old` | works |  |\n\nafter\n"
    assert with_table(page, HEAD) == f"before\n\n{HEAD}\nafter\n"
