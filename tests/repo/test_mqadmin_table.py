"""The table of mqadmin's commands in docs/compatibility.md is the one that its run wrote."""

import pytest

from sparrowmq.protocol.codes import RequestCode
from tests.interop.mqadmin_commands import COMMANDS, Command, Kind
from tests.interop.mqadmin_table import HEAD, PAGE, ROW, table_of, with_table
from tests.interop.scenarios.mqadmin import Result

DOCUMENT = PAGE.read_text(encoding="utf-8")
ROWS = {name: (state, codes) for name, state, codes in ROW.findall(DOCUMENT)}
REMEDY = "run python -m tests.interop.mqadmin_table and look at what it changed"


def test_the_table_names_every_command_that_the_run_knows() -> None:
    assert list(ROWS) == [command.name for command in COMMANDS], REMEDY


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_row_says_what_is_expected_of_the_command(command: Command) -> None:
    state, codes = ROWS[command.name]
    assert state == command.kind.value, REMEDY
    asked = {int(code) for code in codes.split(",") if code.strip()}
    assert asked <= {int(code) for code in RequestCode}


def test_a_command_that_differs_from_apache_is_not_there_yet() -> None:
    served, refused = (
        next(one for one in COMMANDS if one.kind is kind) for kind in (Kind.SERVED, Kind.REFUSED)
    )
    results = [
        Result(served, ["success"], [17], is_refused=False),
        Result(refused, [], [513], is_refused=False),
    ]
    table = table_of(results, {served.name: ["failure"]})
    assert [state for _, state, _ in ROW.findall(table)] == ["not yet", "not yet"]
    results = [results[0], Result(refused, [], [513], is_refused=True)]
    table = table_of(results, {served.name: ["success"]})
    assert [state for _, state, _ in ROW.findall(table)] == ["works", "refused by design"]


def test_only_the_table_is_replaced() -> None:
    page = f"before\n\n{HEAD}| `old` | works |  |\n\nafter\n"
    assert with_table(page, HEAD) == f"before\n\n{HEAD}\nafter\n"
