"""Hostile expressions and properties cost little and never break the process."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.sql92 import MAX_LENGTH, Incomparable, Sql92Error, compile_sql92

WORDS = st.sampled_from(
    [
        *("a", "b", "1", "2.5", "'x'", "TRUE", "NULL", "NOT", "AND", "OR", "IS", "IN", "BETWEEN"),
        *("CONTAINS", "=", "<>", ">", "<=", "(", ")", ",", "+", "-", "--", "/*", "*/", "'"),
    ]
)


def test_the_longest_expression_compiles_and_one_more_character_is_refused() -> None:
    longest = "a = 1 OR " * (MAX_LENGTH // 9 - 1) + "b = 2"
    longest += " " * (MAX_LENGTH - len(longest))
    assert compile_sql92(longest).matches({"a": "0", "b": "2"})
    with pytest.raises(Sql92Error, match=f"at most {MAX_LENGTH} allowed"):
        compile_sql92(longest + " ")


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 8_000 + "a = 1" + ")" * 8_000,
        "NOT " * 4_000 + "(a = 1)",
        "a = 1" + " AND a = 1" * 1_600,
        "+" * 16_000 + "a = 1",
    ],
)
def test_long_chains_nest_no_calls(expression: str) -> None:
    assert compile_sql92(expression).matches({"a": "1"})


@pytest.mark.parametrize(
    "expression",
    [
        "a" + " = a" * 4_000,
        "a" + " IS NULL" * 2_000,
        "a" + " CONTAINS 'x'" * 1_200,
        "(a OR (b AND " * 1_000 + "c" + "))" * 1_000,
    ],
)
def test_conditions_nested_too_deep_are_refused(expression: str) -> None:
    with pytest.raises(Sql92Error, match="nested more than 64 deep"):
        compile_sql92(expression)


@pytest.mark.parametrize(("first", "more"), [("a", " = a"), ("a", " IS NULL")])
def test_64_conditions_within_each_other_are_allowed_and_65_are_not(first: str, more: str) -> None:
    compile_sql92(first + more * 64).matches({})
    with pytest.raises(Sql92Error, match="nested more than 64 deep"):
        compile_sql92(first + more * 65)


def test_a_run_of_minus_signs_is_refused_early() -> None:
    with pytest.raises(Sql92Error, match="more than 64 minus signs") as caught:
        compile_sql92("a > " + "-" * 16_000)
    assert caught.value.position == 68


def test_the_deepest_allowed_condition_is_evaluated() -> None:
    deep = compile_sql92("(a = 1 OR (b = 1 AND " * 31 + "c = 1" + "))" * 31)
    assert deep.matches({"a": "0", "b": "1", "c": "1"})


def test_importing_the_package_does_not_import_lark() -> None:
    code = "import sys, sparrowmq.protocol.sql92; sys.exit('lark' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@given(st.one_of(st.text(max_size=60), st.lists(WORDS, max_size=25).map(" ".join)))
def test_any_text_is_compiled_or_refused_and_never_anything_else(text: str) -> None:
    try:
        compiled = compile_sql92(text)
    except Sql92Error as refused:
        assert 0 <= refused.position <= len(text)
        return
    for properties in ({}, {"a": "1"}, {"a": "x", "b": "2"}):
        compiled.matches(properties)


@given(st.text(max_size=40))
def test_any_property_is_compared_or_incomparable(text: str) -> None:
    for expression in ("a > 1", "a > 5000000000", "a > 1.5", "a = TRUE", "a > b"):
        try:
            compile_sql92(expression).evaluate({"a": text, "b": text})
        except Incomparable:
            assert not compile_sql92(expression).matches({"a": text, "b": text})
