"""`sparrowmq slave`: which slaves masters remember, and forgetting one that is gone."""

import json

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.testing import cluster
from tests.cli.in_process import run


def test_a_slave_is_listed_and_retired_when_it_does_not_follow() -> None:
    with cluster(slaves=1, replication=ReplicationMode.SYNC) as running:
        at = ("--name-servers", running.name_server)
        listed = run("slave", "list", "broker-a", *at).stdout.splitlines()
        assert listed[0].split() == ["BROKER", "ID", "ADDRESS", "STATE", "BEHIND", "HEARD"]
        assert listed[1].split()[:2] == ["broker-a", "1"]
        assert "follows" in listed[1]
        refused = run("slave", "retire", "broker-a", "1", "--yes", *at)
        assert refused.returncode == 1
        assert "stop the slave first" in refused.stderr

        running.stop_broker("broker-a.1")
        assert "away" in run("slave", "list", *at).stdout
        sick = run("cluster", "health", "--max-disk", "100%", *at)
        assert sick.returncode == 1
        assert "slaves\tbad\t" in sick.stdout
        assert "are away or lack messages: broker-a (slave 1, away)" in sick.stdout
        shown = run("slave", "retire", "broker-a", "1", "--dry-run", *at)
        assert shown.stdout.splitlines()[1].startswith("broker-a\t1\t127.0.0.1:")
        asked = run("slave", "retire", "broker-a", "1", *at, answer="n\n")
        assert asked.returncode == 1
        assert "nothing was changed" in asked.stderr
        retired = run("slave", "retire", "broker-a", "1", "--yes", *at)
        assert retired.stderr.startswith("slave 1 of broker-a is retired (name servers ")
        assert len(run("slave", "list", *at).stdout.splitlines()) == 1
        assert run("cluster", "health", "--max-disk", "100%", *at).returncode == 0
        again = run("slave", "retire", "broker-a", "1", "--yes", *at)
        assert "slave 1 of broker-a does not exist; it remembers: none" in again.stderr


def test_slaves_of_the_other_masters_are_listed_while_one_broker_has_no_master() -> None:
    with cluster(brokers=2, slaves=1) as running:
        at = ("--name-servers", running.name_server)
        running.stop_broker("broker-b")
        listed = run("slave", "list", *at)
        assert listed.returncode == 3, listed.stderr
        assert [line.split()[:2] for line in listed.stdout.splitlines()[1:]] == [["broker-a", "1"]]
        assert "sparrowmq: broker-b: broker broker-b has no master now" in listed.stderr
        document = json.loads(run("slave", "list", "--json", *at).stdout)
        assert [each["broker"] for each in document["errors"]] == ["broker-b"]
        alone = run("slave", "list", "broker-b", *at)
        assert (alone.returncode, alone.stdout) == (1, "")
        assert "broker-b has no master now" in alone.stderr
