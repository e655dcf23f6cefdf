"""Conditions that the source checks itself: they narrow what is pulled and drop the other rows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.offsets import QueueRange  # noqa: E402 - after the skip
from sparrowmq.spark.pushdown import (  # noqa: E402
    CLOCK_STEP_MS,
    RowCondition,
    RowFilter,
    can_be_pushed,
    narrow_queues,
    narrow_range,
    tag_condition,
    tag_expression,
)
from sparrowmq.spark.schema import arrow_schema, read_columns  # noqa: E402
from sparrowmq.spark.wire.cluster import Queue  # noqa: E402

QUEUES = [Queue(topic, broker, at) for topic in "tu" for broker in "ab" for at in range(3)]
PIECE = QueueRange(QUEUES[0], 10, 20)
NOON = datetime(2026, 11, 15, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp()) * 1000


def never(queue: Queue, timestamp_ms: int) -> int:
    raise AssertionError("nothing was asked about times")


def narrowed(*conditions: RowCondition) -> tuple[int, int]:
    found = narrow_range(PIECE, conditions, never)
    return found.start, found.end


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (RowCondition("topic", "=", "t"), QUEUES[:6]),
        (RowCondition("brokerName", "in", ("b", "c")), QUEUES[3:6] + QUEUES[9:]),
        (RowCondition("queueId", ">=", 2), QUEUES[2::3]),
        (RowCondition("queueId", ">", 2), []),
        (RowCondition("queueId", "<", 1), QUEUES[0::3]),
        (RowCondition("queueOffset", "=", 5), QUEUES),
    ],
)
def test_queues_that_cannot_have_wanted_rows_are_not_read(
    condition: RowCondition, left: list[Queue]
) -> None:
    assert narrow_queues(QUEUES, [condition]) == left


def test_queues_must_match_all_conditions() -> None:
    both = [RowCondition("topic", "=", "u"), RowCondition("queueId", "=", 1)]
    assert narrow_queues(QUEUES, both) == [Queue("u", "a", 1), Queue("u", "b", 1)]


@pytest.mark.parametrize(
    ("op", "value", "left"),
    [
        ("=", 15, (15, 16)),
        (">=", 15, (15, 20)),
        ("<=", 15, (10, 16)),
        ("in", (12, 17, 14), (12, 18)),
        (">=", 5, (10, 20)),
        ("<=", 50, (10, 20)),
        ("=", 20, (20, 20)),
        ("=", 9, (10, 10)),
    ],
)
def test_offsets_narrow_a_queue_to_where_wanted_rows_lie(
    op: str, value: Any, left: tuple[int, int]
) -> None:
    assert narrowed(RowCondition("queueOffset", op, value)) == left


def test_a_range_is_narrowed_by_every_condition() -> None:
    assert narrowed(
        RowCondition("queueOffset", ">=", 12), RowCondition("queueOffset", "<=", 14)
    ) == (
        12,
        15,
    )
    assert narrowed(
        RowCondition("tags", "=", "paid"), RowCondition("bornTimestamp", ">", NOON)
    ) == (
        10,
        20,
    )


@pytest.mark.parametrize(
    ("op", "asked", "left"),
    [
        (">", [NOON_MS - CLOCK_STEP_MS], (14, 20)),
        ("<=", [NOON_MS + CLOCK_STEP_MS], (10, 16)),
        ("=", [NOON_MS - CLOCK_STEP_MS, NOON_MS + CLOCK_STEP_MS], (14, 16)),
    ],
)
@pytest.mark.parametrize("moment", [NOON, NOON.replace(tzinfo=None)], ids=["aware", "naive"])
def test_store_times_narrow_a_queue_with_room_for_a_clock_that_was_set_back(
    moment: datetime, op: str, asked: list[int], left: tuple[int, int]
) -> None:
    seen: list[int] = []

    def offset_at(queue: Queue, timestamp_ms: int) -> int:
        seen.append(timestamp_ms)
        return 14 if timestamp_ms < NOON_MS else 16

    found = narrow_range(PIECE, [RowCondition("storeTimestamp", op, moment)], offset_at)
    assert (seen, (found.start, found.end)) == (asked, left)


@pytest.mark.parametrize(
    ("conditions", "asked"),
    [
        ([], None),
        ([RowCondition("tags", "=", "paid")], "paid"),
        ([RowCondition("tags", "in", ("paid", "created"))], "paid || created"),
        ([RowCondition("topic", "=", "t"), RowCondition("tags", "=", "paid")], "paid"),
        ([RowCondition("tags", ">", "paid")], None),
        ([RowCondition("tags", "=", "")], None),
        ([RowCondition("tags", "=", "*")], None),
        ([RowCondition("tags", "in", ("a || b", "c"))], None),
        ([RowCondition("tags", "in", ())], None),
    ],
)
def test_the_broker_is_asked_for_tags_that_it_understands(
    conditions: list[RowCondition], asked: str | None
) -> None:
    assert tag_expression(conditions) == asked


def test_tags_are_compared_again_because_the_broker_compares_hashes() -> None:
    assert tag_condition("created || paid") == [RowCondition("tags", "in", ("created", "paid"))]
    assert tag_condition("*") == tag_condition(None) == []


@pytest.mark.parametrize(
    ("condition", "is_taken"),
    [
        (RowCondition("queueOffset", ">", 5), True),
        (RowCondition("tags", "in", ("a", "b")), True),
        (RowCondition("tags", "in", ("a", None)), False),
        (RowCondition("tags", "=", None), False),
        (RowCondition("body", "=", b"x"), False),
        (RowCondition("keys", "=", ["k1", "k2"]), True),
        (RowCondition("keys", "=", ["k1 k2"]), False),
        (RowCondition("keys", "=", [""]), False),
        (RowCondition("keys", "=", ["k1", None]), False),
        (RowCondition("keys", "=", "k1"), False),
        (RowCondition("keys", ">", ["k1"]), False),
    ],
)
def test_only_filters_that_are_applied_exactly_are_taken_from_spark(
    condition: RowCondition, is_taken: bool
) -> None:
    assert can_be_pushed(condition) is is_taken


ROWS: list[dict[str, Any]] = [
    {"queueOffset": 1, "tags": "paid", "keys": ["a"], "bornTimestamp": NOON},
    {"queueOffset": 2, "tags": None, "keys": [], "bornTimestamp": NOON + timedelta(seconds=1)},
    {"queueOffset": 3, "tags": "created", "keys": ["a", "b"], "bornTimestamp": NOON},
]


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (RowCondition("queueOffset", ">", 1), [2, 3]),
        (RowCondition("queueOffset", ">=", 2), [2, 3]),
        (RowCondition("queueOffset", "<", 2), [1]),
        (RowCondition("queueOffset", "<=", 2), [1, 2]),
        (RowCondition("tags", "=", "paid"), [1]),
        (RowCondition("tags", "in", ("paid", "created")), [1, 3]),
        (RowCondition("keys", "=", ["a", "b"]), [3]),
        (RowCondition("keys", "=", []), [2]),
        (RowCondition("bornTimestamp", ">", NOON), [2]),
    ],
)
def test_rows_that_are_not_wanted_are_dropped_with_columns_that_were_only_asked_about(
    condition: RowCondition, left: list[int]
) -> None:
    found = RowFilter(read_columns(["queueOffset"]), [condition])
    names = [column.name for column in found.columns]
    assert set(names) == {"queueOffset", condition.column}
    kinds = {field.name: field.type for field in arrow_schema()}
    batch = pa.record_batch(
        {name: pa.array([row[name] for row in ROWS], kinds[name]) for name in names}
    )
    applied = found.apply(batch)
    assert applied.to_pydict() == {"queueOffset": left}
