"""Offsets with epochs: their JSON, and how far one is good."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark import offsets as plain
from sparrowmq.spark.positions import (
    EPOCHS,
    Positions,
    from_json,
    good_up_to,
    lowered,
    offsets_of,
    to_json,
)
from sparrowmq.spark.wire.cluster import Queue, QueueEnd, QueuePosition

queues = st.builds(
    Queue, st.sampled_from(["orders", "bills"]), st.sampled_from(["a", "b"]), st.integers(0, 5)
)
positions = st.builds(
    QueuePosition, st.integers(0, 2**62), st.one_of(st.just(0), st.integers(1, 2**40))
)
QUEUE = Queue("orders", "broker-a", 0)


@given(st.dictionaries(queues, positions))
def test_positions_survive_json_with_any_remarks(found: Positions) -> None:
    text = json.dumps({**to_json(found), "$lag": 17})
    assert from_json(json.loads(text)) == found
    assert plain.from_json(json.loads(text)) == offsets_of(found), "as earlier releases read it"


def test_json_without_epochs_is_that_of_earlier_releases() -> None:
    nested = {"orders": {"broker-a": {"0": 17}}}
    assert from_json(nested) == {QUEUE: QueuePosition(17)}
    assert to_json({QUEUE: QueuePosition(17)}) == nested
    epochs = {EPOCHS: {"orders": {"broker-a": {"0": 1763280000}}}}
    assert to_json({QUEUE: QueuePosition(17, 1763280000)}) == {**nested, **epochs}


def test_an_end_that_a_limit_lowers_keeps_its_epoch() -> None:
    assert lowered({QUEUE: QueuePosition(17, 9)}, {QUEUE: 12}) == {QUEUE: QueuePosition(12, 9)}


@pytest.mark.parametrize(
    ("at", "end", "expected"),
    [
        ((10, 7), QueueEnd(QueuePosition(30, 7)), 10),  # nothing has begun since
        ((10, 7), QueueEnd(QueuePosition(30, 8), 4), 4),
        ((10, 7), QueueEnd(QueuePosition(30, 8), 12), 12),
        ((10, 7), QueueEnd(QueuePosition(4, 8), 4), 4),
        ((10, 0), QueueEnd(QueuePosition(30, 8)), 30),  # of an earlier release
        ((10, 0), QueueEnd(QueuePosition(4, 8)), 4),
        ((10, 7), QueueEnd(QueuePosition(30)), 30),  # Apache's broker serves the store now
        ((10, 7), QueueEnd(QueuePosition(4)), 4),
        ((10, 7), QueueEnd(QueuePosition(4, 5)), 4),  # an older copy, and a clock that went back
    ],
)
def test_how_far_a_position_is_good(at: tuple[int, int], end: QueueEnd, expected: int) -> None:
    assert good_up_to(QueuePosition(*at), end) == expected
