"""`python -m tests.interop.mqadmin_table`: run all of mqadmin's commands against our broker and
write what happened into the table of docs/compatibility.md.

A command works if it prints what it prints with Apache's broker (`expected/java5.json`), and is
refused by design if it prints the refusal. It is "not yet" there otherwise, or if it is planned.
"""

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from tests.interop import sparrow, toolchain
from tests.interop.mqadmin_commands import COMMANDS, UNSERVED, Kind
from tests.interop.registry import Outcome, Scenario
from tests.interop.runner import Run, Tally, Target, expected
from tests.interop.scenarios.mqadmin import (
    TRACED,
    Result,
    every_served_command_of_mqadmin_works,
    run_commands,
)
from tests.interop.scene import Scene

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
HEAD = "| command | state | requests |\n|---|---|---|\n"
ROW = re.compile(r"^\| `(\w+)` \| ([^|]+) \| ([^|]*)\|$", re.MULTILINE)
NOT_YET = Kind.PLANNED.value
_TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def state_of(result: Result, apache: dict[str, Any]) -> str:
    """What the table says of a command."""
    return result.command.kind.value if is_as_expected(result, apache) else NOT_YET


def is_as_expected(result: Result, apache: dict[str, Any]) -> bool:
    """Whether the command did what its kind says; a planned one is refused until it is served."""
    if result.command.kind in UNSERVED:
        return result.is_refused
    return bool(result.shown == apache.get(result.command.name))


def table_of(results: Iterable[Result], apache: dict[str, Any]) -> str:
    """The table, in the order in which the commands are declared."""
    rows = (
        f"| `{one.command.name}` | {state_of(one, apache)} | {', '.join(map(str, one.codes))} |\n"
        for one in results
    )
    return HEAD + "".join(rows)


def with_table(page: str, table: str) -> str:
    """The page with this table in place of its own."""
    replaced, count = _TABLE.subn(lambda _: table, page)
    assert count == 1, "the page has one table of commands"
    return replaced


def main() -> int:
    """Run the commands, write the table; 1 if some do not do what is expected of them."""
    toolchain.prepare(["java5"], apache=False)
    results: list[Result] = []

    def collect(scene: Scene) -> Outcome:
        results.extend(run_commands(scene.own_cluster(TRACED), tuple(Kind)))
        return {}

    one = Scenario("the table of mqadmin's commands", collect, ("java5",), "admin", "apart", False)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="mqadmin-", ignore_cleanup_errors=True) as folder:
        Run(cast("Target", sparrow), Path(folder), tally, print).run([one], ["java5"])
    if tally.failed:
        return 1
    name = every_served_command_of_mqadmin_works.__name__.replace("_", " ")
    apache = expected("java5")[name]
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), table_of(results, apache)))
    wrong = [one.command.name for one in results if not is_as_expected(one, apache)]
    kinds = Counter(one.command.kind.value for one in results)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    print(f"{len(results)} of {len(COMMANDS)} commands ran: {counts}")
    print(f"not as expected: {', '.join(wrong) or 'none'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
