"""Conditions on columns that the source checks itself, before rows go to Spark.

Some narrow down what is pulled at all (queues, offsets, store times, tags), the rest drop rows
while they are still Arrow. Every condition is applied exactly, so Spark need not check it again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.protocol.tags import parse_tags
from sparrowmq.spark.offsets import QueueRange
from sparrowmq.spark.schema import READ_COLUMNS, SparkColumn, arrow_schema
from sparrowmq.spark.wire.cluster import Queue

EQUAL, IN = "=", "in"
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    EQUAL: pc.equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
}
PUSHABLE = frozenset(
    {
        *("topic", "brokerName", "queueId", "queueOffset", "tags", "keys"),
        *("storeTimestamp", "bornTimestamp"),
    }
)
CLOCK_STEP_MS = 60_000
"""How far a broker's clock may have been set back; apart from that, store times ascend."""

_TYPES = {field.name: field.type for field in arrow_schema()}
_OF_QUEUE: dict[str, Callable[[Queue], Any]] = {
    "topic": lambda queue: queue.topic,
    "brokerName": lambda queue: queue.broker_name,
    "queueId": lambda queue: queue.queue_id,
}


@dataclass(frozen=True, slots=True)
class RowCondition:
    """`column op value`; for `in` the value is a tuple."""

    column: str
    op: str
    value: Any

    def passes(self, value: Any) -> bool:
        """Whether one value, which is never null, satisfies the condition."""
        if self.op == IN:
            return value in self.value
        left, right = pa.scalar(value), pa.scalar(self.value)
        return bool(_COMPARE[self.op](left, right).as_py())

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Which rows of a batch satisfy the condition."""
        column = batch.column(self.column)
        if self.column == "keys":
            # No key contains a blank, so lists are equal when their texts are.
            column, value = pc.binary_join(column, " "), " ".join(self.value)
            return pc.equal(column, value)
        kind = _TYPES[self.column]
        if self.op == IN:
            return pc.is_in(column, pa.array(self.value, kind))
        return _COMPARE[self.op](column, pa.scalar(self.value, kind))


def can_be_pushed(condition: RowCondition) -> bool:
    """Whether this module applies it exactly."""
    if condition.column == "keys":
        keys = condition.value
        return (
            condition.op == EQUAL
            and isinstance(keys, list)
            and all(isinstance(key, str) and key and not key.split()[1:] for key in keys)
        )
    values = condition.value if condition.op == IN else (condition.value,)
    return condition.column in PUSHABLE and all(value is not None for value in values)


def narrow_queues(queues: Iterable[Queue], conditions: Iterable[RowCondition]) -> list[Queue]:
    """The queues that can hold wanted messages."""
    about = [found for found in conditions if found.column in _OF_QUEUE]
    return [
        queue
        for queue in queues
        if all(condition.passes(_OF_QUEUE[condition.column](queue)) for condition in about)
    ]


def narrow_range(
    piece: QueueRange, conditions: Iterable[RowCondition], offset_at: Callable[[Queue, int], int]
) -> QueueRange:
    """The part of a queue that can hold wanted messages."""
    start, end = piece.start, piece.end
    for condition in conditions:
        low, high = _bounds(condition)
        if condition.column == "queueOffset":
            start = max(start, start if low is None else low)
            end = min(end, end if high is None else high + 1)
        elif condition.column == "storeTimestamp":
            if low is not None:
                start = max(start, offset_at(piece.queue, _ms(low) - CLOCK_STEP_MS))
            if high is not None:
                end = min(end, offset_at(piece.queue, _ms(high) + CLOCK_STEP_MS))
    return piece._replace(start=start, end=max(start, end))


def _bounds(condition: RowCondition) -> tuple[Any, Any]:
    """The smallest and the largest value that can pass; None where there is no such limit."""
    if condition.op == IN:
        return min(condition.value, default=None), max(condition.value, default=None)
    low = condition.value if condition.op in (EQUAL, ">", ">=") else None
    high = condition.value if condition.op in (EQUAL, "<", "<=") else None
    return low, high


def _ms(value: datetime) -> int:
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def tag_expression(conditions: Iterable[RowCondition]) -> str | None:
    """The tag expression to send to the broker; None for everything."""
    for condition in conditions:
        if condition.column == "tags" and condition.op in (EQUAL, IN):
            tags = condition.value if condition.op == IN else (condition.value,)
            if tags and all(parse_tags(tag) == (tag,) for tag in tags if tag) and all(tags):
                return " || ".join(tags)
    return None


def tag_condition(expression: str | None) -> list[RowCondition]:
    """What to check after the broker filtered by tag: brokers compare only hashes."""
    tags = parse_tags(expression)
    return [RowCondition("tags", IN, tags)] if tags else []


class RowFilter:
    """Drops rows that do not satisfy all conditions, and columns that only conditions needed."""

    def __init__(
        self, columns: tuple[SparkColumn, ...], conditions: Iterable[RowCondition]
    ) -> None:
        self._names = [column.name for column in columns]
        self._conditions = list(conditions)
        needed = {condition.column for condition in self._conditions} - set(self._names)
        extra = tuple(column for column in READ_COLUMNS if column.name in needed)
        self.columns = (*columns, *extra)
        """The columns that have to be decoded."""

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The wanted rows with the wanted columns."""
        for condition in self._conditions:
            batch = batch.filter(condition.mask(batch))
        return batch.select(self._names) if len(self._names) < len(self.columns) else batch
