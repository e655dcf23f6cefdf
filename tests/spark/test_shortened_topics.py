"""Whole queries and jobs over topics whose queues went back; the table of cases is in
`test_queues_that_went_back`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.spark.jobs.archive import ArchiveJob, archive_once, opened_archive, read_archive
from sparrowmq.spark.jobs.archive_compact import CompactionRule
from sparrowmq.spark.jobs.dead_letters import DeadLetters, send_back
from sparrowmq.spark.jobs.drain import DrainJob, DrainRun
from sparrowmq.spark.jobs.job import AdminOperator, JobError
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.wire.cluster import RemoteCluster
from tests.spark.jobs.backlog import bodies, offsets_of, put_group, table
from tests.spark.jobs.dying import Died, die_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.shortened import World

BEFORE = [b"%06d" % number for number in range(10)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    pytest.importorskip("pyspark", reason="needs the spark extra: pip install sparrowmq[spark]")
    from tests.spark.shortened import read_world

    with read_world(tmp_path) as made:
        yield made


def run_query(spark: SparkSession, world: World, checkpoint: Path, fail: str) -> list[bytes]:
    """What one availableNow run of a query reads."""
    options = {"nameServer": world.running.name_server, "subscribe": "orders"}
    options |= {"startingOffsets": "earliest", "failOnDataLoss": fail}
    found: list[bytes] = []
    query = (
        spark.readStream.format("rocketmq")
        .options(**options)
        .load()
        .writeStream.foreachBatch(lambda frame, _: found.extend(bodies(frame)))
        .trigger(availableNow=True)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    query.awaitTermination()
    return sorted(found)


@pytest.mark.slow
def test_an_available_now_query_fails_or_reads_the_new_messages(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    assert run_query(spark, world, checkpoint, "true") == BEFORE
    world.restart()
    assert run_query(spark, world, checkpoint, "true") == []
    world.lose_power()
    world.send(20)
    with pytest.raises(Exception, match="orders queue 0 of broker-a went back"):
        run_query(spark, world, checkpoint, "true")
    assert run_query(spark, world, checkpoint, "false") == world.new
    assert run_query(spark, world, checkpoint, "true") == []


def test_an_archive_fails_or_continues_with_the_new_messages(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    job = ArchiveJob(
        name_server=world.running.name_server,
        to=str(tmp_path / "archive"),
        topics=("orders",),
        compaction=CompactionRule(least_files=0),
    )

    def archive(job: ArchiveJob) -> list[bytes]:
        with opened_archive(spark, job) as archiver:
            archive_once(archiver)
        return bodies(read_archive(spark, job.to))

    assert archive(job) == BEFORE
    world.restore()
    world.send(20)
    with pytest.raises(Exception, match="orders queue 0 of broker-a went back"):
        archive(job)
    loose = replace(job, fail_on_data_loss=False)
    assert archive(loose) == BEFORE + world.new
    assert archive(job) == BEFORE + world.new
    assert offsets_of(world.running, "sparrowmq-archive", "orders") == [world.kept + 20]


def drain_of_slow(spark: SparkSession, world: World, tmp_path: Path) -> Callable[..., None]:
    """Runs a drain of the group `slow`, which has read nothing, up to where it is to die."""
    put_group(world.running, "slow", "orders")
    name_server = world.running.name_server
    job = DrainJob(
        name_server=name_server, topic="orders", group="slow", to="wide", state=tmp_path / "state"
    )

    def drain(die: str = "never") -> None:
        with RemoteCluster(name_server) as wire, JobJournal(job.state) as journal:
            DrainRun(job, wire, AdminOperator(name_server), journal).run(spark, die_at(die))

    return drain


def test_a_drain_whose_queue_went_back_is_refused_and_moves_no_group(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    drain = drain_of_slow(spark, world, tmp_path)
    with pytest.raises(Died):
        drain("created")
    world.recreate()
    world.send(20)
    with pytest.raises(JobError, match=r"orders queue 0 of broker-a went back.*journal.json"):
        drain()
    assert bodies(table(spark, world.running, "wide")) == []
    assert offsets_of(world.running, "slow", "orders") in ([None], [0])


def test_a_drain_leaves_the_group_messages_stored_after_its_queue_went_back(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    drain = drain_of_slow(spark, world, tmp_path)
    with pytest.raises(Died):
        drain("finished")
    assert bodies(table(spark, world.running, "wide")) == BEFORE
    world.recreate()
    world.send(20)
    put_group(world.running, "slow", "orders")
    drain()
    assert offsets_of(world.running, "slow", "orders") == [0]


def test_dead_letters_of_a_restarted_queue_are_not_mistaken_for_old_ones(
    spark: SparkSession, world: World, tmp_path: Path
) -> None:
    """The world's topic stands for a dead-letter topic that was resent and then recreated."""
    letters = DeadLetters(name_server=world.running.name_server, group="unused")

    def sent_back() -> int:
        with (
            pytest.MonkeyPatch.context() as patch,
            JobJournal(tmp_path / "letters") as journal,
        ):
            patch.setattr("sparrowmq.spark.jobs.dead_letters.dlq_topic", lambda group: "orders")
            return send_back(spark, letters, journal, to="again")[0]

    from tests.spark.admin import create_topic

    create_topic(world.running, "again", 1)
    create_topic(world.running, "%DLQ%unused", 1)  # which is asked what was sent again
    assert sent_back() == len(BEFORE)
    world.recreate()
    world.send(20)
    with pytest.raises(JobError, match=r"orders queue 0 of broker-a went back.*journal.json"):
        sent_back()
