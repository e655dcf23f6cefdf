"""What a job needs and lacks is reported before Spark starts, and no file is left."""

from __future__ import annotations

import json
import socket
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.protocol.codes import ROUTE_LOST, RequestCode, ResponseCode
from sparrowmq.spark.jobs.archive import check_archived
from sparrowmq.spark.jobs.archive_files import OF_HADOOP, local_files
from sparrowmq.spark.jobs.archive_log import Archive
from sparrowmq.spark.jobs.copy import new_copy
from sparrowmq.spark.jobs.job import JobError
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.jobs.replay import ReplayJob, journal_folder
from sparrowmq.spark.wire.cluster import Queue, QueuePosition, RemoteCluster
from tests.spark.scripted_broker import Said, ScriptedBroker
from tests.spark.topics import fill

if TYPE_CHECKING:
    from sparrowmq.testing import Cluster

TIMES = ("--since", "2026-01-01", "--until", "2026-01-02")
JOBS = {
    "archive": ("archive", "--topics", "reach-ordres", "--to", "archive"),
    "archive once": ("archive", "--topics", "reach-ordres", "--to", "archive", "--once"),
    "archive by pattern": ("archive", "--pattern", "reach-.*", "--to", "archive", "--once"),
    "drain": ("drain", "reach-ordres", "--group", "reach-nobody"),
    "replay": ("replay", "reach-ordres", "--to", "reach-ordres-again", *TIMES),
    "dead letters": ("dead-letters", "reach-nobody"),
    "dead letters back": ("dead-letters", "reach-nobody", "--send-back"),
}
ALL = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def said(job: tuple[str, ...], name_server: str) -> str:
    """What a job says that is refused before Spark starts."""
    done = CliRunner().invoke(app, ["pipeline", *job, "--name-servers", name_server])
    assert done.exit_code == 1, done.output
    assert "Spark" not in done.output
    assert list(Path.cwd().iterdir()) == []
    return done.output


@ALL
def test_a_name_server_that_is_not_there_is_named_with_the_remedy(job: tuple[str, ...]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        text = said(job, address)
    assert text.startswith(f"sparrowmq: no name server answers ({address}, from --name-servers): ")
    assert "start one with: sparrowmq up" in text
    assert "--name-servers or SPARROWMQ_NAME_SERVERS" in text


@ALL
def test_a_broker_where_a_name_server_belongs_is_recognised(
    job: tuple[str, ...], running: Cluster
) -> None:
    text = said(job, running.broker_addresses["broker-a"])
    assert text.endswith(
        ": this is a broker, not a name server; name servers listen on port 9876 by default\n"
    )


@ALL
def test_a_name_server_without_brokers_is_reported_with_the_remedy(job: tuple[str, ...]) -> None:
    with ScriptedBroker() as names:
        names.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: Said(body=b"{}"))
        text = said(job, names.address)
        assert f"no broker is registered at {names.address}" in text
        assert f"sparrowmq broker --name-servers {names.address}" in text


def test_a_topic_whose_brokers_are_away_is_not_called_missing() -> None:
    lost = f"{ROUTE_LOST}broker broker-b at 10.0.0.3:10911 left 3 s ago; start it again"
    table = {"broker-a": {"brokerName": "broker-a", "brokerAddrs": {"0": "127.0.0.1:1"}}}
    with ScriptedBroker() as names:
        info = json.dumps({"brokerAddrTable": table, "clusterAddrTable": {"c": ["broker-a"]}})
        names.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: Said(body=info.encode()))
        names.on(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            lambda _: Said(code=ResponseCode.TOPIC_NOT_EXIST, remark=lost),
        )
        text = said(JOBS["drain"], names.address)
    assert text.endswith(f": {lost}\n")


@pytest.mark.parametrize("name", ["archive once", "drain", "replay"])
def test_a_mistyped_topic_is_reported_with_a_suggestion(name: str, running: Cluster) -> None:
    fill(running, "reach-orders", 1)
    text = said(JOBS[name], running.name_server)
    assert "topic reach-ordres does not exist" in text
    assert "did you mean reach-orders?" in text


def test_a_missing_target_topic_is_reported(running: Cluster) -> None:
    fill(running, "reach-orders", 1)
    text = said(
        ("replay", "reach-orders", "--to", "reach-order-again", *TIMES), running.name_server
    )
    assert "topic reach-order-again does not exist" in text
    assert "sparrowmq topic create reach-order-again" in text


@pytest.mark.parametrize("name", ["dead letters", "dead letters back"])
def test_a_group_without_dead_letters_is_reported_as_such(name: str, running: Cluster) -> None:
    text = said(JOBS[name], running.name_server)
    assert "group reach-nobody has no dead letters" in text
    assert "groups that have some: sparrowmq dlq list" in text


FOLDERS = {
    "archive": (
        ("archive", "--pattern", "reach-.*", "--once", "--to"),
        "is not empty and not an archive (it has no _log/archive.json): there is notes.txt",
    ),
    "query": (("archive", "query"), "there is no archive in"),
    "compact": (("archive", "compact"), "there is no archive in"),
    "replay": (
        ("replay", "reach-orders", "--to", "reach-again", *TIMES, "--archive"),
        "there is no archive in",
    ),
}


@pytest.mark.parametrize(("job", "text"), FOLDERS.values(), ids=FOLDERS)
@pytest.mark.parametrize("name", ["{}", "file:{}", "file://{}"])
def test_a_folder_that_is_not_an_archive_is_refused_before_spark_starts(
    job: tuple[str, ...],
    text: str,
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for variable in OF_HADOOP:
        monkeypatch.delenv(variable, raising=False)
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "notes.txt").write_text("not ours")
    done = CliRunner().invoke(app, ["pipeline", *job, name.format(folder)])
    assert done.exit_code == 1, done.output
    assert text in done.output
    assert "Spark" not in done.output
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("name", "settings", "environ", "local"),
    [
        ("archive", {}, {}, True),
        ("/data/a:b", {}, {}, True),
        ("file:///data/archive", {}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, True),
        ("hdfs:///archive", {}, {}, False),
        ("archive", {"spark.hadoop.fs.defaultFS": "hdfs://one"}, {}, False),
        ("archive", {}, {"HADOOP_CONF_DIR": "/etc/hadoop"}, False),
    ],
)
def test_only_paths_certain_to_be_local_are_checked(
    name: str, settings: dict[str, str], environ: dict[str, str], local: bool
) -> None:
    assert (local_files(name, settings, environ) is not None) is local


def test_a_pattern_that_matches_no_topic_is_a_warning(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Started(Exception):
        """Spark would start now."""

    def start(*_: object) -> None:
        raise Started

    monkeypatch.setattr("sparrowmq.cli.commands.pipeline_archive.pipeline_session", start)
    fill(running, "reach-orders", 1)
    words = ["pipeline", "archive", "--to", "archive", "--name-servers", running.name_server]
    assert "warning" not in CliRunner().invoke(app, [*words, "--pattern", "reach-.*"]).output
    text = CliRunner().invoke(app, [*words, "--pattern", "reach-ordres"]).output
    assert "warning: --pattern 'reach-ordres' matches no topic; the topics are " in text
    assert "Started" in text


ARCHIVE = Archive(
    3,
    {"topic=orders/date=2026-11-15/0000000001-0000.parquet": 7},
    {Queue("refunds", "broker-a", 0): QueuePosition(0)},
)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("orders", None),
        ("refunds", None),  # archived, and without messages
        ("ordres", "topic ordres is not in the archive arc; did you mean orders? it has orders,"),
        ("zebras", "topic zebras is not in the archive arc; it has orders, refunds"),
    ],
)
def test_a_topic_that_was_never_archived_is_refused_with_those_that_were(
    topic: str, said: str | None
) -> None:
    with pytest.raises(JobError) if said else nullcontext() as caught:
        check_archived(ARCHIVE, topic, "arc")
    if said is not None:
        assert caught is not None
        assert said in str(caught.value)


def test_a_replay_that_is_finished_needs_no_spark(
    running: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(running, "reach-orders", 1)
    since, until = (datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2))
    job = ReplayJob(
        name_server=running.name_server,
        topic="reach-orders",
        to="reach-orders",
        since=since,
        until=until,
    )
    with RemoteCluster(running.name_server) as cluster:
        folder = journal_folder(Path.cwd() / "state", job, cluster)
    with JobJournal(folder) as journal:
        copied = replace(new_copy("x", {}, {}), sent=7, is_finished=True)
        journal.write({"copy": copied.to_json()})
    monkeypatch.setattr("sparrowmq.cli.commands.pipeline_copies.pipeline_session", None)
    words = ["pipeline", "replay", "reach-orders", "--to", "reach-orders", "--same-topic", *TIMES]
    at = ["--name-servers", running.name_server, "--state", "state"]
    done = CliRunner().invoke(app, [*words, *at])
    assert (done.exit_code, done.output) == (
        0,
        "7 messages of reach-orders were sent to reach-orders by an earlier run, and nothing was"
        " left to send; --again sends them once more\n",
    )


@pytest.mark.parametrize("flag", ["--report", "--hand-back"])
def test_a_drain_that_was_not_begun_names_where_its_journal_would_be(
    flag: str, running: Cluster
) -> None:
    fill(running, "reach-orders", 1)
    text = said(("drain", "reach-orders", "--group", "reach-nobody", flag), running.name_server)
    assert "reach-orders was not drained for reach-nobody: there is no journal" in text
    assert str(Path.cwd() / "state") in text
    assert "--state" in text
