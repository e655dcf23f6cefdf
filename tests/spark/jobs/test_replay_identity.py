"""The same replay is sent once in any spelling."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from sparrowmq.cli.main import app
from sparrowmq.spark.jobs.dead_letters import DeadLetters, send_back
from sparrowmq.spark.jobs.drain import DrainJob, DrainRun
from sparrowmq.spark.jobs.job import AdminOperator, JobError
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.jobs.replay import ReplayJob, ReplayRun
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.testing import cluster
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import fill_topic, put_group, sizes, topics
from tests.spark.jobs.dying import Died, die_at
from tests.spark.jobs.test_drain_claims import NOBODY

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster


def in_another_zone(server: str, until: str, archive: str) -> tuple[str, str, str]:
    zone = timezone(timedelta(hours=2))
    return server, datetime.fromisoformat(until).astimezone(zone).isoformat(), archive


def by_the_machine_s_name(server: str, until: str, archive: str) -> tuple[str, str, str]:
    return server.replace("127.0.0.1", "localhost"), until, archive


def by_another_path(server: str, until: str, archive: str) -> tuple[str, str, str]:
    return server, until, f"./{archive}"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["pipeline", *words])


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_another_spelling_of_a_replay_sends_nothing_again(
    spark: SparkSession, running: Cluster
) -> None:
    fill_topic(running, "same", 20)
    until = (datetime.now(UTC) + timedelta(milliseconds=1)).isoformat()
    create_topic(running, "same-again", 2)
    made = run("archive", "--topics", "same", "--to", "arc", "--once", "-n", running.name_server)
    assert made.exit_code == 0, made.output

    def replayed(server: str, end: str, archive: str) -> str:
        done = run(
            *("replay", "same", "--to", "same-again", "--since", "2020-01-01", "--until", end),
            *("--archive", archive, "--name-servers", server),
        )
        assert done.exit_code == 0, done.output
        assert "20 in all" in done.output or "20 messages of same were sent" in done.output
        return done.output

    first = running.name_server, until, "arc"
    assert "nothing was left to send" not in replayed(*first)
    for spell in (in_another_zone, by_the_machine_s_name, by_another_path):
        assert "nothing was left to send" in replayed(*spell(*first)), spell.__name__
        assert sum(sizes(running, "same-again")) == 20, spell.__name__
    assert spark.range(1).count() == 1


def test_a_range_that_ends_in_the_future_is_refused_with_a_valid_end(running: Cluster) -> None:
    fill_topic(running, "same-future", 2)
    create_topic(running, "same-future-again", 1)
    done = run(
        *("replay", "same-future", "--to", "same-future-again", "--since", "2020-01-01"),
        *("--until", "2100-01-01", "--name-servers", running.name_server),
    )
    assert done.exit_code == 1, done.output
    assert "2100-01-01T00:00:00Z lies in the future" in done.output
    assert f"--until {datetime.now(UTC):%Y-%m-%dT}" in done.output
    assert list(Path.cwd().iterdir()) == []
    assert sum(sizes(running, "same-future-again")) == 0
    assert "same-future" in topics(running)


def replay_in(running: Cluster, journal: JobJournal) -> None:
    create_topic(running, "elsewhere-again", 1)
    job = ReplayJob(
        name_server=running.name_server,
        topic="elsewhere",
        to="elsewhere-again",
        since=datetime(2020, 1, 1, tzinfo=UTC),
        until=datetime(2020, 1, 2, tzinfo=UTC),
    )
    ReplayRun(NOBODY, job, journal).run(die_at("planned"))


def drain_in(running: Cluster, journal: JobJournal) -> None:
    put_group(running, "elsewhere-slow", "elsewhere")
    job = DrainJob(
        name_server=running.name_server,
        topic="elsewhere",
        group="elsewhere-slow",
        to="elsewhere-wide",
        state=journal.path.parent,
    )
    with RemoteCluster(running.name_server) as wire:
        work = DrainRun(job, wire, AdminOperator(running.name_server), journal)
        work.run(NOBODY, die_at("planned"))


def send_back_in(running: Cluster, journal: JobJournal) -> None:
    create_topic(running, "%DLQ%elsewhere", 1)
    letters = DeadLetters(name_server=running.name_server, group="elsewhere")
    send_back(NOBODY, letters, journal, on_step=die_at("finished"))


@pytest.mark.parametrize("work", [replay_in, drain_in, send_back_in])
def test_a_journal_of_another_cluster_with_the_same_name_is_refused(
    running: Cluster, tmp_path: Path, work: Callable[[Cluster, JobJournal], None]
) -> None:
    with cluster() as other:
        for each in (running, other):
            fill_topic(each, "elsewhere", 2)
        with JobJournal(tmp_path / "job") as journal:
            with pytest.raises(Died):
                work(running, journal)
            before = journal.read()
            here, there = (each.broker_addresses["broker-a"] for each in (running, other))
            with pytest.raises(JobError) as caught:
                work(other, journal)
            assert f"a cluster with broker-a at {here}, and this one has broker-a at {there}" in (
                str(caught.value)
            )
            assert "--state" in str(caught.value)
            assert journal.read() == before
