"""The end of the demo: what Spark finds is what was sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

from tests.spark.admin import create_topic
from tests.spark.topics import send
from tools.chart import bar_chart
from tools.demo import TOPIC, Orders, conclude_spark
from tools.demo_spark import (
    SLOW_START,
    City,
    cities,
    run_patiently,
    stream_to_parquet,
    write_chart,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster


def test_the_demo_streams_every_order_into_parquet_and_adds_them_up(
    spark: SparkSession, sparrowmq_cluster: Cluster, tmp_path: Path
) -> None:
    running, orders = sparrowmq_cluster, Orders()
    create_topic(running, TOPIC, 2)
    send(running, [orders.next_message() for _ in range(60)])
    frame = stream_to_parquet(spark, running.name_server, TOPIC, tmp_path)
    found = cities(frame)
    assert conclude_spark(frame.count(), found, orders) == 0
    chart = ElementTree.parse(write_chart(found, tmp_path / "chart.svg")).getroot()
    texts = [element.text for element in chart.iter("{http://www.w3.org/2000/svg}text")]
    assert {city.name for city in found} <= set(texts)
    assert {f"{amount:,}" for city in found for amount in (city.created, city.paid)} <= set(texts)
    assert texts[0] == "Order value by city"
    assert "euros" in str(texts[1])


def test_a_paid_order_of_the_demo_was_created_before_with_the_same_amount() -> None:
    orders = Orders()
    messages = [orders.next_message() for _ in range(60)]
    created = {each.body: place for place, each in enumerate(messages) if each.tags == "created"}
    paid = [each for each in messages if each.tags == "paid"]
    assert paid
    assert all(created[each.body] < messages.index(each) for each in paid)
    assert all(city.paid < city.created for city in orders.by_city())


def test_the_demo_fails_when_spark_misses_an_order_or_an_amount() -> None:
    orders = Orders()
    for _ in range(4):
        orders.next_message()
    right = orders.by_city()
    assert conclude_spark(4, right, orders) == 0
    assert conclude_spark(3, right, orders) == 1
    wrong = [City(right[0].name, right[0].orders, right[0].created + 1, right[0].paid)]
    assert conclude_spark(4, wrong + right[1:], orders) == 1


def test_only_a_query_whose_worker_started_too_slowly_is_restarted() -> None:
    from pyspark.errors import StreamingQueryException

    ran: list[int] = []

    def slow_at_first() -> None:
        ran.append(1)
        if len(ran) < 3:
            raise StreamingQueryException(f"[STREAM_FAILED] {SLOW_START}")

    run_patiently(slow_at_first)
    assert len(ran) == 3

    def wrong() -> None:
        ran.append(1)
        raise StreamingQueryException("[STREAM_FAILED] no such topic")

    with pytest.raises(StreamingQueryException, match="no such topic"):
        run_patiently(wrong)
    assert len(ran) == 4


def test_a_chart_without_data_or_with_odd_names_is_valid() -> None:
    for bars in ({}, {"<&>": (0.0, 0.0)}, {"small": (0.4,), "large": (123456.0,)}):
        ElementTree.fromstring(bar_chart("a < b", "&", ("x",), bars))
