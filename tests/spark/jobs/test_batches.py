"""Batches that fill the queues of another topic evenly."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark.jobs.copy import Batch, next_batch, shared_rate
from sparrowmq.spark.offsets import Offsets
from sparrowmq.spark.wire.cluster import Queue

backlogs = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 5000)), min_size=1, max_size=8)


def queues_of(sizes: list[tuple[int, int]]) -> tuple[Offsets, Offsets]:
    starts = {Queue("t", "a", number): start for number, (start, _) in enumerate(sizes)}
    ends = {Queue("t", "a", number): sum(size) for number, size in enumerate(sizes)}
    return starts, ends


def all_batches(sizes: list[tuple[int, int]], limit: int, unit: int) -> list[Batch]:
    done, ends = queues_of(sizes)
    found = []
    while batch := next_batch(done, ends, limit, unit):
        found.append(batch)
        for part in batch.ranges:
            assert part.start == done[part.queue]
            done[part.queue] = part.end
    assert done == ends
    return found


@given(backlogs, st.integers(1, 3000), st.integers(1, 80))
def test_batches_take_every_message_once_and_in_order(
    sizes: list[tuple[int, int]], limit: int, unit: int
) -> None:
    batches = all_batches(sizes, limit, unit)
    taken = sum(part.size for batch in batches for part in batch.ranges)
    assert taken == sum(size for _, size in sizes)


@given(backlogs, st.integers(1, 3000), st.integers(1, 80))
def test_queues_filled_in_turn_differ_by_one_message_at_most(
    sizes: list[tuple[int, int]], limit: int, unit: int
) -> None:
    filled = Counter(dict.fromkeys(range(unit), 0))
    for batch in all_batches(sizes, limit, unit):
        rows = [part.size for part in batch.ranges]
        for first, task in enumerate([sum(rows)] if batch.is_rest else rows):
            filled.update((first + row) % unit for row in range(task))
    assert max(filled.values()) - min(filled.values()) <= 1


@given(backlogs, st.integers(1, 3000), st.integers(1, 80))
def test_a_batch_exceeds_its_size_only_by_the_remainders(
    sizes: list[tuple[int, int]], limit: int, unit: int
) -> None:
    for batch in all_batches(sizes, limit, unit):
        taken = sum(part.size for part in batch.ranges)
        assert taken <= (len(sizes) * unit if batch.is_rest else max(limit, unit))


@given(backlogs, st.integers(1, 8), st.integers(1, 12))
def test_all_tasks_together_keep_to_the_rate(
    sizes: list[tuple[int, int]], cores: int, rate: int
) -> None:
    for batch in all_batches(sizes, 3000, 20):
        tasks, each = shared_rate(batch, cores, rate)
        assert each is not None
        assert 1 <= tasks * each <= rate
        assert tasks <= shared_rate(batch, cores, None)[0] <= cores
