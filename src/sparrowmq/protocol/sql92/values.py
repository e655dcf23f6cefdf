"""Converting texts to numbers and booleans exactly like Java's valueOf methods."""

import math
import re

from sparrowmq.protocol.sql92.errors import Incomparable

INTEGER_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_LONG_DIGITS = 19
_FAST_DIGITS = 9  # fits an Integer with any digits
_INTEGER = re.compile(r"([+-]?)(\d+)")
# Double.valueOf: control characters around it, NaN and Infinity in this spelling only, hexadecimal
# digits with a binary exponent, and the suffixes of float and double literals.
_DOUBLE = re.compile(
    r"""[\x00-\x20]*
    (?: (?P<named> [+-]? (?:NaN|Infinity) )
      | (?P<decimal> [+-]? (?: [0-9]+ (?:\.[0-9]*)? | \.[0-9]+ ) (?:[eE][+-]?[0-9]+)? ) [fFdD]?
      | (?P<hexadecimal> [+-]? 0[xX]
          (?: [0-9a-fA-F]+\.? | [0-9a-fA-F]*\.[0-9a-fA-F]+ ) [pP][+-]?[0-9]+ ) [fFdD]?
    )
    [\x00-\x20]*""",
    re.VERBOSE,
)


def integer_of(text: str) -> int:
    """Integer.valueOf: 32 bits; raises Incomparable."""
    if len(text) <= _FAST_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _whole_number(text, INTEGER_MAX, "an Integer")


def long_of(text: str) -> int:
    """Long.valueOf: 64 bits; raises Incomparable."""
    if len(text) <= _FAST_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    return _whole_number(text, LONG_MAX, "a Long")


def _whole_number(text: str, highest: int, type_name: str) -> int:
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise Incomparable(f"{text!r} is not {type_name}")
    digits = found[2]
    if not digits.isascii():
        # Character.digit knows every decimal digit of the basic plane, and Java reads UTF-16 units.
        if max(digits) > "\uffff":
            raise Incomparable(f"{text!r} is not {type_name}")
        digits = "".join(str(int(digit)) for digit in digits)
    digits = digits.lstrip("0") or "0"
    if len(digits) <= _LONG_DIGITS:
        value = -int(digits) if found[1] == "-" else int(digits)
        if -highest - 1 <= value <= highest:
            return value
    raise Incomparable(f"{text!r} is out of range for {type_name}")


def double_of(text: str) -> float:
    """Double.valueOf, NaN included; raises Incomparable."""
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise Incomparable(f"{text!r} is not a Double")
    number = found["hexadecimal"]
    if number is None:
        return float(found["decimal"] or found["named"])
    try:
        return float.fromhex(number)
    except OverflowError:
        return -math.inf if number.startswith("-") else math.inf
    except ValueError as too_long:
        raise Incomparable(f"{text!r} is not a Double") from too_long


def double_beside_literal(text: str) -> float:
    """A Double to compare with a literal: NaN, the greatest in Java's order, becomes infinity.

    A literal is finite and not zero, so no other detail of Double.compareTo's order matters.
    """
    value = double_of(text)
    return math.inf if value != value else value


def double_order(text: str) -> tuple[int, float, float]:
    """A sort key with Double.compareTo's order: -0.0 before 0.0, NaN last and equal to itself."""
    value = double_of(text)
    if value != value:
        return (1, 0.0, 0.0)
    return (0, value, math.copysign(1.0, value))


def boolean_of(text: str) -> bool:
    """Boolean.valueOf: "true" in any case; everything else is false."""
    return text.lower() == "true"
