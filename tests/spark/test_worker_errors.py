"""How Spark reports our errors: with their text, and without a traceback of the worker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.worker_errors import HIDE_TRACEBACK, IN_WORKER, reported_by_text
from sparrowmq.testing import Cluster
from tests.spark.admin import create_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@reported_by_text
class Fragile:
    """What Spark might call."""

    def __init__(self, error: Exception | None = None) -> None:
        if error is not None:
            raise error

    def plan(self, error: Exception) -> None:
        raise error

    def read(self, error: Exception) -> Iterator[int]:
        yield 1
        raise error


@pytest.fixture
def in_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(IN_WORKER, "65536")
    monkeypatch.setenv(HIDE_TRACEBACK, "")  # so that it is taken away after the test
    monkeypatch.delenv(HIDE_TRACEBACK)


CALLS = [
    pytest.param(Fragile, id="when it is made"),
    pytest.param(lambda error: Fragile().plan(error), id="in a call"),
    pytest.param(lambda error: list(Fragile().read(error)), id="while it is read"),
]


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("error", "hides"), [(RocketMQError("said"), True), (ValueError("a mistake"), False)]
)
@pytest.mark.usefixtures("in_worker")
def test_an_error_of_ours_needs_no_traceback_and_any_other_does(
    call: type[Fragile], error: Exception, hides: bool
) -> None:
    with pytest.raises(type(error), match=str(error)):
        call(error)
    assert (HIDE_TRACEBACK in os.environ) is hides


@pytest.mark.usefixtures("in_worker")
def test_a_program_of_the_users_keeps_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(IN_WORKER)
    with pytest.raises(RocketMQError):
        Fragile(RocketMQError("said"))
    assert HIDE_TRACEBACK not in os.environ


def said(spark: SparkSession, form: str, path: str = "", **options: str) -> str:
    """The text of the error of a batch read."""
    from pyspark.errors import PySparkException

    reader = spark.read.format(form).options(**options)
    with pytest.raises(PySparkException) as caught:
        (reader.load(path) if path else reader.load()).collect()
    return str(caught.value)


@pytest.mark.slow
def test_a_refused_batch_read_gives_the_reason_in_one_line(
    spark: SparkSession, running: Cluster, topic: str, tmp_path: Path
) -> None:
    at = {"nameServer": running.name_server}
    create_topic(running, topic, 1)
    begin = "[PYTHON_DATA_SOURCE_ERROR] Failed to "
    made = said(spark, "rocketmq", **at, subscribe=topic, colums="body")
    planned = said(spark, "rocketmq", **at, subscribe="nowhere-at-all")
    files = said(spark, "rocketmq-log", str(tmp_path))
    assert made.startswith(
        f"{begin}create Python data source instance: sparrowmq.spark.errors.OptionError: option"
        " colums: unknown to the source; did you mean columns?"
    )
    assert planned.startswith(
        f"{begin}generate Python data source read partitions: sparrowmq.spark.errors.TopicMissing:"
        " topic nowhere-at-all does not exist at name server "
    )
    assert files.startswith(
        f"{begin}generate Python data source read partitions:"
        f" sparrowmq.spark.log_files.ranges.LogFileError: {tmp_path} is not a store: "
    )


def test_the_error_of_a_task_comes_first_in_sparks_message(
    spark: SparkSession, running: Cluster, topic: str
) -> None:
    from pyspark.errors import PySparkException

    create_topic(running, topic, 1)
    rows = spark.sql("select cast(null as binary) body").write.format("rocketmq").mode("append")
    with pytest.raises(PySparkException) as caught:
        rows.options(nameServer=running.name_server, topic=topic).save()
    assert str(caught.value).startswith(
        "An exception was thrown from the Python worker:\n"
        "sparrowmq.spark.schema.ColumnError: column body: is null in 1 row, must have a value"
    )


def test_a_function_of_the_users_keeps_its_traceback(spark: SparkSession) -> None:
    from pyspark.errors import PythonException
    from pyspark.sql.functions import udf

    # Without annotations: as texts, which they are here, Spark does not understand them.
    def divide(number):  # type: ignore[no-untyped-def]
        return number // 0

    with pytest.raises(PythonException, match="in divide"):
        spark.range(1).select(udf(divide, "long")("id")).collect()
