"""The parts of an expression: a property, a constant, a condition, or always null.

In RocketMQ the Java class of a node decides where it is allowed. The four shapes here keep exactly
the differences that matter; every type is known when the expression is compiled.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

Read = Callable[[str], str | None]
"""Looks up a property by name; None if the message does not have it."""
Evaluate = Callable[[Read], bool | None]
"""A compiled condition; None is SQL's unknown. May raise Incomparable."""
Value = str | int | float | bool | None


class JavaType(Enum):
    """The class a value has in RocketMQ's evaluator."""

    STRING = auto()
    INTEGER = auto()
    LONG = auto()
    DOUBLE = auto()
    BOOLEAN = auto()
    NULL = auto()


NUMBERS = frozenset({JavaType.INTEGER, JavaType.LONG, JavaType.DOUBLE})


@dataclass(frozen=True, slots=True)
class Property:
    """The text of a message property, or null."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, or a negated number, which RocketMQ's checks do not count as a literal."""

    value: Value
    type: JavaType
    position: int
    is_literal: bool = True

    @property
    def is_number(self) -> bool:
        return self.type in NUMBERS


@dataclass(frozen=True, slots=True)
class Condition:
    """Something true, false or unknown. `depth` counts nested calls.

    `opposite` is the condition that this one negates, so that NOT NOT … needs no calls.
    """

    evaluate: Evaluate
    position: int
    depth: int = 1
    opposite: "Condition | None" = None


@dataclass(frozen=True, slots=True)
class Nothing:
    """The negative of something that is not a number: null, once `condition` is evaluated."""

    position: int
    condition: Condition | None = None


Operand = Property | Constant | Condition | Nothing


def type_of(operand: Operand) -> JavaType:
    """The only class, apart from null, that the operand's value can have."""
    match operand:
        case Property():
            return JavaType.STRING
        case Constant(type=java_type):
            return java_type
        case Condition():
            return JavaType.BOOLEAN
        case Nothing():
            return JavaType.NULL


def depth_of(operand: Operand) -> int:
    """How many calls an evaluation of the operand nests."""
    match operand:
        case Condition(depth=depth) | Nothing(condition=Condition(depth=depth)):
            return depth
        case _:
            return 0


def reader_of(operand: Operand) -> Callable[[Read], Value]:
    """A function that evaluates the operand, whatever it is."""
    match operand:
        case Property(name=name):
            return lambda read: read(name)
        case Constant(value=value):
            return lambda read: value
        case Condition(evaluate=evaluate):
            return evaluate
        case Nothing(condition=condition):
            return _nothing_after(condition)


def _nothing_after(condition: Condition | None) -> Callable[[Read], None]:
    def nothing(read: Read) -> None:
        if condition is not None:
            condition.evaluate(read)

    return nothing
