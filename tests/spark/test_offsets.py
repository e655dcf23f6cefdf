"""Offsets of many queues: JSON, shares of a limit, ranges for tasks."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark.offsets import (
    Offsets,
    QueueRange,
    backlog,
    from_json,
    read_assignment,
    read_offsets,
    share_out,
    split,
    to_json,
)
from sparrowmq.spark.wire.cluster import Queue

queues = st.builds(
    Queue, st.sampled_from(["orders", "bills"]), st.sampled_from(["a", "b"]), st.integers(0, 5)
)
sizes = st.dictionaries(queues, st.tuples(st.integers(0, 100), st.integers(0, 5000)), max_size=12)


@given(st.dictionaries(queues, st.integers(0, 2**62)))
def test_offsets_survive_json_with_any_remarks(offsets: Offsets) -> None:
    text = json.dumps({**to_json(offsets), "$lag": 17})
    assert from_json(json.loads(text)) == offsets


@given(sizes, st.integers(1, 20_000))
def test_a_limit_is_used_up_and_never_exceeded(
    found: dict[Queue, tuple[int, int]], limit: int
) -> None:
    start = {queue: first for queue, (first, _) in found.items()}
    end = {queue: first + size for queue, (first, size) in found.items()}
    limited = share_out(start, end, limit)
    assert backlog(start, limited) == min(limit, backlog(start, end))
    assert all(start[queue] <= limited[queue] <= end[queue] for queue in end)


def test_shares_are_in_proportion_to_the_backlog() -> None:
    long, short = Queue("t", "a", 0), Queue("t", "a", 1)
    start = {long: 0, short: 100}
    assert share_out(start, {long: 900, short: 200}, 100) == {long: 90, short: 110}


def test_a_short_queue_is_not_starved_by_a_long_one() -> None:
    long, short = Queue("t", "a", 0), Queue("t", "a", 1)
    assert share_out({}, {long: 1_000_000, short: 1}, 10) == {long: 9, short: 1}


def test_a_queue_that_the_start_does_not_know_counts_from_its_beginning() -> None:
    old, new = Queue("t", "a", 0), Queue("t", "b", 0)
    assert backlog({old: 5}, {old: 7, new: 3}) == 5


@given(
    st.dictionaries(queues, st.tuples(st.integers(0, 50), st.integers(0, 300)), max_size=6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 100)),
)
def test_pieces_cover_every_queue_once(
    found: dict[Queue, tuple[int, int]], least: int | None, most: int | None
) -> None:
    ranges = [QueueRange(queue, first, first + size, 7) for queue, (first, size) in found.items()]
    parts = split(ranges, min_partitions=least, max_records=most)
    offsets = [(part.queue, at) for part in parts for at in range(part.start, part.end)]
    assert sorted(offsets) == sorted(
        (part.queue, at) for part in ranges for at in range(part.start, part.end)
    )
    assert all(part.size > 0 and part.epoch == 7 for part in parts)
    if most is not None:
        assert all(part.size <= most for part in parts)
    if least is not None:
        assert len(parts) >= min(least, len(offsets))


def test_a_queue_is_one_piece_unless_it_has_to_be_cut() -> None:
    one, empty, five = (
        QueueRange(Queue("t", "a", number), 7, 7 + size) for number, size in enumerate((1, 0, 5))
    )
    assert split([one, empty, five]) == [one, five]
    assert split([one, empty, five], max_records=5) == [one, five]
    assert split([one, empty, five], min_partitions=2) == [one, five]
    assert split([one], min_partitions=4) == [one]


@pytest.mark.parametrize("text", ["", "later", "[]", '{"t": 5}', '{"t": {"a": {"0": "x"}}}', "1"])
def test_offsets_of_another_shape_are_refused_with_the_right_one(text: str) -> None:
    with pytest.raises(ValueError, match=r'JSON like {"orders": {"broker-a": {"0": 17}}}'):
        read_offsets(text, least=-2)
    with pytest.raises(ValueError, match="must be earliest, latest or JSON"):
        read_offsets(text, least=-2)
    with pytest.raises(ValueError, match="must be JSON"):  # of times, which have no such words
        read_offsets(text, least=0)


def test_offsets_below_the_marks_are_refused() -> None:
    with pytest.raises(ValueError, match="has -3 in it"):
        read_offsets('{"t": {"a": {"0": -3}}}', least=-2)


def test_an_assignment_names_queues() -> None:
    assert read_assignment('{"t": {"a": [0, 2]}}') == {"t": {"a": (0, 2)}}
    for text in ("{}", '{"t": {"a": []}}'):
        with pytest.raises(ValueError, match="must name a queue"):
            read_assignment(text)
    with pytest.raises(ValueError, match="JSON like"):
        read_assignment('{"t": [0]}')
