"""`sparrowmq topic …`: what is done, and what is refused with an exit code and a line."""

from sparrowmq.broker.config import Replication
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import run


def test_a_topic_is_created_changed_listed_and_deleted(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    for queues in ("8", "16"):
        assert run("topic", "create", "cli-changed", "--queues", queues, *at).returncode == 0
        assert f" {queues} " in run("topic", "route", "cli-changed", *at).stdout
    assert "cli-changed" in run("topic", "list", *at).stdout.splitlines()
    assert run("topic", "delete", "cli-changed", "--yes", *at).returncode == 0
    assert "cli-changed" not in run("topic", "list", *at).stdout.splitlines()


def test_deleting_a_missing_topic_is_refused(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    missing = run("topic", "delete", "cli-missing", "--yes", *at)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "topic cli-missing does not exist" in missing.stderr


def test_a_number_of_queues_out_of_range_is_refused(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    wide = run("topic", "create", "cli-wide", "--queues", "5000", *at)
    assert wide.returncode == 1
    assert "5000 read queues, allowed are 0 to 4096" in wide.stderr
    assert "run it again" not in wide.stderr  # it would be refused again
    assert run("topic", "create", "cli-wide", "--queues", "0", *at).returncode == 2
    assert "cli-wide" not in run("topic", "list", *at).stdout.splitlines()


def test_a_topic_is_not_deleted_without_a_yes(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    assert run("topic", "create", "cli-kept", *at).returncode == 0
    for answer in ("", "n\n"):
        ran = run("topic", "delete", "cli-kept", *at, answer=answer)
        assert ran.returncode == 1
        assert ran.stderr == "sparrowmq: nothing was deleted; --yes deletes without asking\n"
    assert "cli-kept" in run("topic", "list", *at).stdout.splitlines()


def test_a_route_says_how_far_the_slaves_of_a_broker_are() -> None:
    with cluster(slaves=1, replication=Replication.SYNC) as running:
        running.create_topic("orders", queues=2)
        addresses = running.broker_addresses
        shown = run("topic", "route", "orders", "--name-servers", running.name_server)
        lines = shown.stdout.splitlines()[1:]
        assert lines[0].endswith(f"0:{addresses['broker-a']}, 1:{addresses['broker-a.1']}")
        assert lines[1:] == ["  master: 2 copies in sync", "  slave 1: 0 bytes, 0 s behind"]
