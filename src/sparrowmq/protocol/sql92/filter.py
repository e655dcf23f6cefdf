"""A compiled SQL92 filter."""

from collections.abc import Mapping

from sparrowmq.protocol.sql92.errors import Incomparable, Sql92Error
from sparrowmq.protocol.sql92.operands import Evaluate

MAX_LENGTH = 16_384
"""Characters of an expression. RocketMQ sets no limit; compiling one of these takes a fraction of a
second, and no one writes one by hand."""


class Sql92:
    """A compiled expression that matches messages; immutable and thread-safe."""

    __slots__ = ("_evaluate", "expression", "ignored_from")

    def __init__(self, expression: str, evaluate: Evaluate, ignored_from: int | None) -> None:
        self.expression = expression
        self.ignored_from = ignored_from
        """Where RocketMQ's grammar stopped reading although more follows, else None: worth a
        warning, because RocketMQ silently ignores the rest, too."""
        self._evaluate = evaluate

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether the message is wanted: true only, not unknown, not incomparable."""
        try:
            return self._evaluate(properties.get) is True
        except Incomparable:
            return False

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """The three-valued result; None is unknown. Raises Incomparable."""
        return self._evaluate(properties.get)

    def __repr__(self) -> str:
        return f"Sql92({self.expression!r})"


def compile_sql92(expression: str) -> Sql92:
    """Compile once per subscription. Raises Sql92Error, which names the place."""
    if len(expression) > MAX_LENGTH:
        reason = f"{len(expression)} characters, at most {MAX_LENGTH} allowed"
        raise Sql92Error(expression, MAX_LENGTH, reason)
    # lark costs tens of milliseconds to import; most processes never see an expression.
    from sparrowmq.protocol.sql92.parser import parse

    condition, ignored_from = parse(expression)
    return Sql92(expression, condition.evaluate, ignored_from)


def check_sql92(expression: str) -> None:
    """Raises Sql92Error for an expression that brokers refuse, or would read only in part."""
    ignored_from = compile_sql92(expression).ignored_from
    if ignored_from is not None:
        rest = expression[ignored_from:][:40]
        reason = f"brokers would ignore {rest!r}; join conditions with AND or OR"
        raise Sql92Error(expression, ignored_from, reason)
