"""Conditions on texts: IN, CONTAINS, STARTSWITH and ENDSWITH with their NOT forms."""

from collections.abc import Callable, Sequence

from sparrowmq.protocol.sql92.operands import (
    Condition,
    Operand,
    Property,
    Read,
    depth_of,
    reader_of,
)

Test = Callable[[str, str], bool]
"""Called with the value and what to look for."""


def membership(subject: Property, texts: Sequence[str], is_in: bool) -> Condition:
    """IN and NOT IN; unknown where the property is missing."""
    name, wanted = subject.name, frozenset(texts)

    def evaluate(read: Read) -> bool | None:
        value = read(name)
        return None if value is None else (value in wanted) is is_in

    return Condition(evaluate, subject.position)


def text_test(test: Test, subject: Operand, sought: str, is_wanted: bool) -> Condition:
    """CONTAINS and its like. False, never unknown, for null, for no text and for an empty text."""
    if not sought:
        return Condition(lambda read: False, subject.position)
    read_subject = reader_of(subject)

    def evaluate(read: Read) -> bool | None:
        value = read_subject(read)
        return isinstance(value, str) and test(value, sought) is is_wanted

    return Condition(evaluate, subject.position, 1 + depth_of(subject))
