"""The columns of a topic, declared once; Spark's and Arrow's schemas are both derived from them.

pyspark and pyarrow are imported by the functions that need them: a driver without Arrow, or an
executor without pyspark's SQL types, can still load this module.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparrowmq.spark.errors import OptionError, RocketMQError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


STRINGS = "array<string>"
STRING_MAP = "map<string,string>"


@dataclass(frozen=True, slots=True)
class SparkColumn:
    """One column: its name, its type in Spark's SQL, and what it holds."""

    name: str
    sql_type: str
    meaning: str


PROPERTIES = SparkColumn("properties", STRING_MAP, "all properties, RocketMQ's own among them")
READ_COLUMNS = (
    SparkColumn("topic", "string", "the topic the message lies in"),
    SparkColumn("brokerName", "string", "the broker it was read from"),
    SparkColumn("queueId", "int", "its queue"),
    SparkColumn("queueOffset", "bigint", "its place in the queue"),
    SparkColumn("msgId", "string", "the sender's unique id, the offset id where it has none"),
    SparkColumn("tags", "string", "its tag, null without one"),
    SparkColumn("keys", STRINGS, "what it can be found by; empty without keys"),
    SparkColumn("body", "binary", "the body, decompressed"),
    PROPERTIES,
    SparkColumn("bornTimestamp", "timestamp", "when it was sent, by the sender's clock"),
    SparkColumn("storeTimestamp", "timestamp", "when it was stored, by the broker's clock"),
    SparkColumn("bornHost", "string", "host:port of the sender"),
    SparkColumn("reconsumeTimes", "int", "how often a group has failed on it"),
    SparkColumn("sysFlag", "int", "RocketMQ's bits: compression, transaction, IPv6"),
)
"""The columns that the sources return, in this order."""

WRITE_COLUMNS = (
    SparkColumn("body", "binary", "required; a string is taken as UTF-8"),
    SparkColumn("topic", "string", "where to; the option topic overrides it"),
    SparkColumn("tags", "string", "one tag"),
    SparkColumn(
        "keys",
        STRINGS,
        "what the message can be found by; a string may hold several keys, with blanks between",
    ),
    SparkColumn("properties", STRING_MAP, "the application's own properties"),
    SparkColumn("shardingKey", "string", "same key, same queue, in order"),
    SparkColumn(
        "delayLevel", "int", "deliver after the delay of this level, 1 (1 s) to 18 (2 h); 0 is none"
    ),
    SparkColumn("deliverTime", "timestamp", "deliver at this time"),
    SparkColumn(
        "uniqueId", "string", "the message's msgId; null or missing: one is made for the row"
    ),
)
"""The columns that the sink takes; all but `body` may be missing."""

READ_NAMES = tuple(column.name for column in READ_COLUMNS)
_BY_NAME = {column.name: column for column in READ_COLUMNS}


KAFKA_READ_NAMES = {
    "key": "keys",
    "value": "body",
    "partition": "queueId",
    "offset": "queueOffset",
    "timestamp": "storeTimestamp",
    "headers": "properties",
}
"""For each column that spark-sql-kafka reads, its name there and its name here."""
_KAFKA_WRITE_HINTS = {
    "key": "Kafka's {} is shardingKey here where rows of a key must keep their order, and keys"
    " where the message is to be found by it",
    "value": "Kafka's {} is body here",
    "partition": "a queue is not chosen by number, but rows of one shardingKey share one",
    "headers": "Kafka's {} is properties here",
}
"""What to write instead of each column that spark-sql-kafka writes."""


def _no_column(name: str, offered: Iterable[str]) -> str:
    hint = _kafka_hint(name)
    return f"there is no column {name!r}{hint}, allowed are {', '.join(offered)}"


def _kafka_hint(name: str) -> str:
    ours = KAFKA_READ_NAMES.get(name.lower())
    return "" if ours is None else f" (Kafka's {name} is {ours} here)"


def choose_columns(
    offered: Sequence[SparkColumn], names: Iterable[str] | None
) -> tuple[SparkColumn, ...]:
    """The columns with these names, in any case, in the order given; all columns for None.

    A name given twice yields one column. Raises OptionError that names the unknown column and the
    known ones.
    """
    if names is None:
        return tuple(offered)
    known = {column.name.lower(): column for column in offered}
    chosen: dict[str, SparkColumn] = {}
    for name in names:
        column = known.get(name.lower())
        if column is None:
            raise OptionError("columns", _no_column(name, [each.name for each in offered]))
        chosen[column.name] = column
    return tuple(chosen.values())


def read_columns(names: Iterable[str] | None = None) -> tuple[SparkColumn, ...]:
    """The columns of a topic with these names, all columns for None. Raises OptionError."""
    return choose_columns(READ_COLUMNS, names)


def struct_type(columns: Iterable[SparkColumn] = READ_COLUMNS) -> StructType:
    """The columns as Spark's schema, all nullable, as in DataFrames read from files."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DataType,
        IntegerType,
        LongType,
        MapType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    types: dict[str, DataType] = {
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "binary": BinaryType(),
        "timestamp": TimestampType(),
        STRINGS: ArrayType(StringType()),
        STRING_MAP: MapType(StringType(), StringType()),
    }
    return StructType([StructField(column.name, types[column.sql_type]) for column in columns])


def arrow_schema(columns: Iterable[SparkColumn] = READ_COLUMNS) -> pa.Schema:
    """The columns as Arrow's schema, exactly what Spark derives from `struct_type`."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "binary": pa.binary(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        STRINGS: pa.list_(pa.field("element", pa.string())),
        STRING_MAP: pa.map_(pa.string(), pa.field("value", pa.string())),
    }
    return pa.schema([pa.field(column.name, types[column.sql_type]) for column in columns])


def chosen_columns(schema: StructType) -> tuple[SparkColumn, ...]:
    """The columns of a schema that the user gave, in that order.

    Raises ColumnError for a column that is unknown or has another type.
    """
    declared = {field.name: field.dataType for field in struct_type()}
    for field in schema.fields:
        if field.name not in declared:
            hint = _kafka_hint(field.name)
            text = f"unknown to the source{hint}, allowed are {_listed(READ_NAMES)}"
            raise ColumnError(field.name, text)
        if field.dataType != declared[field.name]:
            found = field.dataType.simpleString()
            wanted = _BY_NAME[field.name].sql_type
            raise ColumnError(field.name, f"is {found} in the schema, must be {wanted}")
    return tuple(_BY_NAME[field.name] for field in schema.fields)


# ---- columns of a DataFrame that is written, checked before anything is sent

ColumnPlaces: TypeAlias = dict[str, int]
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
    "uniqueId": ("string",),
}
_BODY_TYPES = " or ".join(ALLOWED_TYPES["body"])
# Ignored by the sink, so that what a source has read can be written unchanged.
_LEFT_OUT = frozenset(name.lower() for name in (*READ_NAMES, "logOffset")) - {
    name.lower() for name in WRITE_NAMES
}
_BY_LOWER = {name.lower(): name for name in WRITE_NAMES}


class ColumnError(RocketMQError, ValueError):
    """The column `column` is missing, has a wrong type or holds a value that cannot be sent."""

    def __init__(self, column: str, problem: str, *, noun: str = "column") -> None:
        super().__init__(f"{noun} {column}: {problem}")
        self.column = column
        self.problem = problem

    def after(self, rows: int) -> ColumnError:
        """The same error in a task that has already sent rows, which stay."""
        sent = f"up to {rows} rows of this task were sent before" if rows else "this task sent none"
        text = f"{self.problem}; {sent}, and other tasks may have sent theirs"
        return ColumnError(self.column, text)


def check_columns(fields: Iterable[tuple[str, str]], *, has_topic: bool) -> ColumnPlaces:
    """Find the sink's columns among `fields`, given as names and Spark's type texts.

    `has_topic` says that the option topic is set. Names are case-insensitive, as in Spark.
    Raises ColumnError, or OptionError if no topic is given at all.
    """
    found: ColumnPlaces = {}
    given = list(fields)
    _check_names([name for name, _ in given])
    for at, (name, kind) in enumerate(given):
        column = _BY_LOWER.get(name.lower())
        if column is None:
            continue
        if column in found:
            raise ColumnError(column, "is there twice, remove one of them")
        _check_type(column, kind)
        found[column] = at
    if "body" not in found:
        raise ColumnError("body", f"missing; the sink needs it, as {_BODY_TYPES}")
    if "topic" not in found and not has_topic:
        raise OptionError("topic", "missing; give it, or a column topic of type string")
    return found


def _check_names(names: list[str]) -> None:
    """Refuse unknown columns, all in one error."""
    lower = {name.lower() for name in names}
    unknown = [name for name in names if name.lower() not in _LEFT_OUT | _BY_LOWER.keys()]
    if not unknown:
        return
    hints = [
        _KAFKA_WRITE_HINTS[name.lower()].format(name)
        for name in unknown
        if name.lower() in _KAFKA_WRITE_HINTS
    ]
    hint = f" ({'; '.join(hints)})" if hints else ""
    text = f"unknown to the sink{hint}, allowed are {_listed(WRITE_NAMES)}"
    if "body" not in lower:
        text += f"; and body is missing, which the sink needs as {_BODY_TYPES}"
    raise ColumnError(" and ".join(unknown), text, noun="columns" if unknown[1:] else "column")


def _check_type(column: str, kind: str) -> None:
    allowed = ALLOWED_TYPES[column]
    plain = kind.split(" collate ")[0]  # a string with a collation is a string
    if plain not in allowed:
        raise ColumnError(column, f"has type {kind}, allowed is {' or '.join(allowed)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
