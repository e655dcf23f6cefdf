"""`format("rocketmq-log")`: the files of a broker as a table, while it runs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.testing import Cluster
from tests.spark.topics import fill

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_the_files_of_a_running_broker_are_read_in_parallel(
    spark: SparkSession, running: Cluster
) -> None:
    sent = fill(running, "log-live", 60)
    reader = spark.read.format("rocketmq-log").option("topic", "log-live")
    frame = reader.option("maxBytesPerPartition", "4KiB").load(str(running.data_dir / "broker-a"))
    assert frame.rdd.getNumPartitions() > 1
    assert sorted(bytes(row.body) for row in frame.select("body").collect()) == sent
    topics = spark.read.format("rocketmq").option("nameServer", running.name_server)
    wanted = topics.option("subscribe", "log-live").load().drop("brokerName")
    got = frame.drop("brokerName", "logOffset")
    assert got.schema == wanted.schema
    by_offset = ("queueId", "queueOffset")
    assert got.orderBy(*by_offset).collect() == wanted.orderBy(*by_offset).collect()


def test_damage_in_a_copy_is_a_separate_row(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    fill(running, "log-damaged", 20)
    log = Path(running.data_dir) / "broker-a" / "commitlog" / f"{0:020d}"
    copy = tmp_path / "commitlog" / log.name
    copy.parent.mkdir()
    shutil.copy(log, copy)
    reader = spark.read.format("rocketmq-log").option("topic", "log-damaged")
    offsets = [row.logOffset for row in reader.load(str(tmp_path)).orderBy("logOffset").collect()]
    with copy.open("r+b") as file:
        file.seek(offsets[4] + 89)
        file.write(b"#")
    frame = reader.option("onDamage", "column").load(str(tmp_path))
    # The damaged record has no topic any more that could be asked for.
    assert frame.where("damage is null").count() == 19
    [row] = frame.where("damage is not null").collect()
    assert row.logOffset == offsets[4]
    assert reader.option("onDamage", "skip").load(str(tmp_path)).count() == 19
    with pytest.raises(PySparkException, match=r"is damaged at log offset .*CRC is wrong; set"):
        reader.option("onDamage", "fail").load(str(tmp_path)).count()


def test_a_wrong_option_is_refused_by_name(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="option onDamage: must be one of fail, column"):
        spark.read.format("rocketmq-log").option("onDamage", "x").load("/data")
