"""Comparisons with RocketMQ's rules for mixed types.

A property is text. Compared with a number literal it is converted to the literal's class (Integer,
Long or Double), and a text that cannot be converted makes the whole evaluation fail: the message
does not match, whatever else the expression contains. Two texts are compared for equality as texts,
and for order as Doubles.
"""

import operator
from collections.abc import Callable
from typing import Any, NoReturn

from sparrowmq.protocol.sql92.errors import Incomparable
from sparrowmq.protocol.sql92.operands import (
    NUMBERS,
    Condition,
    Constant,
    Evaluate,
    JavaType,
    Operand,
    Property,
    Read,
    depth_of,
    reader_of,
    type_of,
)
from sparrowmq.protocol.sql92.values import (
    boolean_of,
    double_beside_literal,
    double_order,
    integer_of,
    long_of,
)

Test = Callable[[Any, Any], bool]

_FROM_TEXT: dict[JavaType, Callable[[str], Any]] = {
    JavaType.INTEGER: integer_of,
    JavaType.LONG: long_of,
    JavaType.DOUBLE: double_beside_literal,
    JavaType.BOOLEAN: boolean_of,
}
_MIRRORED: dict[Test, Test] = {
    operator.gt: operator.lt,
    operator.ge: operator.le,
    operator.lt: operator.gt,
    operator.le: operator.ge,
}


def equality(left: Operand, right: Operand) -> Condition:
    """The = comparison, and IS NULL when `right` is the constant null."""
    depth = 1 + max(depth_of(left), depth_of(right))
    if isinstance(left, Property) and isinstance(right, Constant):
        return Condition(_property_equals(left.name, right), left.position, depth)
    read_left, read_right = reader_of(left), reader_of(right)
    same = _sameness(type_of(left), type_of(right))

    def evaluate(read: Read) -> bool | None:
        left_value, right_value = read_left(read), read_right(read)
        if left_value is None:
            return True if right_value is None else None
        return False if right_value is None else same(left_value, right_value)

    return Condition(evaluate, left.position, depth)


def ordering(test: Test, left: Operand, right: Operand) -> Condition:
    """One of operator.gt, ge, lt and le on properties, numbers and their negatives."""
    if isinstance(left, Property) and isinstance(right, Constant):
        return Condition(_property_compares(test, left.name, right), left.position)
    if isinstance(left, Constant) and isinstance(right, Property):
        mirrored = _property_compares(_MIRRORED[test], right.name, left)
        return Condition(mirrored, left.position)
    read_left, read_right = reader_of(left), reader_of(right)
    compare = _order(test, type_of(left), type_of(right))

    def evaluate(read: Read) -> bool | None:
        left_value = read_left(read)
        if left_value is None:
            return None
        right_value = read_right(read)
        return None if right_value is None else compare(left_value, right_value)

    return Condition(evaluate, left.position, 1 + max(depth_of(left), depth_of(right)))


def numbers_in_order(low: Constant, high: Constant) -> bool:
    """Whether two number constants are in the order that BETWEEN requires."""
    return _order(operator.le, low.type, high.type)(low.value, high.value)


def _property_equals(name: str, constant: Constant) -> Evaluate:
    """The common cases, without unneeded calls to readers and converters."""
    wanted = constant.value
    if constant.type is JavaType.NULL:
        return lambda read: read(name) is None
    if constant.type is JavaType.STRING:
        return lambda read: None if (value := read(name)) is None else value == wanted
    convert = _FROM_TEXT[constant.type]
    return lambda read: None if (value := read(name)) is None else convert(value) == wanted


def _property_compares(test: Test, name: str, constant: Constant) -> Evaluate:
    limit = constant.value
    convert = _FROM_TEXT[constant.type]
    return lambda read: None if (value := read(name)) is None else test(convert(value), limit)


def _sameness(left: JavaType, right: JavaType) -> Test:
    if left is right:
        return operator.eq
    if left in NUMBERS and right in NUMBERS:
        return _as_numbers(operator.eq, left, right)
    if left is JavaType.STRING and right in _FROM_TEXT:
        convert = _FROM_TEXT[right]
        return lambda text, value: bool(convert(text) == value)
    if left in NUMBERS and right is JavaType.STRING:
        return _mirror(_sameness(right, left))
    if left is JavaType.BOOLEAN and right is JavaType.STRING:
        return _refuse_boolean_beside_text
    return _never


def _order(test: Test, left: JavaType, right: JavaType) -> Test:
    if left is right is JavaType.STRING:
        return lambda a, b: test(double_order(a), double_order(b))
    if left in NUMBERS and right in NUMBERS:
        return _as_numbers(test, left, right)
    return _never  # one side is always null: never called


def _as_numbers(test: Test, left: JavaType, right: JavaType) -> Test:
    if JavaType.DOUBLE in (left, right):
        # Java compares Doubles; Python would compare an int and a float exactly.
        return lambda a, b: test(float(a), float(b))
    return test


def _mirror(test: Test) -> Test:
    return lambda a, b: test(b, a)


def _refuse_boolean_beside_text(_left: bool, right: str) -> NoReturn:
    # __compare casts the wrong one of the two here and throws.
    raise Incomparable(f"a condition cannot be compared with the text {right!r}")


def _never(_left: object, _right: object) -> bool:
    return False
