"""What Spark asks a stream reader, asked directly: batches, new queues, topics and brokers."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.errors import DataLoss
from sparrowmq.spark.offsets import from_json
from sparrowmq.testing import Cluster, cluster
from tests.spark.admin import create_topic
from tests.spark.stream_readers import ALL, Open, bodies, total
from tests.spark.topics import fill


def test_a_new_query_starts_where_the_options_say(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 20)
    assert total(reader_of(running.name_server, topic).initialOffset()) == 0
    late = reader_of(running.name_server, topic, startingOffsets="latest")
    assert total(late.initialOffset()) == 20


def test_each_batch_has_the_messages_since_the_previous_one(
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


def test_new_queues_are_read_from_their_beginning(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    create_topic(running, topic, queues=2)
    reader = reader_of(running.name_server, topic, startingOffsets="latest")
    start = reader.initialOffset()
    assert len(from_json(start)) == 2
    create_topic(running, topic, queues=5)
    assert total(reader.latestOffset(start, ALL)) == 0, "they are empty yet"
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


def test_the_checkpoint_of_another_subscription_is_recognised(
    running: Cluster, topic: str, reader_of: Open
) -> None:
    fill(running, topic, 3)
    fill(running, f"{topic}-other", 3)
    start = reader_of(running.name_server, topic).initialOffset()
    other = reader_of(running.name_server, f"{topic}-other")
    text = rf"{topic} queue 0 .* exists, and the options do not ask for it.* checkpointLocation"
    with pytest.raises(DataLoss, match=text) as caught:
        other.latestOffset(start, ALL)
    assert "failOnDataLoss" not in str(caught.value)
    both = reader_of(running.name_server, f"{topic},{topic}-other").initialOffset()
    with pytest.raises(DataLoss, match=f"{text} of its own, or set failOnDataLoss=false"):
        other.latestOffset(both, ALL)
