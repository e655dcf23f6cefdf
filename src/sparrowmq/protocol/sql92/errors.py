"""Errors of the SQL92 filter.

ValueError
└── Sql92Error      the expression is refused: it names the place and what was expected
Exception
└── Incomparable    an expression met a property it cannot compare: the message does not match
"""


class Sql92Error(ValueError):
    """The expression cannot be compiled; `position` counts characters from 0."""

    def __init__(self, expression: str, position: int, reason: str) -> None:
        before = expression[:position]
        self.expression = expression
        self.position = position
        self.line = before.count("\n") + 1
        self.column = position - (before.rfind("\n") + 1) + 1
        self.reason = reason
        super().__init__(f"SQL92 expression, line {self.line}, column {self.column}: {reason}")


class Incomparable(Exception):
    """A property's text cannot be turned into the type it is compared with."""
