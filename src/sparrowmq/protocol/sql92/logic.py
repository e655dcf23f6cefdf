"""AND, OR and NOT in three-valued logic."""

from collections.abc import Sequence

from sparrowmq.protocol.sql92.operands import Condition, Evaluate, Read


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
