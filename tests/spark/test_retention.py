"""Retention that overtakes readers: streams, the ranges of jobs, and the log files themselves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark.sql.streaming.datasource import ReadMaxRows

from sparrowmq.blocking import Message, Producer
from sparrowmq.broker.config import Flush
from sparrowmq.clock import system_clock
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.spark.errors import DataLoss
from sparrowmq.spark.jobs.copy import next_ranges
from sparrowmq.spark.log_files.ranges import LogFileError, log_files, log_ranges
from sparrowmq.spark.log_files.reader import read_range
from sparrowmq.spark.offsets import from_json, to_json
from sparrowmq.spark.options import parse_options
from sparrowmq.spark.read_plan import batch_ranges
from sparrowmq.spark.wire.cluster import Queue, QueuePosition, RemoteCluster
from sparrowmq.spark.wire.remoting import Remoting
from sparrowmq.store.config import StoreConfig
from sparrowmq.testing import Cluster, cluster
from tests.spark.admin import create_topic
from tests.spark.stream_readers import ALL, Open, bodies
from tests.spark.written_logs import rows

LOG_FILE_SIZE = 8192
TOPIC = "orders"
READS = 12
QUEUE = Queue(TOPIC, "broker-a", 0)


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    """A broker with small log files that are old as soon as they are full."""
    store = StoreConfig(log_file_size=LOG_FILE_SIZE, retention_ms=1)
    with cluster(store=store, flush=Flush.SYNC) as started:
        create_topic(started, TOPIC, 1)
        yield started


def send(running: Cluster, count: int, first: int = 0) -> None:
    with Producer("tests", name_servers=running.name_server) as producer:
        for number in range(first, first + count):
            producer.send(Message(TOPIC, b"%06d" % number))


def expire(running: Cluster) -> int:
    """Retention deletes every full log file; the oldest offset that is left."""
    full = system_clock() + 1
    while system_clock() <= full:
        pass
    with Remoting(running.broker_addresses["broker-a"]) as broker:
        broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG, {})
    with RemoteCluster(running.name_server) as wire:
        return wire.min_offset(QUEUE)


def last(running: Cluster) -> int:
    with RemoteCluster(running.name_server) as wire:
        return wire.max_offset(QUEUE)


def at(offset: int) -> dict[str, Any]:
    return to_json({QUEUE: offset})


def numbers(found: list[bytes]) -> list[int]:
    return [int(body) for body in found]


@pytest.fixture
def overtaken(shared: Cluster) -> tuple[Cluster, int, int, int]:
    """The cluster, where a reader is, the oldest message there is, and the end."""
    begin = last(shared)
    send(shared, 60, first=begin)
    earliest = expire(shared)
    assert begin + 10 < earliest < last(shared)
    return shared, begin, earliest, last(shared)


def test_a_stream_overtaken_by_retention_fails_with_the_number_of_lost_messages(
    overtaken: tuple[Cluster, int, int, int], reader_of: Open
) -> None:
    running, begin, earliest, end = overtaken
    reader = reader_of(running.name_server, TOPIC)
    assert from_json(reader.latestOffset(at(begin), ALL)) == {QUEUE: end}
    for _ in range(2):  # a restart reads the same batch, and must not skip it
        with pytest.raises(DataLoss, match=f"{earliest - begin} messages were deleted before"):
            bodies(reader, at(begin), at(end))


def test_a_stream_that_may_lose_messages_continues_at_the_oldest_one(
    overtaken: tuple[Cluster, int, int, int], reader_of: Open
) -> None:
    running, begin, earliest, end = overtaken
    reader = reader_of(running.name_server, TOPIC, failOnDataLoss="false")
    assert numbers(bodies(reader, at(begin), at(end))) == list(range(earliest, end))


def test_small_batches_over_a_gap_reach_its_end_and_lose_nothing_more(
    overtaken: tuple[Cluster, int, int, int], reader_of: Open
) -> None:
    running, begin, earliest, end = overtaken
    reader = reader_of(running.name_server, TOPIC, failOnDataLoss="false")
    found: list[int] = []
    start = at(begin)
    while from_json(start) != {QUEUE: end}:
        following = reader.latestOffset(start, ReadMaxRows(4))
        found += numbers(bodies(reader, start, following))
        assert from_json(following)[QUEUE] > from_json(start)[QUEUE]
        start = following
    assert found == list(range(earliest, end))


def test_retention_between_the_plan_and_the_tasks_of_a_batch_is_noticed(
    shared: Cluster, reader_of: Open
) -> None:
    begin = last(shared)
    send(shared, 60, first=begin)
    strict = reader_of(shared.name_server, TOPIC)
    loose = reader_of(shared.name_server, TOPIC, failOnDataLoss="false")
    end = strict.latestOffset(at(begin), ALL)
    planned = loose.partitions(at(begin), json.loads(json.dumps(end)))
    earliest = expire(shared)
    with pytest.raises(DataLoss):
        bodies(strict, at(begin), end)
    found = [
        body for part in planned for batch in loose.read(part) for body in batch[0].to_pylist()
    ]
    assert sorted(numbers(found)) == list(range(earliest, last(shared)))


@pytest.mark.parametrize("limit", [4, 1000])
def test_the_next_ranges_of_a_job_that_may_lose_messages_lie_where_messages_are(
    overtaken: tuple[Cluster, int, int, int], limit: int
) -> None:
    """Else a batch would end before its first message, and the job would never get further."""
    running, begin, earliest, end = overtaken
    base = {"nameServer": running.name_server, "subscribe": TOPIC, "failOnDataLoss": "false"}
    stream = parse_options({**base, "startingOffsets": "earliest"}, stream=True)
    found: list[int] = []
    at = {QUEUE: QueuePosition(begin)}
    with RemoteCluster(running.name_server) as wire:
        while at[QUEUE].offset != end:
            ranges, at = next_ranges(wire, stream, at, None, limit)
            for part in ranges:
                given = {
                    "startingOffsets": json.dumps(to_json({QUEUE: part.start})),
                    "endingOffsets": json.dumps(to_json({QUEUE: part.end})),
                }
                batch = parse_options({**base, **given}, stream=False)
                (read,) = batch_ranges(wire, [QUEUE], batch)
                found += range(read.start, read.end)
    assert found == list(range(earliest, end))


def test_an_expired_range_is_empty_if_loss_is_allowed(
    overtaken: tuple[Cluster, int, int, int],
) -> None:
    running, begin, _, _ = overtaken
    given = {
        "nameServer": running.name_server,
        "subscribe": TOPIC,
        "startingOffsets": json.dumps(at(begin)),
        "endingOffsets": json.dumps(at(begin + 3)),
    }
    with RemoteCluster(running.name_server) as wire:
        loose = parse_options({**given, "failOnDataLoss": "false"}, stream=False)
        (found,) = batch_ranges(wire, [QUEUE], loose)
        assert found.size == 0
        with pytest.raises(DataLoss):
            batch_ranges(wire, [QUEUE], parse_options(given, stream=False))


def test_log_files_are_read_under_load_and_retention_without_damage(shared: Cluster) -> None:
    """Each read has what was stored before it and not deleted, in order, and nothing twice."""
    store = shared.data_dir / "broker-a"
    first = last(shared)
    stopped = threading.Event()

    def load() -> None:
        number = first
        while not stopped.is_set():
            send(shared, 25, first=number)
            number += 25

    sending = threading.Thread(target=load)
    sending.start()
    reads = gone = 0
    try:
        while reads < READS:
            stored = last(shared)
            if reads % 3 == 2:
                expire(shared)
            try:
                table = rows(store, topic=TOPIC, maxBytesPerPartition="2KiB")
            except LogFileError as error:
                assert "is gone: the broker deletes old files" in str(error)
                gone += 1
                assert gone < READS
                continue
            found = sorted(table["queueOffset"].to_pylist())
            assert found == list(range(found[0], found[-1] + 1))
            assert found[-1] >= stored - 1
            reads += 1
    finally:
        stopped.set()
        sending.join()


def test_a_log_file_that_goes_between_the_plan_and_the_read_is_named(shared: Cluster) -> None:
    store = shared.data_dir / "broker-a"
    send(shared, 60, first=last(shared))
    planned = log_ranges(log_files(store), 1 << 20)
    expire(shared)
    with pytest.raises(LogFileError, match="is gone: the broker deletes old files"):
        list(read_range(planned[0]))
    assert rows(store, topic=TOPIC).num_rows > 0
