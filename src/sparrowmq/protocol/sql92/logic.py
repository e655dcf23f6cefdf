"""Compound conditions (AND, OR and NOT in three-valued logic), and tests on texts."""

from collections.abc import Callable, Sequence

from sparrowmq.protocol.sql92.operands import (
    Condition,
    Evaluate,
    Operand,
    Property,
    Read,
    depth_of,
    reader_of,
)

Test = Callable[[str, str], bool]
"""Called with the value and what to look for."""


def any_of(conditions: Sequence[Condition]) -> Condition:
    """OR. A chain is one loop, however long, so that it cannot nest calls."""
    evaluates = tuple(condition.evaluate for condition in conditions)

    def evaluate(read: Read) -> bool | None:
        answer: bool | None = False
        for each in evaluates:
            value = each(read)
            if value:
                return True
            if value is None:
                answer = None
        return answer

    return _combined(evaluate, conditions)


def all_of(conditions: Sequence[Condition]) -> Condition:
    """AND, a loop like OR."""
    evaluates = tuple(condition.evaluate for condition in conditions)

    def evaluate(read: Read) -> bool | None:
        answer: bool | None = True
        for each in evaluates:
            value = each(read)
            if value is None:
                answer = None
            elif not value:
                return False
        return answer

    return _combined(evaluate, conditions)


def negation_of(condition: Condition) -> Condition:
    """NOT; unknown stays unknown."""
    if condition.opposite is not None:
        return condition.opposite
    inner = condition.evaluate

    def evaluate(read: Read) -> bool | None:
        value = inner(read)
        return None if value is None else not value

    return Condition(evaluate, condition.position, condition.depth + 1, condition)


def _combined(evaluate: Evaluate, conditions: Sequence[Condition]) -> Condition:
    depth = 1 + max(condition.depth for condition in conditions)
    return Condition(evaluate, conditions[0].position, depth)


def membership(subject: Property, texts: Sequence[str], is_in: bool) -> Condition:
    """IN and NOT IN; unknown if the property is missing."""
    name, wanted = subject.name, frozenset(texts)

    def evaluate(read: Read) -> bool | None:
        value = read(name)
        return None if value is None else (value in wanted) is is_in

    return Condition(evaluate, subject.position)


def text_test(test: Test, subject: Operand, sought: str, is_wanted: bool) -> Condition:
    """CONTAINS and similar tests. False, not unknown, for null, non-texts and an empty `sought`."""
    if not sought:
        return Condition(lambda read: False, subject.position)
    read_subject = reader_of(subject)

    def evaluate(read: Read) -> bool | None:
        value = read_subject(read)
        return isinstance(value, str) and test(value, sought) is is_wanted

    return Condition(evaluate, subject.position, 1 + depth_of(subject))
