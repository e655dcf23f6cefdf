"""What Spark asks a stream reader, asked directly: limits, new queues, group progress, outages."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.spark.errors import BrokerAway, DataLoss
from sparrowmq.spark.offsets import from_json
from sparrowmq.spark.options import parse_options
from sparrowmq.spark.routes import Cluster as Routes
from sparrowmq.spark.routes import Queue
from sparrowmq.spark.schema import read_columns
from sparrowmq.spark.source import Piece
from sparrowmq.spark.stream import LAG, StreamReader
from sparrowmq.testing import Cluster, cluster
from tests.spark.admin import create_topic
from tests.spark.scripted_broker import HANG_UP, Said, ScriptedBroker
from tests.spark.topics import fill

BODY = read_columns(["body"])
ALL = ReadAllAvailable()


Open = Callable[..., StreamReader]


@pytest.fixture
def reader_of() -> Iterator[Open]:
    """Makes readers that are stopped when the test ends."""
    opened: list[StreamReader] = []

    def reader(
        name_server: str, topic: str, *, now: Callable[[], float] = lambda: 0.0, **options: str
    ) -> StreamReader:
        base = {"nameServer": name_server, "startingOffsets": "earliest"}
        if "subscribePattern" not in options:
            base["subscribe"] = topic
        parsed = parse_options({**base, **options}, stream=True)
        opened.append(StreamReader(parsed, BODY, now))
        return opened[-1]

    yield reader
    for found in opened:
        found.stop()


def total(offsets: dict[str, Any]) -> int:
    return sum(from_json(offsets).values())


def bodies(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    # as Spark does it: over JSON, and with a pickled reader on another machine
    parts = reader.partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    remote = pickle.loads(cloudpickle.dumps(reader))  # type: ignore[no-untyped-call]  # pyspark's
    return sorted(
        body
        for part in pickle.loads(pickle.dumps(parts))
        for batch in remote.read(part)
        for body in batch.column(0).to_pylist()
    )


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return f"stream-{abs(hash(request.node.name)) % 10**8}"


def test_a_new_query_starts_where_the_options_say(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 20)
    assert total(reader_of(running.name_server, topic).initialOffset()) == 0
    late = reader_of(running.name_server, topic, startingOffsets="latest")
    assert total(late.initialOffset()) == 20


def test_each_batch_has_what_came_since_the_one_before(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    sent = fill(running, topic, 20)
    reader = reader_of(running.name_server, topic)
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ALL)
    assert bodies(reader, start, middle) == sent
    assert reader.latestOffset(middle, ALL) == middle
    more = fill(running, topic, 15, first=20)
    end = reader.latestOffset(middle, ALL)
    assert bodies(reader, middle, end) == more
    assert bodies(reader, start, middle) == sent, "the same range gives the same rows again"


def test_a_limit_is_shared_and_everything_comes_in_the_end(
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


def test_new_queues_are_read_from_their_beginning(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    create_topic(running, topic, queues=2)
    reader = reader_of(running.name_server, topic, startingOffsets="latest")
    start = reader.initialOffset()
    assert len(from_json(start)) == 2
    create_topic(running, topic, queues=5)
    sent = fill(running, topic, 50)
    end = reader.latestOffset(start, ALL)
    assert len(from_json(end)) == 5
    assert bodies(reader, start, end) == sent


def test_new_brokers_are_read_from_their_beginning(reader_of: Open) -> None:
    with cluster(brokers=2) as both:
        create_topic(both, "orders", queues=2)
        both.stop_broker("broker-b")
        reader = reader_of(both.name_server, "orders", startingOffsets="latest")
        start = reader.initialOffset()
        assert {queue.broker_name for queue in from_json(start)} == {"broker-a"}
        both.start_broker("broker-b")
        sent = fill(both, "orders", 40)
        end = reader.latestOffset(start, ALL)
        assert {queue.broker_name for queue in from_json(end)} == {"broker-a", "broker-b"}
        assert bodies(reader, start, end) == sent


def test_topics_that_match_a_pattern_are_picked_up_as_they_appear(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, f"{topic}-a", 10)
    reader = reader_of(running.name_server, topic, subscribePattern=f"{topic}-.*")
    start = reader.initialOffset()
    fill(running, f"{topic}-b", 10, first=10)
    end = reader.latestOffset(start, ALL)
    assert len(bodies(reader, start, end)) == 20


def test_the_latest_offset_and_the_lag_are_reported(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 30)
    reader = reader_of(running.name_server, topic)
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    reader.latestOffset(start, ReadMaxRows(10))
    reported = reader.reportLatestOffset()
    assert reported is not None
    assert reported[LAG] == 20
    assert total(reported) == 30


def committed(running: Cluster, group: str, topic: str) -> dict[Queue, int | None]:
    with Routes(running.name_server) as routes:
        return {queue: routes.consumer_offset(group, queue) for queue in routes.queues(topic)}


def test_the_groups_progress_is_what_spark_has_committed_and_no_more(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 20)
    reader = reader_of(running.name_server, topic, group="spark-group")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(10))
    bodies(reader, start, first)
    # planned and read, but not committed: nothing of it may be seen at the broker
    assert committed(running, "spark-group", topic) == from_json(start)
    second = reader.latestOffset(first, ALL)  # Spark hands over what it has committed
    assert committed(running, "spark-group", topic) == from_json(first)
    bodies(reader, first, second)
    assert committed(running, "spark-group", topic) == from_json(first)
    reader.commit(second)
    assert committed(running, "spark-group", topic) == from_json(second)


def test_without_a_group_nothing_is_stored_at_the_broker(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 5)
    reader = reader_of(running.name_server, topic)
    reader.commit(reader.latestOffset(reader.initialOffset(), ALL))
    assert set(committed(running, "TOOLS_CONSUMER", topic).values()) == {None}


def test_the_group_is_known_afterwards_but_has_no_member(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 5)
    reader = reader_of(running.name_server, topic, group="spark-members")
    reader.commit(reader.initialOffset())
    with Routes(running.name_server) as routes:
        broker = routes.broker(topic, "broker-a")
        fields = {"consumerGroup": "spark-members"}
        answer = broker.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        assert b"spark" not in answer.body
        stats = broker.ask(RequestCode.GET_CONSUME_STATS, {**fields, "topic": topic})
        assert b'"consumerOffset":0' in stats.body


def test_progress_that_a_broker_does_not_take_is_no_reason_to_stop(reader_of: Open) -> None:
    with ScriptedBroker() as broker:
        broker.on(RequestCode.HEART_BEAT, lambda _: Said(ResponseCode.SYSTEM_ERROR, remark="no"))
        reader = reader_of(broker.address, "orders", group="g")
        reader.commit({"orders": {"broker-a": {"0": 5}}})
        reader.commit({"orders": {"broker-a": {"0": 5}}})
        assert broker.count(RequestCode.HEART_BEAT) == 2, "it is tried again"


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        broker.on(RequestCode.GET_MIN_OFFSET, lambda _: Said(fields={"offset": "3"}))
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: Said(fields={"offset": "10"}))
        yield broker


def ranges(
    reader: StreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[int, int]]:
    parts = [part for part in reader.partitions(start, end) if isinstance(part, Piece)]
    return [(part.range.start, part.range.end) for part in parts]


def at(offset: int, queue: int = 0) -> dict[str, Any]:
    return {"orders": {"broker-a": {str(queue): offset}}}


def test_a_short_outage_is_survived_and_a_long_one_says_who_and_how_long(
    scripted: ScriptedBroker, reader_of: Open
) -> None:
    reader = reader_of(scripted.address, "orders")
    answers = iter([HANG_UP, HANG_UP, Said(fields={"offset": "10"})])
    scripted.on(RequestCode.GET_MAX_OFFSET, lambda _: next(answers))
    assert reader.latestOffset(at(5), ALL) == at(10)
    scripted.on(RequestCode.GET_MAX_OFFSET, lambda _: HANG_UP)
    reader = reader_of(scripted.address, "orders", retryTimeout="300ms")
    with pytest.raises(BrokerAway, match=r"given up after .*retryTimeout 0\.3s") as caught:
        reader.latestOffset(at(5), ALL)
    assert scripted.address in str(caught.value)


def test_a_broker_that_left_the_route_is_waited_for(
    scripted: ScriptedBroker, reader_of: Open
) -> None:
    reader = reader_of(scripted.address, "orders", retryTimeout="300ms")
    with pytest.raises(BrokerAway, match="broker-b, which has orders queue 0 of broker-b"):
        reader.latestOffset({"orders": {"broker-b": {"0": 5}}}, ALL)


def test_a_topic_that_vanished_with_its_only_broker_is_waited_for(
    scripted: ScriptedBroker, reader_of: Open
) -> None:
    route = scripted.scripts[RequestCode.GET_ROUTEINFO_BY_TOPIC]
    away = iter([True, True, False, True, False])

    def sometimes(asked: dict[str, str]) -> object:
        return Said(ResponseCode.TOPIC_NOT_EXIST) if next(away, False) else route(asked)

    scripted.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, sometimes)
    reader = reader_of(scripted.address, "orders")
    assert reader.latestOffset(at(5), ALL) == at(10)
    assert ranges(reader, at(5), at(10)) == [(5, 10)]
    scripted.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda _: Said(ResponseCode.TOPIC_NOT_EXIST))
    hasty = reader_of(scripted.address, "orders", retryTimeout="100ms")
    with pytest.raises(BrokerAway, match="broker-a, which serves topic orders, is not registered"):
        hasty.latestOffset(at(5), ALL)


def test_a_queue_that_was_taken_away_is_data_loss(
    scripted: ScriptedBroker, reader_of: Open
) -> None:
    reader = reader_of(scripted.address, "orders")
    with pytest.raises(DataLoss, match="orders queue 7 of broker-a does not exist any more"):
        reader.latestOffset(at(5, queue=7), ALL)
    loose = reader_of(scripted.address, "orders", failOnDataLoss="false")
    end = loose.latestOffset({"orders": {"broker-a": {"0": 5, "7": 5}}}, ALL)
    assert end == {"orders": {"broker-a": {"0": 10, "7": 5}}}


def test_a_queue_that_went_back_is_data_loss(scripted: ScriptedBroker, reader_of: Open) -> None:
    reader = reader_of(scripted.address, "orders")
    with pytest.raises(DataLoss, match="ends at 10, but was read up to 50 already"):
        reader.latestOffset(at(50), ALL)
    loose = reader_of(scripted.address, "orders", failOnDataLoss="false")
    end = loose.latestOffset(at(50), ALL)
    assert end == at(10)
    assert ranges(loose, at(50), end) == [(3, 10)], "from its new beginning"


def test_large_queues_are_split_as_the_options_say(
    scripted: ScriptedBroker, reader_of: Open
) -> None:
    reader = reader_of(scripted.address, "orders", maxRecordsPerPartition="3")
    assert ranges(reader, at(3), at(10)) == [(3, 5), (5, 7), (7, 10)]
