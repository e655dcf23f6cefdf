"""The same job on two clusters has two journals, and each run finds the one of its cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.spark.jobs.journal import (
    BROKERS,
    CLUSTER,
    JobJournal,
    cluster_facts,
    cluster_id,
    is_about,
    journal_place,
)
from sparrowmq.spark.wire.cluster import RemoteCluster
from sparrowmq.testing import Cluster, cluster
from tests.spark.admin import create_topic

TOPIC = "journal-places"


@pytest.fixture(scope="module")
def other(running: Cluster) -> Iterator[Cluster]:
    """Another cluster, with the same names for itself and its broker."""
    with cluster() as started:
        for each in (running, started):
            create_topic(each, TOPIC, 1)
        yield started


def write_journal(folder: Path, where: Cluster) -> Path:
    """What a job does there; the folder of its journal."""
    with RemoteCluster(where.name_server) as wire:
        place = journal_place(folder, wire, TOPIC)
        with JobJournal(place) as journal:
            journal.write(cluster_facts(wire, TOPIC))
    return place


def test_a_job_has_a_journal_for_each_cluster(
    running: Cluster, other: Cluster, tmp_path: Path
) -> None:
    folder = tmp_path / "drain-orders-billing"
    assert write_journal(folder, running) == folder
    second = write_journal(folder, other)
    assert second == tmp_path / "drain-orders-billing~2"
    assert write_journal(folder, running) == folder
    assert write_journal(folder, other) == second


def test_another_address_of_the_name_server_leads_to_the_same_journal(
    running: Cluster, other: Cluster, tmp_path: Path
) -> None:
    write_journal(tmp_path / "job", running)
    with RemoteCluster(running.name_server.replace("127.0.0.1", "localhost")) as wire:
        assert journal_place(tmp_path / "job", wire, TOPIC) == tmp_path / "job"


@pytest.mark.parametrize(("is_same", "is_known"), [(True, True), (False, False)])
def test_a_cluster_whose_brokers_have_all_moved_is_recognised_by_its_id(
    running: Cluster, other: Cluster, is_same: bool, is_known: bool
) -> None:
    with RemoteCluster(running.name_server) as here, RemoteCluster(other.name_server) as there:
        saved = {BROKERS: {"broker-a": ["10.0.0.1:10911"]}, CLUSTER: cluster_id(here)}
        assert is_about(saved, here if is_same else there, TOPIC) is is_known


def test_a_journal_without_an_id_counts_by_its_brokers(
    running: Cluster, other: Cluster, tmp_path: Path
) -> None:
    write_journal(tmp_path / "job", running)
    path = tmp_path / "job" / "journal.json"
    saved = json.loads(path.read_text())
    del saved[CLUSTER]
    with RemoteCluster(running.name_server) as here, RemoteCluster(other.name_server) as there:
        assert is_about(saved, here, TOPIC)
        assert not is_about(saved, there, TOPIC)


def test_an_id_stays_the_same_and_is_different_elsewhere(running: Cluster, other: Cluster) -> None:
    with RemoteCluster(running.name_server) as here, RemoteCluster(other.name_server) as there:
        first = cluster_id(here)
        assert first == cluster_id(here)
        assert first != cluster_id(there)
