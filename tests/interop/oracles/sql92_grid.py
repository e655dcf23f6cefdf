"""SQL92 pairs that chance would miss: every text with every literal, every operand everywhere."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.interop.oracles.sql92_cases import NUMBERS, TEXTS, VALUES

_COMPARISONS = ("=", "<>", ">", ">=", "<", "<=")
_OPERANDS = (
    *("a", "b", "-a", "+a", "(a)", "- -a", "1", "-1", "1L", "2147483648", "-2147483648", "1.5"),
    *("-1.5", "'1'", "'x'", "''", "-'1'", "TRUE", "FALSE", "NULL", "-TRUE", "-NULL", "NOT a"),
    *("(a = 1)", "-(a = 1)", "NOT (a = 1)", "(a IS NULL)", "(a CONTAINS '1')", "(a IN ('1'))"),
)
_FRAMES = (
    *("{}", "NOT {}", "NOT NOT {}", "{} IS NULL", "{} IS NOT NULL", "{} AND TRUE", "TRUE OR {}"),
    *("{} IN ('1', 'x')", "{} NOT IN ('1')", "{} CONTAINS '1'", "{} NOT STARTSWITH 'x'"),
    *("{} ENDSWITH ''", "{} NOT CONTAINS ''", "{} BETWEEN 0 AND 2", "{} NOT BETWEEN 0 AND 2"),
    *("1 BETWEEN {} AND 3", "1 BETWEEN 0 AND {}", "b NOT BETWEEN {} AND 9", "{} trailing 'words'"),
    *("{} 'open", "{} )", "{} NOT", "{} IS", "{} -- open", "{} --\n", "{} /* open", "{} > 0 > 1"),
)
_SAMPLES: list[dict[str, str]] = [
    {},
    {"a": "1"},
    {"a": "x"},
    {"a": "1.5", "b": "1"},
    {"b": "x"},
    {"a": "2147483648", "b": "2147483648"},
    {"a": "true", "b": "NaN"},
]


def grid() -> Iterator[dict[str, Any]]:
    """About 70,000 pairs."""
    texts: list[dict[str, str]] = [{"a": text} for text in VALUES]
    for sign, comparison, literal in product(("", "-"), _COMPARISONS, (*NUMBERS, *TEXTS, "TRUE")):
        yield {"expression": f"a {comparison} {sign}{literal}", "properties": texts}
    for text in VALUES:
        pairs = [{"a": text, "b": other} for other in VALUES]
        yield {"expression": "a >= b", "properties": pairs}
    for left, comparison, right in product(_OPERANDS, _COMPARISONS, _OPERANDS):
        yield {"expression": f"{left} {comparison} {right}", "properties": _SAMPLES}
    for frame, operand in product(_FRAMES, _OPERANDS):
        yield {"expression": frame.format(operand), "properties": _SAMPLES}
