"""One operator at a time drains a topic for a group, wherever the journals lie."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.spark.errors import ClusterUnreachable, ServerRefused
from sparrowmq.spark.jobs.drain import DrainRun
from sparrowmq.spark.jobs.job import AdminOperator, JobError
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.spark.wire.remoting import Answer, Remoting
from tests.spark.admin import create_topic
from tests.spark.jobs.backlog import fill_topic, put_group, topics
from tests.spark.jobs.dying import Died, die_at
from tests.spark.jobs.test_drain import blocked, job_of, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from sparrowmq.testing import Cluster

NOBODY = cast("SparkSession", None)
"""What is refused before anything is read needs no session."""


def claim_on(running: Cluster, topic: str) -> dict[str, Any] | None:
    """What the name server keeps."""
    key = {"namespace": "sparrowmq-drains", "key": f"{topic}@slow-{topic}"}
    with Remoting(running.name_server) as server:
        try:
            answer = server.ask(RequestCode.GET_KV_CONFIG, key)
        except ServerRefused:
            return None
    found: dict[str, Any] = json.loads(answer.fields["value"])
    return found


def test_a_second_operator_is_refused_with_who_drains_and_what_to_do(
    running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "claim-two", 4)
    ann = job_of(running, tmp_path / "ann", "claim-two", by="ann@host-1")
    bob = job_of(running, tmp_path / "bob", "claim-two", to="claim-two-bob", by="bob@host-2")
    with opened(ann) as drain:
        drain.prepare()
    with opened(bob) as drain, pytest.raises(JobError) as caught:
        drain.prepare()
    text = str(caught.value)
    assert "claim-two is being drained for slow-claim-two by ann@host-1 since 20" in text
    assert f"to claim-two-wide, journal {tmp_path / 'ann' / 'journal.json'}" in text
    assert "--state" in text
    assert "--take-over" in text
    assert not (tmp_path / "bob").exists()
    assert "claim-two-bob" not in topics(running)


def test_the_same_operator_can_continue_after_a_kill_at_any_step(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "claim-killed", 40)
    job = job_of(running, tmp_path, "claim-killed")
    for step in ("planned", "sent", "finished", "moving", "moved"):
        with pytest.raises(Died), opened(job) as drain:
            drain.run(spark, die_at(step))
        assert claim_on(running, "claim-killed") is not None, step
    with opened(job) as drain:
        assert drain.run(spark).sent == 40
    assert claim_on(running, "claim-killed") is None
    with opened(job) as drain:
        assert drain.run(spark).sent == 40  # over for good, and no claim is left
    assert claim_on(running, "claim-killed") is None


def test_a_finished_drain_leaves_later_messages_to_any_operator(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "claim-next", 20)
    with opened(job_of(running, tmp_path / "ann", "claim-next")) as drain:
        drain.run(spark)
    fill_topic(running, "claim-next", 10, first=20)
    with opened(job_of(running, tmp_path / "bob", "claim-next", to="claim-next-2")) as drain:
        assert drain.run(spark).sent == 10


def test_a_run_stops_when_its_claim_is_taken_over(
    spark: SparkSession, running: Cluster, tmp_path: Path
) -> None:
    blocked(running, "claim-over", 60)
    ann = job_of(running, tmp_path / "ann", "claim-over", by="ann@host-1", batch_rows=20)
    bob = job_of(
        running, tmp_path / "bob", "claim-over", to="claim-over-2", by="bob@host-2", take_over=True
    )

    def bob_comes(step: object) -> None:
        if getattr(step, "name", "") == "committed":
            with opened(bob) as drain:
                drain.prepare()

    with (
        opened(ann) as drain,
        pytest.raises(JobError, match="by another operator now: bob@host-2"),
    ):
        drain.run(spark, bob_comes)
    with opened(ann) as drain, pytest.raises(JobError, match="by bob@host-2 since"):
        drain.run(NOBODY)
    with opened(bob) as drain:
        assert drain.run(spark).sent == 60


def test_two_that_claim_at_the_same_moment_do_not_both_get_it(
    running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked(running, "claim-race", 4)
    ann = job_of(running, tmp_path / "ann", "claim-race", by="ann@host-1")
    bob = job_of(running, tmp_path / "bob", "claim-race", to="claim-race-2", by="bob@host-2")
    ask = Remoting.ask
    refused: list[str] = []

    def bob_comes(self: Remoting, code: int, fields: Any, body: bytes = b"") -> Answer:
        # Ann has looked, and not yet written.
        if code == RequestCode.PUT_KV_CONFIG:
            monkeypatch.undo()
            with opened(bob) as drain, pytest.raises(JobError) as caught:
                drain.prepare()
            refused.append(str(caught.value))
        return ask(self, code, fields, body)

    monkeypatch.setattr(Remoting, "ask", bob_comes)
    with opened(ann) as drain:
        drain.prepare()
    assert "another run claims a drain of claim-race at this moment" in refused[0]
    found = claim_on(running, "claim-race")
    assert found is not None
    assert found["by"] == "ann@host-1"


def after_the_journal(running: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the journal and the cluster."""

    def killed(*_: object, **__: object) -> None:
        raise Died

    monkeypatch.setattr("sparrowmq.spark.jobs.claims.Claims.take", killed)


def after_the_claim(running: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the claim and the plan."""

    def killed(*_: object, **__: object) -> None:
        raise Died

    monkeypatch.setattr(RemoteCluster, "end", killed)


@pytest.mark.parametrize("kill", [after_the_journal, after_the_claim])
def test_a_run_that_dies_while_it_claims_is_begun_again_by_its_operator(
    running: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kill: Callable[[Cluster, Path, pytest.MonkeyPatch], None],
) -> None:
    topic = f"claim-{kill.__name__}".replace("_", "-")
    blocked(running, topic, 4)
    job = job_of(running, tmp_path / "ann", topic)
    with monkeypatch.context() as patch:
        kill(running, tmp_path, patch)
        with pytest.raises(Died), opened(job) as drain:
            drain.prepare()
    with opened(job) as drain:
        with pytest.raises(JobError, match="was claimed and not begun"):
            drain.saved()
        create_topic(running, job.to, 1)
        with pytest.raises(JobError, match=f"{job.to} exists already, and not by this job"):
            drain.prepare()
        AdminOperator(running.name_server).delete_topic(job.to)
        assert drain.prepare()["isMoved"] is False


def test_a_run_continues_with_a_claim_whose_answer_was_lost(
    running: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked(running, "claim-unheard", 4)
    job = job_of(running, tmp_path, "claim-unheard")
    ask = Remoting.ask

    def cut_off(self: Remoting, code: int, fields: Any, body: bytes = b"") -> Answer:
        answer = ask(self, code, fields, body)
        if code == RequestCode.PUT_KV_CONFIG:
            raise ClusterUnreachable(self.address, "PUT_KV_CONFIG", "cut off")
        return answer

    with monkeypatch.context() as patch:
        patch.setattr(Remoting, "ask", cut_off)
        with opened(job) as drain, pytest.raises(ClusterUnreachable, match="cut off"):
            drain.prepare()
    assert claim_on(running, "claim-unheard") is not None
    with opened(job) as drain:
        assert drain.prepare()["isMoved"] is False


def test_a_group_that_does_not_exist_is_refused_before_anything_is_copied(
    running: Cluster, tmp_path: Path
) -> None:
    fill_topic(running, "claim-group", 4)
    put_group(running, "claim-billing", "claim-group")
    job = job_of(running, tmp_path / "state", "claim-group", group="claim-biling")
    with opened(job) as drain, pytest.raises(JobError) as caught:
        drain.prepare()
    assert "group claim-biling does not exist at the brokers of claim-group" in str(caught.value)
    assert "Did you mean claim-billing?" in str(caught.value)
    assert job.to not in topics(running)
    assert not (tmp_path / "state").exists()


def test_a_claim_needs_every_name_server(running: Cluster, tmp_path: Path) -> None:
    """One that cannot be asked may have the claim of another."""
    blocked(running, "claim-all", 4)
    job = job_of(running, tmp_path, "claim-all")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        away = f"127.0.0.1:{closed.getsockname()[1]}"
        with (
            RemoteCluster(f"{running.name_server};{away}") as wire,
            JobJournal(tmp_path) as journal,
        ):
            drain = DrainRun(job, wire, AdminOperator(running.name_server), journal)
            with pytest.raises(ClusterUnreachable, match=away):
                drain.prepare()
    assert claim_on(running, "claim-all") is None
