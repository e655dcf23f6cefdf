"""`--cluster` of changes: only the brokers of one of several clusters at the same name servers."""

from collections.abc import Iterator

import pytest

from sparrowmq.blocking import Admin
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import Ran, run


@pytest.fixture(scope="module")
def east() -> Iterator[Cluster]:
    """Has broker-a; broker-w of another cluster is registered at its name server, too."""
    with cluster(cluster_name="east") as running:
        where = (running.name_server,)
        with cluster(cluster_name="west", broker_name="broker-w", name_servers=where):
            assert ask(running, "topic", "create", "orders", "--queues", "2").returncode == 0
            assert ask(running, "topic", "create", "local", "--cluster", "east").returncode == 0
            assert ask(running, "group", "create", "billing").returncode == 0
            yield running


def ask(running: Cluster, *words: str) -> Ran:
    return run(*words, "--name-servers", running.name_server)


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (("topic", "update", "orders", "--queues", "3"), "read-queues\tbroker-w\t2\t3"),
        (("group", "update", "billing", "--retries", "3"), "retries\tbroker-w\t16\t3"),
    ],
    ids=["topic", "group"],
)
def test_only_brokers_of_the_cluster_are_changed(
    words: tuple[str, ...], row: str, east: Cluster
) -> None:
    dry = ask(east, *words, "--cluster", "west", "--dry-run")
    done = ask(east, *words, "--cluster", "west")
    assert (done.returncode, done.stdout) == (0, dry.stdout), done.stderr
    assert row in done.stdout
    assert "broker-a" not in done.stdout
    with Admin(east.name_server) as admin:
        queues = {each.broker: each.read_queues for each in admin.topic("orders").settings}
        retries = {each.broker: each.retries for each in admin.group("billing").settings}
    if words[0] == "topic":
        assert queues == {"broker-a": 2, "broker-w": 3}
    else:
        assert retries == {"broker-a": 16, "broker-w": 3}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (
            ("topic", "update", "orders", "--queues", "4", "--cluster", "north"),
            1,
            "topic orders in cluster north does not exist; it is in: east, west",
        ),
        (
            ("topic", "update", "local", "--queues", "4", "--cluster", "west"),
            1,
            "topic local in cluster west does not exist; it is in: east",
        ),
        (
            ("group", "update", "billing", "--retries", "4", "--cluster", "north"),
            1,
            "cluster north does not exist; known are: east, west",
        ),
        (
            ("group", "update", "billing", "--retries", "4", "--cluster", "a", "--broker", "b"),
            2,
            "--broker and --cluster cannot be combined",
        ),
        (
            ("topic", "update", "orders", "--queues", "4", "--cluster", "a", "--broker", "b"),
            2,
            "--broker and --cluster cannot be combined",
        ),
    ],
)
def test_a_cluster_without_it_is_refused(
    words: tuple[str, ...], code: int, says: str, east: Cluster
) -> None:
    refused = ask(east, *words)
    assert (refused.returncode, refused.stdout) == (code, "")
    assert says in refused.stderr
