"""A blocked topic to a wider one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.blocking import Message, Producer, PushConsumer
from sparrowmq.spark.jobs.drain import DrainJob, DrainRun, Spread, drain_report, queues_for
from sparrowmq.spark.jobs.job import AdminOperator, JobError
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.wire.cluster import RemoteCluster
from tests.spark.jobs.backlog import bodies, fill_topic, offsets_of, put_group, sizes, table, topics
from tests.spark.jobs.dying import Died, die_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

STEPS = ("planned", "created", "under way", "sent", "committed", "finished", "moving", "moved")


def job_of(running: Cluster, folder: Path, topic: str, **more: object) -> DrainJob:
    values: dict[str, object] = {
        "name_server": running.name_server,
        "topic": topic,
        "group": f"slow-{topic}",
        "to": f"{topic}-wide",
        "state": folder,
        "batch_rows": 200,
        **more,
    }
    return DrainJob(**values)  # type: ignore[arg-type]


@contextmanager
def opened(job: DrainJob) -> Iterator[DrainRun]:
    with RemoteCluster(job.name_server) as wire, JobJournal(job.state) as journal:
        yield DrainRun(job, wire, AdminOperator(job.name_server), journal)


def blocked(running: Cluster, topic: str, count: int, *, handled: int = 0) -> list[bytes]:
    """A topic whose group has handled so many messages of each of its two queues."""
    sent = fill_topic(running, topic, count)
    put_group(running, f"slow-{topic}", topic, handled)
    return sent


@pytest.mark.slow
def test_the_backlog_is_spread_evenly_over_ten_times_the_queues(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = blocked(running, "drain-even", 540)
    job = job_of(running, tmp_path, "drain-even")
    with opened(job) as drain:
        copied = drain.run(spark)
        report = drain_report(drain, "fast")
    assert (copied.sent, copied.repeated) == (540, 0)
    assert len(sizes(running, "drain-even-wide")) == 20
    assert report.spread == (27, 27)
    assert bodies(table(spark, running, "drain-even-wide")) == sent
    assert report.twice == 0
    with opened(job) as drain:
        assert drain.run(spark).sent == 540  # again, and nothing is sent
    assert sum(sizes(running, "drain-even-wide")) == 540
    assert offsets_of(running, "slow-drain-even", "drain-even") == sizes(running, "drain-even")


def test_handled_and_later_messages_stay_with_the_old_topic(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "drain-part", 100, handled=20)
    before = sizes(running, "drain-part")
    job = job_of(running, tmp_path, "drain-part")
    with opened(job) as drain:
        drain.prepare()
        fill_topic(running, "drain-part", 50, first=100)
        copied = drain.run(spark)
    assert copied.sent == 60
    assert offsets_of(running, job.group, "drain-part") == before
    assert sum(sizes(running, "drain-part")) == 150
    keys = {row.keys[0] for row in table(spark, running, "drain-part-wide").collect()}
    assert keys == {f"k{number}" for number in range(7)}


def test_the_backlog_of_a_single_sharding_key_is_spread_evenly_too(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill_topic(running, "drain-hot", 1, queues=1)
    with Producer("tests", name_servers=running.name_server) as producer:
        for number in range(1, 40):
            producer.send(Message("drain-hot", b"%06d" % number, sharding_key="hot"))
    put_group(running, "slow-drain-hot", "drain-hot")
    job = job_of(running, tmp_path, "drain-hot")
    with opened(job) as drain:
        assert drain.run(spark).sent == 40
    assert set(sizes(running, job.to)) == {4}


def test_by_key_the_same_key_goes_to_the_same_queue_in_order(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    fill_topic(running, "drain-key", 210, queues=1)
    put_group(running, "slow-drain-key", "drain-key")
    with opened(job_of(running, tmp_path, "drain-key", spread=Spread.KEY)) as drain:
        assert drain.run(spark).sent == 210
    rows = table(spark, running, "drain-key-wide").orderBy("queueId", "queueOffset").collect()
    queue_of = {row["keys"][0]: row["queueId"] for row in rows}
    assert all(queue_of[row["keys"][0]] == row["queueId"] for row in rows)
    for key in queue_of:
        of_key = [bytes(row["body"]) for row in rows if row["keys"] == [key]]
        assert of_key == sorted(of_key)
        assert len(of_key) == 30


@pytest.mark.slow
def test_runs_killed_after_any_step_lose_nothing_and_repeat_at_most_one_batch(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = blocked(running, "drain-dies", 70)
    job = job_of(running, tmp_path, "drain-dies", batch_rows=40)
    for step in STEPS:
        with pytest.raises(Died), opened(job) as drain:
            drain.run(spark, die_at(step))
        # Not before the copy is committed.
        is_moved = step in ("moving", "moved")
        expected = sizes(running, job.topic) if is_moved else [0, 0]
        assert offsets_of(running, job.group, job.topic) == expected
    with opened(job) as drain:
        copied = drain.run(spark)
        report = drain_report(drain, "fast")
    assert (copied.sent, copied.wanted) == (70, 70)
    frame = table(spark, running, job.to)
    assert sorted(set(bodies(frame))) == sent
    # "under way" died before its batch was sent, "sent" after it: 40 are there twice, and a
    # reader can tell which.
    assert (report.twice, copied.repeated) == (40, 80)
    assert frame.select("msgId").distinct().count() == 70
    assert not report.behind()


def test_a_drain_is_refused_while_members_of_the_group_are_alive(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "drain-alive", 10)
    job = job_of(running, tmp_path, "drain-alive")
    member = PushConsumer(job.group, {"other-topic": "*"}, name_servers=running.name_server)
    with member:
        member.start(lambda messages: None)
        with (
            opened(job) as drain,
            pytest.raises(JobError, match="1 members of group slow-drain-alive are alive"),
        ):
            drain.run(spark)
        assert job.to not in topics(running)
        with opened(job_of(running, tmp_path, "drain-alive", live=True)) as drain:
            assert drain.run(spark).sent == 10
    assert offsets_of(running, job.group, "drain-alive") == sizes(running, "drain-alive")


def test_the_temporary_topic_can_go_when_all_of_it_is_handled(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "drain-back", 40)
    job = job_of(running, tmp_path, "drain-back")
    with opened(job) as drain:
        drain.run(spark)
        points = drain_report(drain, "fast").open_points()
        assert points == ["40 messages of the temporary topic are not handled yet"]
        put_group(running, "fast", job.to, offset=2)
        assert drain_report(drain, "fast").open_points() == []
        drain.forget()
        assert job.to not in topics(running)
        with pytest.raises(JobError, match="was handed back and its temporary topic deleted"):
            drain.saved()


def test_a_topic_that_exists_already_is_not_written_to(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "drain-exists", 4)
    fill_topic(running, "drain-exists-wide", 1)
    job = job_of(running, tmp_path, "drain-exists")
    with opened(job) as drain, pytest.raises(JobError, match="drain-exists-wide exists already"):
        drain.run(spark)


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("wide..", r"--to wide\.\.: topic 'wide\.\.'"),
        ("drain-bad-name", "is the topic that is drained; name one that is new"),
    ],
)
def test_a_temporary_topic_that_cannot_be_one_is_refused_before_anything_is_claimed(
    running: Cluster, tmp_path: Path, to: str, said: str
) -> None:
    blocked(running, "drain-bad-name", 4)
    job = job_of(running, tmp_path / "state", "drain-bad-name", to=to)
    with opened(job) as drain, pytest.raises(JobError, match=said):
        drain.prepare()
    assert not job.state.exists()


def test_a_drain_continues_only_with_its_original_arguments(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "drain-other", 4)
    with opened(job_of(running, tmp_path, "drain-other")) as drain:
        drain.prepare()
    other = job_of(running, tmp_path, "drain-other", spread=Spread.KEY)
    with opened(other) as drain, pytest.raises(JobError, match="begun with --spread evenly"):
        drain.prepare()


def test_a_drain_may_continue_with_another_batch_size_and_repeats_the_cut_batch_unchanged(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    sent = blocked(running, "drain-sizes", 70)
    with (
        pytest.raises(Died),
        opened(job_of(running, tmp_path, "drain-sizes", batch_rows=40)) as drain,
    ):
        drain.run(spark, die_at("sent"))
    other = job_of(running, tmp_path, "drain-sizes", batch_rows=20)
    with opened(other) as drain:
        copied = drain.run(spark)
        report = drain_report(drain, "fast")
    assert (copied.sent, copied.repeated, report.twice) == (70, 40, 40)
    frame = table(spark, running, other.to)
    assert bodies(frame.dropDuplicates(["msgId"])) == sent


def test_the_status_of_a_drain_shows_what_is_left_and_changes_nothing(
    running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "drain-plan", 40, handled=5)
    before = topics(running)
    job = job_of(running, tmp_path / "state", "drain-plan")
    with opened(job) as drain:
        found = drain.look()
    assert (found.wanted, found.looked_at) == (30, 0)
    assert list(queues_for(found).values()) == [20]
    assert not job.state.exists()
    assert topics(running) == before
    with opened(job) as drain:  # no other run has claimed it meanwhile
        drain.prepare()
        assert drain.look().wanted == 30
    fill_topic(running, "drain-plan-other", 1)
    other = job_of(running, tmp_path / "other", "drain-plan", to="drain-plan-other")
    with opened(other) as drain, pytest.raises(JobError, match="is being drained for"):
        drain.look()


def test_the_progress_of_a_drain_is_shown_with_any_arguments(
    running: Cluster, tmp_path: Path
) -> None:
    """--report and --hand-back copy nothing, so they need not repeat the original arguments."""
    blocked(running, "drain-look", 4)
    with opened(job_of(running, tmp_path, "drain-look")) as drain:
        drain.prepare()
    other = job_of(running, tmp_path, "drain-look", batch_rows=7, spread=Spread.KEY)
    with opened(other) as drain:
        assert drain.saved()["spread"] == "evenly"


def test_a_topic_that_the_drain_did_not_make_is_neither_reported_nor_deleted(
    running: Cluster, tmp_path: Path
) -> None:
    """Forgetting --to at the hand-back would mean a topic of another operator."""
    blocked(running, "drain-name", 4)
    fill_topic(running, "drain-name-drain", 1)
    with opened(job_of(running, tmp_path, "drain-name")) as drain:
        drain.prepare()
    other = job_of(running, tmp_path, "drain-name", to="drain-name-drain")
    for finished in (False, True):
        path = tmp_path / "journal.json"
        saved = json.loads(path.read_text())
        saved["copy"]["isFinished"] = saved["isMoved"] = finished
        path.write_text(json.dumps(saved))
        with opened(other) as drain:
            text = "begun with --to drain-name-wide, continue with that, not with drain-name-drain"
            with pytest.raises(JobError, match=text):
                drain.prepare()
            with pytest.raises(JobError, match=text):
                drain_report(drain, "fast")
    assert "drain-name-drain" in topics(running)
