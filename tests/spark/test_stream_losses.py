"""Brokers that are away, queues that are gone or went back, under a stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.spark.errors import BrokerAway, DataLoss
from tests.spark.scripted_broker import HANG_UP, Said, ScriptedBroker
from tests.spark.stream_readers import ALL, Open, ranges


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        broker.on(RequestCode.GET_MIN_OFFSET, lambda _: Said(fields={"offset": "3"}))
        broker.on(RequestCode.GET_MAX_OFFSET, lambda _: Said(fields={"offset": "10"}))
        yield broker


def at(offset: int, queue: int = 0) -> dict[str, Any]:
    return {"orders": {"broker-a": {str(queue): offset}}}


def test_a_stream_survives_a_short_outage_and_reports_server_and_time_of_a_long_one(
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


def test_a_removed_queue_is_data_loss(scripted: ScriptedBroker, reader_of: Open) -> None:
    reader = reader_of(scripted.address, "orders")
    with pytest.raises(DataLoss, match="orders queue 7 of broker-a no longer exists"):
        reader.latestOffset(at(5, queue=7), ALL)
    loose = reader_of(scripted.address, "orders", failOnDataLoss="false")
    end = loose.latestOffset({"orders": {"broker-a": {"0": 5, "7": 5}}}, ALL)
    assert end == {"orders": {"broker-a": {"0": 10, "7": 5}}}


def test_a_queue_that_went_back_is_data_loss(scripted: ScriptedBroker, reader_of: Open) -> None:
    reader = reader_of(scripted.address, "orders")
    with pytest.raises(DataLoss, match=r"had reached 50, .* before 10 are left"):
        reader.latestOffset(at(50), ALL)
    loose = reader_of(scripted.address, "orders", failOnDataLoss="false")
    end = loose.latestOffset(at(50), ALL)
    assert end == at(10)
    assert ranges(loose, at(50), end) == [(3, 10)], "from its new beginning"
