"""SQL92: our filter against Apache's on the same random pairs."""

import json
from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

from sparrowmq.protocol.sql92 import Incomparable, Sql92Error, compile_sql92
from tests.interop.oracles.apache import ask
from tests.interop.oracles.sql92_cases import Sql92Cases
from tests.interop.oracles.sql92_grid import grid

LETTERS = {True: "t", False: "f", None: "n"}


@dataclass
class Report:
    """How often which outcome came, and where the two differ."""

    outcomes: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    @property
    def is_equal(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in sorted(self.outcomes.items()))
        shown = "\n".join(self.differences[:20])
        total = sum(self.outcomes.values())
        return f"{total} pairs ({counts}): {len(self.differences)} differences\n{shown}".rstrip()


def our_answer(expression: str, properties: list[dict[str, str]]) -> str:
    """The same letters that Sql92Oracle.java answers."""
    try:
        compiled = compile_sql92(expression)
    except Sql92Error:
        return "r"
    letters = ""
    for each in properties:
        try:
            letters += LETTERS[compiled.evaluate(each)]
        except Incomparable:
            letters += "e"
    return letters


def recorded(expression: str, properties: list[dict[str, str]], answer: str) -> list[Any]:
    """A row for the recorded sample, without the properties that the expression cannot see."""
    seen = [
        {name: value for name, value in each.items() if name in expression} for each in properties
    ]
    return [expression, seen if answer != "r" else [], answer]


def run(pairs: int, seed: int, record: str | None = None) -> Report:
    """Ask both; with `record`, keep what Apache said."""
    report = Report()
    kept: list[Any] = []
    requests = chain(grid() if record is None else (), Sql92Cases(Random(seed)).requests(pairs))
    for request, theirs in ask("sql92", requests):
        expression, properties = request["expression"], request["properties"]
        ours = our_answer(expression, properties)
        report.outcomes.update(theirs * len(properties) if theirs == "r" else theirs)
        if ours != theirs:
            shown = f"{expression!r} on {properties}: Apache {theirs}, ours {ours}"
            report.differences.append(shown)
        kept.append(recorded(expression, properties, theirs))
    if record is not None:
        rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in kept)
        Path(record).write_text(f"[\n{rows}\n]\n")
    return report
