"""The lag of a stream and the progress of its group, as operators see them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark.sql.streaming.datasource import ReadMaxRows

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.spark.offsets import from_json
from sparrowmq.spark.stream import LAG
from sparrowmq.spark.wire.cluster import Queue, RemoteCluster
from sparrowmq.testing import Cluster
from tests.spark.scripted_broker import Said, ScriptedBroker
from tests.spark.stream_readers import ALL, Open, bodies, total
from tests.spark.topics import fill


def committed(running: Cluster, group: str, topic: str) -> dict[Queue, int | None]:
    with RemoteCluster(running.name_server) as routes:
        return {queue: routes.consumer_offset(group, queue) for queue in routes.queues(topic)}


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


def test_the_groups_progress_is_exactly_what_spark_has_committed(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 20)
    reader = reader_of(running.name_server, topic, group="spark-group")
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(10))
    bodies(reader, start, first)
    # planned and read, but not committed: the broker must not see any of it
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
    with RemoteCluster(running.name_server) as routes:
        broker = routes.broker(topic, "broker-a")
        fields = {"consumerGroup": "spark-members"}
        answer = broker.call(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields)
        assert b"spark" not in answer.body
        stats = broker.ask(RequestCode.GET_CONSUME_STATS, {**fields, "topic": topic})
        assert b'"consumerOffset":0' in stats.body


def test_a_stream_continues_although_a_broker_refuses_its_progress(reader_of: Open) -> None:
    with ScriptedBroker() as broker:
        broker.on(RequestCode.HEART_BEAT, lambda _: Said(ResponseCode.SYSTEM_ERROR, remark="no"))
        reader = reader_of(broker.address, "orders", group="g")
        reader.commit({"orders": {"broker-a": {"0": 5}}})
        reader.commit({"orders": {"broker-a": {"0": 5}}})
        assert broker.count(RequestCode.HEART_BEAT) == 2, "it is tried again"
