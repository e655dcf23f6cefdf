"""From the grammar's rules to conditions, with RocketMQ's checks of what is allowed where."""

import operator
from collections.abc import Callable

from lark import Token, Transformer, v_args

from sparrowmq.protocol.sql92.comparison import Test, equality, numbers_in_order, ordering
from sparrowmq.protocol.sql92.logic import all_of, any_of, membership, negation_of, text_test
from sparrowmq.protocol.sql92.operands import (
    Condition,
    Constant,
    JavaType,
    Nothing,
    Operand,
    Property,
)
from sparrowmq.protocol.sql92.values import INTEGER_MAX, LONG_MAX

MAX_DEPTH = 64
"""How deep conditions may nest. Evaluation nests as many calls, far below Python's limit."""

_ORDERS: dict[str, Test] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}
_TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


class RuleViolation(Exception):
    """A rule does not allow what is at `position`."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def as_condition(operand: Operand) -> Condition:
    """The operand as a condition; raises RuleViolation."""
    match operand:
        case Condition():
            return operand
        case Property(name=name):
            # A property is never a Boolean, so alone it is false, or unknown if it is missing.
            return Condition(lambda read: None if read(name) is None else False, operand.position)
        case Constant(value=bool() | None as value):
            return Condition(lambda read: value, operand.position)
        case Constant() | Nothing():
            raise RuleViolation(
                operand.position, f"expected a condition, found {_described(operand)}"
            )


@v_args(inline=True)
class Builder(Transformer[Token, Operand]):
    """One method per rule of the grammar."""

    def disjunction(self, *operands: Operand) -> Condition:
        return _shallow(any_of([as_condition(each) for each in operands]))

    def conjunction(self, *operands: Operand) -> Condition:
        return _shallow(all_of([as_condition(each) for each in operands]))

    def equal(self, left: Operand, right: Operand) -> Condition:
        for each in (left, right):
            if isinstance(each, Constant) and each.value is None:
                raise RuleViolation(
                    each.position, "NULL cannot be compared: use IS NULL or IS NOT NULL"
                )
        if _is_boolean_literal(left) and _is_literal(right) and not _is_boolean_literal(right):
            raise RuleViolation(
                right.position, f"{_described(left)} and {_described(right)} differ"
            )
        return _shallow(equality(left, right))

    def not_equal(self, left: Operand, right: Operand) -> Condition:
        return _shallow(negation_of(self.equal(left, right)))

    def is_null(self, left: Operand, null: Token) -> Condition:
        return _shallow(equality(left, self.null(null)))

    def is_not_null(self, left: Operand, _not: Token, null: Token) -> Condition:
        return _shallow(negation_of(self.is_null(left, null)))

    def ordered(self, left: Operand, order: Token, right: Operand) -> Condition:
        return self._order(_ORDERS[order], left, right)

    def between(self, value: Operand, low: Operand, high: Operand) -> Condition:
        at_least = self._order(operator.ge, value, low)
        at_most = self._order(operator.le, value, high)
        match low, high:
            case Constant(is_literal=True), Constant(is_literal=True) if not numbers_in_order(
                low, high
            ):
                reason = f"BETWEEN {low.value} AND {high.value} is empty: the lower comes first"
                raise RuleViolation(low.position, reason)
        return _shallow(all_of([at_least, at_most]))

    def not_between(self, value: Operand, _not: Token, low: Operand, high: Operand) -> Condition:
        below = self._order(operator.lt, value, low)
        above = self._order(operator.gt, value, high)
        return _shallow(any_of([below, above]))

    def text_test(self, subject: Operand, test: Token, sought: Token) -> Condition:
        condition = text_test(_TEXT_TESTS[test.upper()], subject, _text_of(sought), True)
        return _shallow(condition)

    def not_text_test(self, subject: Operand, _not: Token, test: Token, sought: Token) -> Condition:
        condition = text_test(_TEXT_TESTS[test.upper()], subject, _text_of(sought), False)
        return _shallow(condition)

    def is_in(self, subject: Operand, texts: list[str]) -> Condition:
        return membership(_property(subject), texts, True)

    def not_in(self, subject: Operand, _not: Token, texts: list[str]) -> Condition:
        return membership(_property(subject), texts, False)

    def texts(self, *tokens: Token) -> list[str]:
        return [_text_of(token) for token in tokens]

    def negative(self, minus: Token, operand: Operand) -> Operand:
        position = _start(minus)
        match operand:
            case Constant(value=int() | float() as value, is_number=True):
                return Constant(-value, operand.type, position, is_literal=False)
            case Condition():
                return Nothing(position, operand)
            case Nothing():
                return Nothing(position, operand.condition)
            case _:
                return Nothing(position)

    def negation(self, _not: Token, operand: Operand) -> Condition:
        return _shallow(negation_of(as_condition(operand)))

    def string(self, token: Token) -> Constant:
        return Constant(_text_of(token), JavaType.STRING, _start(token))

    def decimal(self, token: Token) -> Constant:
        digits = token.rstrip("lL")
        if len(digits) > len(str(LONG_MAX)) or int(digits) > LONG_MAX:
            raise RuleViolation(
                _start(token), f"{_cut(token)} is above the largest Long, {LONG_MAX}"
            )
        value = int(digits)
        java_type = JavaType.INTEGER if value <= INTEGER_MAX else JavaType.LONG
        return Constant(value, java_type, _start(token))

    def floating(self, token: Token) -> Constant:
        value = float(token)
        if value == float("inf"):
            raise RuleViolation(_start(token), f"{_cut(token)} is above the largest Double")
        if value == 0.0:
            # RocketMQ takes Double.MIN_VALUE, the smallest positive one, for the lowest.
            raise RuleViolation(_start(token), f"{_cut(token)} is not a Double above zero: write 0")
        return Constant(value, JavaType.DOUBLE, _start(token))

    def true(self, token: Token) -> Constant:
        return Constant(True, JavaType.BOOLEAN, _start(token))

    def false(self, token: Token) -> Constant:
        return Constant(False, JavaType.BOOLEAN, _start(token))

    def null(self, token: Token) -> Constant:
        return Constant(None, JavaType.NULL, _start(token))

    def property(self, token: Token) -> Property:
        return Property(str(token), _start(token))

    def _order(self, test: Test, left: Operand, right: Operand) -> Condition:
        for each in (left, right):
            if isinstance(each, Condition) or (isinstance(each, Constant) and not each.is_number):
                found = _described(each)
                raise RuleViolation(
                    each.position, f"expected a number or a property, found {found}"
                )
        return _shallow(ordering(test, left, right))


def _shallow(condition: Condition) -> Condition:
    if condition.depth > MAX_DEPTH:
        reason = f"conditions are nested more than {MAX_DEPTH} deep"
        raise RuleViolation(condition.position, reason)
    return condition


def _property(operand: Operand) -> Property:
    if isinstance(operand, Property):
        return operand
    raise RuleViolation(
        operand.position, f"IN needs a property before it, found {_described(operand)}"
    )


def _text_of(token: Token) -> str:
    return token[1:-1].replace("''", "'")


def _start(token: Token) -> int:
    position = token.start_pos
    assert position is not None, "the lexer gives every token its position"
    return position


def _is_literal(operand: Operand) -> bool:
    return isinstance(operand, Constant) and operand.is_literal


def _is_boolean_literal(operand: Operand) -> bool:
    return isinstance(operand, Constant) and operand.type is JavaType.BOOLEAN


def _described(operand: Operand) -> str:
    match operand:
        case Property(name=name):
            return f"the property {_cut(name)}"
        case Constant(value=str() as text):
            return f"the text {_cut(text)!r}"
        case Constant(value=bool() | None as value):
            return "NULL" if value is None else str(value).upper()
        case Constant(value=value):
            return f"the number {value}"
        case Condition():
            return "a condition"
        case Nothing():
            return "the negative of something that is not a number"


def _cut(text: str) -> str:
    return text if len(text) <= 40 else text[:40] + "…"
