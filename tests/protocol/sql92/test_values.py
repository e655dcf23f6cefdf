"""Texts become numbers as in Java."""

import math

import pytest

from sparrowmq.protocol.sql92.errors import Incomparable
from sparrowmq.protocol.sql92.values import (
    boolean_of,
    double_of,
    double_order,
    integer_of,
    long_of,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0", 0),
        ("+7", 7),
        ("2147483647", 2**31 - 1),
        ("-2147483648", -(2**31)),
        ("0" * 5_000 + "9", 9),
        ("\u0664\u0662", 42),
        ("\uff17", 7),
    ],
)
def test_an_integer_has_32_bits_and_any_decimal_digits(text: str, value: int) -> None:
    assert integer_of(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 1",
        "1 ",
        "+",
        "--1",
        "1.0",
        "1_0",
        "0x1",
        "2147483648",
        "\U0001d7cf",
        "9" * 5_000,
        "1L",
    ],
)
def test_text_that_is_not_an_integer_is_incomparable(text: str) -> None:
    with pytest.raises(Incomparable):
        integer_of(text)


def test_a_long_has_64_bits() -> None:
    assert long_of("9223372036854775807") == 2**63 - 1
    assert long_of("-9223372036854775808") == -(2**63)
    with pytest.raises(Incomparable, match="out of range for a Long"):
        long_of("9223372036854775808")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        (" \t1.5\x00", 1.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1e3f", 1000.0),
        ("2D", 2.0),
        ("1e999", math.inf),
        ("-1e999", -math.inf),
        ("+Infinity", math.inf),
        ("0x1.8p1", 3.0),
        ("-0X.8P-1d", -0.25),
        ("0x1p9999", math.inf),
        ("-0x1p9999", -math.inf),
    ],
)
def test_a_double_is_read_as_java_reads_it(text: str, value: float) -> None:
    assert double_of(text) == value


def test_nan_is_a_double() -> None:
    assert math.isnan(double_of("-NaN"))


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "1e", "e1", "nan", "inf", "infinity", "NaNf", "1_0", "0x1", "\u0661", "1ff"],
)
def test_text_that_is_not_a_double_is_incomparable(text: str) -> None:
    with pytest.raises(Incomparable):
        double_of(text)


def test_doubles_are_ordered_with_negative_zero_first_and_nan_last() -> None:
    texts = ["NaN", "0.0", "Infinity", "-0.0", "-Infinity", "1"]
    assert sorted(texts, key=double_order) == ["-Infinity", "-0.0", "0.0", "1", "Infinity", "NaN"]


def test_only_the_word_true_is_true() -> None:
    assert [boolean_of(text) for text in ("true", "TRUE", "yes", "1", "")] == [
        True,
        True,
        False,
        False,
        False,
    ]
