"""Streams whose master is away: they read on from its slave, or wait; they lose nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from pyspark.sql.streaming.datasource import ReadMaxRows

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.spark.errors import BrokerAway
from sparrowmq.spark.offsets import from_json
from sparrowmq.spark.stream import StreamReader
from sparrowmq.spark.wire.remoting import Remoting
from sparrowmq.testing import Cluster, cluster
from tests.patience import PATIENCE_S
from tests.spark.scripted_broker import Said, ScriptedBroker
from tests.spark.stream_readers import ALL, Open, bodies, total
from tests.spark.test_stream_progress import committed
from tests.spark.topics import SHORT_LOG, fill

EPOCH = "sparrowEpoch"


@pytest.fixture
def replicated() -> Iterator[Cluster]:
    with cluster(slaves=1, replication=ReplicationMode.SYNC, store=SHORT_LOG) as running:
        yield running


def until_copied(replicated: Cluster, topic: str) -> None:
    """A slave's tables are up to a second old: wait until it has the topic."""
    fields = {"topic": topic}
    deadline_s = time.monotonic() + PATIENCE_S
    with Remoting(replicated.broker_addresses["broker-a.1"], timeout_s=PATIENCE_S) as slave:
        while slave.call(RequestCode.GET_TOPIC_CONFIG, fields).code != ResponseCode.SUCCESS:
            assert time.monotonic() < deadline_s
            time.sleep(0.02)


def batches(reader: StreamReader, start: dict[str, Any], count: int) -> list[bytes]:
    """What micro-batches find until they have this many messages: a master that has just started
    shows a message when its slave has it, or when it is on its disk."""
    found: list[bytes] = []
    deadline_s = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline_s
        end = reader.latestOffset(start, ALL)
        found += bodies(reader, start, end)
        start = end
    return sorted(found)


def test_a_stream_reads_on_from_the_slave_and_returns_to_the_master(
    replicated: Cluster, reader_of: Open
) -> None:
    replicated.create_topic("orders", queues=2)
    reader = reader_of(replicated.name_server, "orders")
    first = reader.initialOffset()
    early = fill(replicated, "orders", 50)
    then = reader.latestOffset(first, ALL)
    assert bodies(reader, first, then) == early
    late = fill(replicated, "orders", 50, first=50)
    until_copied(replicated, "orders")
    replicated.stop_broker("broker-a")
    later = reader.latestOffset(then, ALL)
    assert total(later) == 100
    assert bodies(reader, then, later) == late
    assert reader.latestOffset(later, ALL) == later, "offsets never go back"
    replicated.start_broker("broker-a")
    last = fill(replicated, "orders", 10, first=100)
    assert batches(reader, later, len(last)) == last


def test_a_streams_group_goes_forward_at_the_slave_and_at_the_master_that_returns(
    replicated: Cluster, reader_of: Open
) -> None:
    replicated.create_topic("orders", queues=2)
    fill(replicated, "orders", 50)
    reader = reader_of(replicated.name_server, "orders", group="billing")
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(20))
    reader.commit(first)
    assert committed(replicated, "billing", "orders") == from_json(first)
    until_copied(replicated, "orders")
    replicated.stop_broker("broker-a")
    second = reader.latestOffset(first, ALL)
    bodies(reader, first, second)
    reader.commit(second)
    assert committed(replicated, "billing", "orders") == from_json(second)
    replicated.start_broker("broker-a")
    assert committed(replicated, "billing", "orders") == from_json(second)


# ---- a slave that has less than its master had


@pytest.fixture
def slave() -> Iterator[ScriptedBroker]:
    """A slave alone: the queue ends at 10 there, in epoch 7."""
    with ScriptedBroker() as broker:
        route = (
            f'{{"brokerDatas":[{{"brokerAddrs":{{1:"{broker.address}"}},"brokerName":"broker-a",'
            '"cluster":"c"}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a",'
            '"perm":6,"readQueueNums":1,"writeQueueNums":1,"topicSysFlag":0}]}'
        ).encode()
        broker.on(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda _: Said(body=route))
        broker.on(RequestCode.GET_MIN_OFFSET, lambda _: Said(fields={"offset": "3"}))
        fields = {"offset": "10", EPOCH: "7"}
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: Said(fields=fields))
        yield broker


@pytest.mark.parametrize(
    ("offset", "epoch", "is_waiting"),
    [
        (12, 7, False),  # nothing new yet
        (8, 8, False),  # learned from the master in a later epoch, and common
        (12, 8, True),
        (12, 0, True),  # an Apache slave has no epochs
    ],
)
def test_what_a_slave_lacks_is_waited_for(
    offset: int, epoch: int, is_waiting: bool, slave: ScriptedBroker, reader_of: Open
) -> None:
    reader = reader_of(slave.address, "orders", retryTimeout="100ms")
    start = {"orders": {"broker-a": {"0": offset}}}
    if epoch:
        start["$epochs"] = {"orders": {"broker-a": {"0": epoch}}}  # type: ignore[dict-item]
    if is_waiting:
        with pytest.raises(BrokerAway, match="the master of broker-a is away"):
            reader.latestOffset(start, ALL)
    else:
        assert total(reader.latestOffset(start, ALL)) == max(offset, 10)


@pytest.mark.parametrize(
    "answer",
    [
        Said(ResponseCode.PULL_NOT_FOUND, {"nextBeginOffset": "8", "maxOffset": "8"}),
        Said(ResponseCode.TOPIC_NOT_EXIST, remark="topic orders does not exist on broker-a"),
    ],
)
def test_a_task_waits_for_messages_that_a_slave_lacks(
    answer: Said, slave: ScriptedBroker, reader_of: Open
) -> None:
    slave.on(RequestCode.PULL_MESSAGE, lambda _: answer)
    reader = reader_of(slave.address, "orders", retryTimeout="100ms")
    start = {"orders": {"broker-a": {"0": 8}}}
    with pytest.raises(BrokerAway):
        bodies(reader, start, reader.latestOffset(start, ALL))
    assert slave.count(RequestCode.PULL_MESSAGE) > 1
