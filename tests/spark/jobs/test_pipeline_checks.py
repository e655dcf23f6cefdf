"""What a job needs and lacks is reported before Spark starts, and no file is left."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.protocol.codes import RequestCode
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
    assert text.startswith(f"sparrowmq: no name server answers ({address}): ")
    assert "start one with: sparrowmq up" in text
    assert "--name-servers or SPARROWMQ_NAME_SERVERS" in text


@ALL
def test_a_broker_where_a_name_server_belongs_is_recognised(
    job: tuple[str, ...], running: Cluster
) -> None:
    assert "is that a broker?" in said(job, running.broker_addresses["broker-a"])


@ALL
def test_a_name_server_without_brokers_is_reported_with_the_remedy(job: tuple[str, ...]) -> None:
    with ScriptedBroker() as names:
        names.on(RequestCode.GET_BROKER_CLUSTER_INFO, lambda _: Said(body=b"{}"))
        text = said(job, names.address)
        assert f"no broker is registered at {names.address}" in text
        assert f"sparrowmq broker --name-servers {names.address}" in text


@pytest.mark.parametrize("name", ["archive once", "drain", "replay"])
def test_a_mistyped_topic_is_reported_with_the_one_that_may_be_meant(
    name: str, running: Cluster
) -> None:
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
    assert "group reach-nobody has no dead letters" in said(JOBS[name], running.name_server)


@pytest.mark.parametrize("flag", ["--report", "--hand-back"])
def test_a_drain_that_was_not_begun_names_where_its_journal_would_be(
    flag: str, running: Cluster
) -> None:
    fill(running, "reach-orders", 1)
    text = said(("drain", "reach-orders", "--group", "reach-nobody", flag), running.name_server)
    assert "reach-orders was not drained for reach-nobody: there is no journal" in text
    assert str(Path.cwd() / "state") in text
    assert "--state" in text
