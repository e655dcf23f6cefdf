"""How much a batch of a stream has: at most, at least, and what is available now."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark.sql.streaming.datasource import ReadMaxRows, ReadMinRows

from sparrowmq.testing import Cluster
from tests.spark.scripted_broker import ScriptedBroker
from tests.spark.stream_readers import ALL, Open, bodies, ranges, total
from tests.spark.topics import fill


def test_a_limit_is_shared_and_all_messages_are_read_in_the_end(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    sent = fill(running, topic, 50)
    reader = reader_of(running.name_server, topic, maxOffsetsPerTrigger="20")
    assert reader.getDefaultReadLimit() == ReadMaxRows(20)
    at, sizes, seen = reader.initialOffset(), [], []
    for _ in range(3):
        end = reader.latestOffset(at, ReadMaxRows(20))
        sizes.append(total(end) - total(at))
        seen += bodies(reader, at, end)
        at = end
    assert sizes == [20, 20, 10]
    assert sorted(seen) == sent


def test_all_available_ignores_the_limits_of_the_options(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 30)
    reader = reader_of(running.name_server, topic, maxOffsetsPerTrigger="7")
    assert total(reader.latestOffset(reader.initialOffset(), ALL)) == 30


def test_a_small_backlog_waits_until_it_is_large_or_old(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    time_s = [0.0]
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"}
    fill(running, topic, 1)
    reader = reader_of(running.name_server, topic, now=lambda: time_s[0], **options)
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    at = reader.latestOffset(reader.initialOffset(), limit)
    assert total(at) == 1, "a query that just started need not wait"
    fill(running, topic, 5)
    assert reader.latestOffset(at, limit) == at
    time_s[0] = 60.0
    assert total(later := reader.latestOffset(at, limit)) == 6
    fill(running, topic, 10)
    assert total(reader.latestOffset(later, limit)) == 16


def test_least_and_most_work_together(running: Cluster, topic: str, reader_of: Open) -> None:
    options = {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "12"}
    fill(running, topic, 13)
    reader = reader_of(running.name_server, topic, **options)
    at = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert total(at) == 12
    assert reader.latestOffset(at, ReadMaxRows(12)) == at, "one more is less than ten"


def test_available_now_ends_where_the_topic_ended_when_it_began(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 25)
    options = {"maxOffsetsPerTrigger": "10", "minOffsetsPerTrigger": "9"}
    reader = reader_of(running.name_server, topic, **options)
    reader.prepareForTriggerAvailableNow()
    fill(running, topic, 100)
    at, ends = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(10))) != at:
        ends.append(total(end))
        at = end
    assert ends == [10, 20, 25]


def test_available_now_reads_nothing_for_a_query_that_is_already_further(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 10)
    reader = reader_of(running.name_server, topic)
    reader.prepareForTriggerAvailableNow()
    fill(running, topic, 8)
    further = reader_of(running.name_server, topic, startingOffsets="latest").initialOffset()
    assert total(further) == 18
    assert reader.latestOffset(further, ALL) == further


def test_large_queues_are_split_as_the_options_say(reader_of: Open) -> None:
    def at(offset: int) -> dict[str, Any]:
        return {"orders": {"broker-a": {"0": offset}}}

    with ScriptedBroker() as broker:
        reader = reader_of(broker.address, "orders", maxRecordsPerPartition="3")
        assert ranges(reader, at(3), at(10)) == [(3, 5), (5, 7), (7, 10)]
