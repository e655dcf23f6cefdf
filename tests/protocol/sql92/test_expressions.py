"""Evaluating expressions against messages."""

import pytest

from sparrowmq.protocol.sql92 import Incomparable, Sql92Error, compile_sql92


def matches(expression: str, **properties: str) -> bool:
    return compile_sql92(expression).matches(properties)


def evaluate(expression: str, **properties: str) -> bool | None:
    return compile_sql92(expression).evaluate(properties)


def test_a_property_compared_with_a_number_is_read_as_a_number() -> None:
    assert matches("a > 5", a="10")
    assert matches("a = 7", a="007")
    assert not matches("a > 5", a="5")


def test_between_includes_both_ends() -> None:
    assert [matches("a BETWEEN 0 AND 3", a=str(n)) for n in (-1, 0, 3, 4)] == [
        False,
        True,
        True,
        False,
    ]
    assert matches("a NOT BETWEEN 0 AND 3", a="4")


def test_a_missing_property_makes_a_comparison_unknown_and_no_match() -> None:
    assert evaluate("a > 5") is None
    assert evaluate("NOT (a > 5)") is None
    assert not matches("a > 5")
    assert not matches("NOT (a > 5)")


def test_is_null_asks_whether_the_property_is_missing() -> None:
    assert matches("a IS NULL")
    assert not matches("a IS NULL", a="")
    assert matches("a IS NOT NULL", a="")


def test_two_missing_properties_are_equal() -> None:
    assert matches("a = b")
    assert not matches("a <> b")


def test_and_or_not_follow_three_valued_logic() -> None:
    assert evaluate("missing = 1 AND a = 1", a="2") is False
    assert evaluate("missing = 1 AND a = 1", a="1") is None
    assert evaluate("missing = 1 OR a = 1", a="1") is True
    assert evaluate("missing = 1 OR a = 1", a="2") is None


def test_and_binds_tighter_than_or() -> None:
    assert matches("a = 1 OR b = 1 AND c = 1", a="1", b="0", c="0")
    assert not matches("(a = 1 OR b = 1) AND c = 1", a="1", b="0", c="0")


def test_not_binds_tighter_than_a_comparison() -> None:
    assert not matches("NOT a = 1", a="2")
    assert matches("NOT (a = 1)", a="2")
    assert matches("NOT (a > 1)", a="1")
    with pytest.raises(Sql92Error, match="expected a number or a property, found a condition"):
        compile_sql92("NOT a > 1")


def test_a_text_that_is_not_a_number_makes_the_whole_expression_fail() -> None:
    with pytest.raises(Incomparable):
        evaluate("a > 5 OR b = 1", a="many", b="1")
    assert not matches("a > 5 OR b = 1", a="many", b="1")
    assert matches("b = 1 OR a > 5", a="many", b="1")


def test_the_literal_decides_how_a_property_is_read() -> None:
    assert not matches("a > 5", a="5.5")
    assert matches("a > 5.0", a="5.5")
    assert not matches("a > 5", a="5000000000")
    assert matches("a > 4000000000", a="5000000000")
    assert matches("a > 4000000000L", a="5000000000")


def test_two_properties_are_ordered_as_doubles_and_equal_as_texts() -> None:
    assert matches("a > b", a="10", b="9.5")
    assert not matches("a = b", a="1", b="1.0")
    assert matches("a >= b", a="NaN", b="Infinity")
    assert matches("a < b", a="-0.0", b="0.0")


def test_texts_are_compared_exactly() -> None:
    assert matches("region = 'eu'", region="eu")
    assert not matches("region = 'eu'", region="EU")
    assert matches("owner = 'it''s me'", owner="it's me")


def test_a_property_is_true_when_its_text_is_true() -> None:
    assert matches("paid = TRUE", paid="True")
    assert matches("paid = FALSE", paid="yes")
    assert evaluate("paid", paid="true") is False


def test_in_lists_texts() -> None:
    assert matches("a IN ('x', 'y')", a="y")
    assert matches("a NOT IN ('x', 'y')", a="z")
    assert evaluate("a NOT IN ('x')") is None


def test_contains_startswith_and_endswith_look_inside_a_text() -> None:
    assert matches("a CONTAINS 'row'", a="sparrow")
    assert matches("a STARTSWITH 'spa'", a="sparrow")
    assert matches("a ENDSWITH 'ow'", a="sparrow")
    assert matches("a NOT CONTAINS 'x'", a="sparrow")
    assert matches("a NOT STARTSWITH 'x'", a="sparrow")
    assert matches("a NOT ENDSWITH 'x'", a="sparrow")


def test_tests_inside_a_text_are_false_for_a_missing_property_and_an_empty_text() -> None:
    assert evaluate("a CONTAINS 'x'") is False
    assert evaluate("a NOT CONTAINS 'x'") is False
    assert evaluate("a NOT CONTAINS ''", a="y") is False


def test_the_negative_of_a_property_is_null() -> None:
    assert matches("-a IS NULL", a="5")
    assert matches("a > -1", a="0")


def test_keywords_are_written_in_any_case_and_names_are_not() -> None:
    assert matches("a bEtWeEn 1 aNd 2 Or nUlL", a="1")
    assert not matches("A = 1", a="1")


def test_comments_and_line_ends_are_blanks() -> None:
    assert matches("a /* the amount */ >\n5 -- large\n AND b = 1", a="6", b="1")


def test_text_after_a_complete_expression_is_ignored_and_its_position_reported() -> None:
    compiled = compile_sql92("a = 1 and_more")
    assert compiled.matches({"a": "1"})
    assert compiled.ignored_from == 6
    assert compile_sql92("a = 1").ignored_from is None
    assert compile_sql92("a = 0x10").matches({"a": "0"})


def test_an_operator_rocketmq_does_not_know_is_ignored_with_all_that_follows() -> None:
    like = compile_sql92("a LIKE 'x%'")
    assert like.ignored_from == 2
    assert not like.matches({"a": "xy"})


def test_keywords_are_ascii() -> None:
    assert matches("a IS NULL")
    assert not matches("a I\u017f NULL")


@pytest.mark.parametrize(
    ("expression", "results"),
    [
        ("5 < a", [True, False, False, None]),
        ("5 <= a", [True, True, False, None]),
        ("5 > a", [False, False, True, None]),
        ("5 >= a", [False, True, True, None]),
        ("5 = a", [False, True, False, False]),
    ],
)
def test_a_literal_may_stand_before_a_property(expression: str, results: list[bool | None]) -> None:
    six_to_nothing: list[dict[str, str]] = [{"a": "6"}, {"a": "5"}, {"a": "4"}, {}]
    assert [compile_sql92(expression).evaluate(each) for each in six_to_nothing] == results


def test_a_long_compared_with_a_double_is_rounded_to_a_double() -> None:
    assert matches("9007199254740993 = 9007199254740992.0")
