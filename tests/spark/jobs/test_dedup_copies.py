"""Copies to topics that store a message once: they are taken, and a batch that is sent again is
not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.blocking import Admin, Message, Producer
from sparrowmq.spark.jobs.dead_letters import DeadLetters, send_back
from sparrowmq.spark.jobs.job import OnStep, ignore_step
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.jobs.replay import ReplayRun
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.spark.wire.sender import RowSender, Send
from tests.patience import PATIENCE_S
from tests.spark.jobs.backlog import bodies, put_group, table
from tests.spark.jobs.dying import Died, die_at
from tests.spark.jobs.test_drain import job_of as drain_job
from tests.spark.jobs.test_drain import opened
from tests.spark.jobs.test_replay import folder_of, in_2100
from tests.spark.jobs.test_replay import job_of as replay_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

ROWS = 30


def dedup(running: Cluster, topic: str) -> None:
    """Create the topic, or change it: it stores each message once."""
    with Admin(running.name_server, timeout_s=PATIENCE_S) as admin:
        admin.create_topic(topic, queues=2, attributes={"sparrowmq.dedup": "on"})


def fill(running: Cluster, topic: str) -> list[bytes]:
    """Messages with their own ids, and with keys that the topic would identify them by."""
    found = [b"%06d" % number for number in range(ROWS)]
    with Producer("tests", name_servers=running.name_server) as producer:
        for body in found:
            properties = {"DEDUP_KEY": f"{topic} {body.decode()}"}
            producer.send(Message(topic, body, properties=properties))
    return found


def test_a_replay_of_a_topic_into_itself_is_not_dropped_as_duplicates(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    dedup(running, "dedup-itself")
    sent = fill(running, "dedup-itself")
    job = replay_job(running, "dedup-itself", to="dedup-itself")
    with JobJournal(folder_of(tmp_path, job)) as journal:
        assert ReplayRun(spark, job, journal, in_2100).run().sent == ROWS
    assert bodies(table(spark, running, "dedup-itself")) == sorted(sent * 2)


def test_a_repeated_replay_stores_each_copy_once_unless_again_is_given(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    dedup(running, "dedup-range")
    dedup(running, "dedup-range-again")
    sent = fill(running, "dedup-range")
    job = replay_job(running, "dedup-range", batch_rows=12)
    with JobJournal(folder_of(tmp_path, job)) as journal:
        with pytest.raises(Died):
            ReplayRun(spark, job, journal, in_2100).run(die_at("sent", times=2))
        copied = ReplayRun(spark, job, journal, in_2100).run()
        assert (copied.sent, copied.repeated) == (ROWS, 12)
        assert bodies(table(spark, running, job.to)) == sent
        journal.put_aside()
        assert ReplayRun(spark, job, journal, in_2100).run().sent == ROWS
    assert bodies(table(spark, running, job.to)) == sorted(sent * 2)


def test_a_drain_that_died_and_is_repeated_stores_each_copy_once(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    dedup(running, "dedup-drain")
    sent = fill(running, "dedup-drain")
    put_group(running, "slow-dedup-drain", "dedup-drain")
    job = drain_job(running, tmp_path, "dedup-drain")
    with pytest.raises(Died), opened(job) as drain:
        drain.run(spark, die_at("created"))
    with Admin(running.name_server, timeout_s=PATIENCE_S) as admin:
        admin.update_topic(job.to, attributes={"sparrowmq.dedup": "on"})
    with pytest.raises(Died), opened(job) as drain:
        drain.run(spark, die_at("sent"))
    with opened(job) as drain:
        copied = drain.run(spark)
    assert (copied.sent, copied.repeated) == (ROWS, ROWS)
    assert bodies(table(spark, running, job.to)) == sent


def test_dead_letters_return_to_a_deduplicating_topic_and_only_once_after_a_crash(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    """A dead letter has the ids of the message that failed, its DEDUP_KEY among them."""
    dedup(running, "dedup-from")
    sent = fill(running, "dedup-from")
    with Admin(running.name_server, timeout_s=PATIENCE_S) as admin:
        admin.create_topic("%DLQ%dedup-failing", queues=1)
    letter_of = (
        "RETRY_TOPIC\x01dedup-from\x02DEDUP_KEY\x01{DEDUP_KEY}\x02UNIQ_KEY\x01{UNIQ_KEY}\x02"
    )
    with RemoteCluster(running.name_server) as wire:
        sender = RowSender(wire, group="tests", retry_timeout_s=PATIENCE_S)
        sender.queue_count("%DLQ%dedup-failing")
        for row in table(spark, running, "dedup-from").collect():
            properties = letter_of.format_map(row["properties"])
            sender.send(Send("%DLQ%dedup-failing", 0, True, 1, bytes(row["body"]), properties))
    letters = DeadLetters(name_server=running.name_server, group="dedup-failing")

    def run(on_step: OnStep = ignore_step) -> int:
        with JobJournal(tmp_path) as journal:
            return send_back(spark, letters, journal, on_step=on_step)[0]

    with pytest.raises(Died):
        run(die_at("sent"))
    run()
    assert bodies(table(spark, running, "dedup-from")) == sorted(sent * 2)
