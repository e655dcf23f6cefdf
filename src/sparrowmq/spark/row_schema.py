"""Which columns of a DataFrame make a message, checked before anything is sent."""

from collections.abc import Iterable
from typing import TypeAlias

from sparrowmq.spark.errors import OptionError, RocketMQError
from sparrowmq.spark.schema import READ_NAMES, WRITE_COLUMNS

Positions: TypeAlias = dict[str, int]
"""Where the sink's columns are in a row, by the sink's names."""

WRITE_NAMES = tuple(column.name for column in WRITE_COLUMNS)
ALLOWED_TYPES = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("array<string>", "string"),
    "properties": ("map<string,string>",),
    "shardingKey": ("string",),
    "delayLevel": ("int", "tinyint", "smallint", "bigint"),
    "deliverTime": ("timestamp", "timestamp_ntz"),
}
# So that what a source has read can be written as it is.
_LEFT_OUT = frozenset(name.lower() for name in (*READ_NAMES, "logOffset")) - {
    name.lower() for name in WRITE_NAMES
}
_BY_LOWER = {name.lower(): name for name in WRITE_NAMES}


class ColumnError(RocketMQError, ValueError):
    """The column `column` is missing, has a wrong type or holds what no message can."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(f"column {column}: {problem}")
        self.column = column


def check_columns(fields: Iterable[tuple[str, str]], *, has_topic: bool) -> Positions:
    """Find the sink's columns among `fields`, given as names and Spark's type texts.

    `has_topic` says that the option topic is set. Names count whatever their case, as in Spark.
    Raises ColumnError, and OptionError where no topic is given at all.
    """
    found: Positions = {}
    for at, (name, kind) in enumerate(fields):
        column = _BY_LOWER.get(name.lower())
        if column is None:
            if name.lower() not in _LEFT_OUT:
                raise ColumnError(name, f"unknown to the sink, allowed are {_listed(WRITE_NAMES)}")
            continue
        if column in found:
            raise ColumnError(column, "comes twice, one of them has to go")
        _check_type(column, kind)
        found[column] = at
    if "body" not in found:
        allowed = " or ".join(ALLOWED_TYPES["body"])
        raise ColumnError("body", f"missing; the sink needs it, as {allowed}")
    if "topic" not in found and not has_topic:
        raise OptionError("topic", "missing; give it, or a column topic of type string")
    return found


def _check_type(column: str, kind: str) -> None:
    allowed = ALLOWED_TYPES[column]
    plain = kind.split(" collate ")[0]  # a string with a collation is a string
    if plain not in allowed:
        raise ColumnError(column, f"has type {kind}, allowed is {' or '.join(allowed)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
