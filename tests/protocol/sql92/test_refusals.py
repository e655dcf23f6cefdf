"""Refused expressions and their errors."""

import pytest

from sparrowmq.protocol.sql92 import Sql92Error, compile_sql92


def refusal(expression: str) -> Sql92Error:
    with pytest.raises(Sql92Error) as caught:
        compile_sql92(expression)
    return caught.value


def test_the_error_names_line_and_column() -> None:
    error = refusal("a = 1 AND\n  b > 'x'")
    assert (error.position, error.line, error.column) == (16, 2, 7)
    assert str(error) == (
        "SQL92 expression, line 2, column 7: expected a number or a property, found the text 'x'"
    )


def test_an_expression_that_ends_too_early_is_refused_with_the_expected_token() -> None:
    error = refusal("a =")
    assert error.position == 3
    assert error.reason == "expected a property, a value, NOT or (, found the end"


def test_an_open_parenthesis_is_refused_at_the_word_that_does_not_close_it() -> None:
    error = refusal("(a = 1 b")
    assert error.position == 7
    assert error.reason.startswith("expected ), ")
    assert error.reason.endswith("found 'b'")


@pytest.mark.parametrize(
    ("expression", "position", "reason"),
    [
        ("a = 'x", 4, "a text without its closing '"),
        ("a = 1 /* x", 6, "a comment without its closing */"),
        ("a != 1", 2, "unexpected character '!'"),
        ("a = NULL", 4, "NULL cannot be compared: use IS NULL or IS NOT NULL"),
        ("a > TRUE", 4, "expected a number or a property, found TRUE"),
        ("a > 1 > 2", 0, "expected a number or a property, found a condition"),
        ("TRUE = 1", 7, "TRUE and the number 1 differ"),
        ("a BETWEEN 3 AND 1", 10, "BETWEEN 3 AND 1 is empty: the lower comes first"),
        ("5 IN ('x')", 0, "IN needs a property before it, found the number 5"),
        ("-a", 0, "expected a condition, found the negative of something that is not a number"),
        ("a = 1 AND 'x'", 10, "expected a condition, found the text 'x'"),
        ("a > 0.0", 4, "0.0 is not a Double above zero: write 0"),
        ("a > 1e400", 4, "1e400 is above the largest Double"),
        (
            "a > 9223372036854775808",
            4,
            "9223372036854775808 is above the largest Long, 9223372036854775807",
        ),
    ],
)
def test_what_rocketmq_refuses_is_refused_with_a_reason(
    expression: str, position: int, reason: str
) -> None:
    error = refusal(expression)
    assert (error.position, error.reason) == (position, reason)


@pytest.mark.parametrize(
    "expression",
    ["", "   ", "-- nothing\n", "(a LIKE 'x%')", "()", "a IN ()", "a IN (1)", "AND"],
)
def test_bad_syntax_is_refused(expression: str) -> None:
    refusal(expression)
