"""`sparrowmq migrate`: from a cluster or a store directory to another cluster."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrowmq.blocking import Admin, Producer, PushConsumer
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.testing import Cluster, cluster
from sparrowmq.testing.held_port import HeldPort
from tests.cli.in_process import Ran, run, run_impatiently

HEADER = "WHAT\tNAME\tSTATE\tWHY"


@pytest.fixture(scope="module")
def source() -> Iterator[Cluster]:
    """Two topics of other sizes, two groups, one of which has read a topic."""
    with cluster() as running:
        at = running.name_server
        with Admin(at) as admin:
            admin.create_topic("orders", queues=3, attributes={"message.type": "NORMAL"})
            admin.create_topic("invoices", read_queues=2, write_queues=1, perm=6)
            admin.create_group("billing", retries=5)
            admin.create_group("audit", may_consume=False)
            admin.create_topic("%DLQ%billing", queues=1)
        with Producer("shop", name_servers=at) as producer:
            for number in range(12):
                producer.send(Message("orders", b"%d" % number), queue=_queue(number % 3))
        with Admin(at) as admin:
            admin.reset_offsets("billing", "orders", "latest")
        yield running


def _queue(number: int) -> MessageQueue:
    return MessageQueue("orders", "broker-a", number)


@pytest.fixture
def target() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def rows(ran: Ran) -> dict[tuple[str, str], tuple[str, str]]:
    header, *lines = ran.stdout.splitlines()
    assert header == HEADER
    return {(what, name): (state, why) for what, name, state, why in (x.split("\t") for x in lines)}


def test_a_plan_lists_what_can_and_cannot_move_and_changes_nothing(
    source: Cluster, target: Cluster
) -> None:
    ran = run("migrate", "plan", source.name_server, target.name_server)
    assert ran.returncode == 3, ran.stderr  # dead letters do not move
    found = rows(ran)
    assert found["topic", "orders"] == ("to do", "3 queues on broker-a")
    assert found["topic", "invoices"] == ("to do", "1 queue on broker-a")
    assert found["group", "billing"] == ("to do", "on broker-a")
    assert found["topic", "%DLQ%billing"][0] == "cannot move"
    assert "messages, which are not copied" in found["topic", "%DLQ%billing"][1]
    assert found["progress", "billing@orders"][0] == "to do"
    assert ran.stderr.startswith("nothing was changed: 1 cannot move, ")
    assert {name for _, name in found if not name.startswith("%DLQ%")} == {
        "orders",
        "invoices",
        "billing",
        "audit",
        "billing@orders",
    }
    assert "orders" not in run("topic", "list", "-n", target.name_server).stdout


def test_a_run_moves_settings_and_progress_and_can_be_repeated(
    source: Cluster, target: Cluster
) -> None:
    ran = run("migrate", "run", source.name_server, target.name_server)
    assert rows(ran)["progress", "billing@orders"][0] == "done"
    with Admin(target.name_server) as admin:
        orders, invoices = admin.topic("orders").settings[0], admin.topic("invoices").settings[0]
        assert (orders.read_queues, orders.write_queues) == (3, 3)
        assert orders.attributes == {"message.type": "NORMAL"}
        assert (invoices.read_queues, invoices.write_queues) == (2, 1)
        assert admin.group("billing").settings[0].retries == 5
        assert not admin.group("audit").settings[0].may_consume
        assert admin.lag("billing").lag == 0
    again = run("migrate", "run", source.name_server, target.name_server)
    states = {state for state, _ in rows(again).values()}
    assert states == {"there already", "cannot move"}


def test_a_group_continues_with_messages_stored_after_its_last_one(
    source: Cluster, target: Cluster
) -> None:
    """The target got messages of another producer before: those of the time that the group has
    consumed in the source are skipped, later ones are not."""
    run("migrate", "run", source.name_server, target.name_server, "--groups", "none*")
    with Producer("shop", name_servers=target.name_server) as producer:
        producer.send(Message("orders", b"later"), queue=_queue(0))
    run("migrate", "run", source.name_server, target.name_server)
    with Admin(target.name_server) as admin:
        assert admin.lag("billing").by_topic["orders"] == 1


def test_settings_that_differ_in_the_target_are_kept_and_reported(
    source: Cluster, target: Cluster
) -> None:
    with Admin(target.name_server) as admin:
        admin.create_topic("orders", queues=8)
        admin.create_group("billing", retries=1)
    ran = run("migrate", "run", source.name_server, target.name_server, "--json")
    assert ran.returncode == 3
    found = {(each["what"], each["name"]): each for each in json.loads(ran.stdout)["items"]}
    topic, group = found["topic", "orders"], found["group", "billing"]
    assert topic["state"] == group["state"] == "differs"
    assert "broker-a has read queues 8, not 3" in topic["why"]
    assert group["why"] == "the target has other number of retries"
    with Admin(target.name_server) as admin:
        assert admin.topic("orders").settings[0].read_queues == 8
        assert admin.group("billing").settings[0].retries == 1


def test_names_can_be_chosen(source: Cluster, target: Cluster) -> None:
    chosen = ("--topics", "inv*", "--groups", "aud*")
    ran = run("migrate", "run", source.name_server, target.name_server, *chosen)
    assert ran.returncode == 0, ran.stderr
    assert list(rows(ran)) == [("topic", "invoices"), ("group", "audit")]


def test_a_store_directory_is_read_without_its_broker(source: Cluster, target: Cluster) -> None:
    directory = next(path.parent for path in source.data_dir.rglob("commitlog"))
    ran = run("migrate", "run", str(directory), target.name_server)
    assert ran.returncode == 3, ran.stderr
    found = rows(ran)
    assert found["topic", "orders"] == ("done", "3 queues on broker-a")
    assert found["progress", "billing@orders"][0] == "done"
    live = run("migrate", "plan", source.name_server, target.name_server)
    assert rows(live)["progress", "billing@orders"][0] == "there already"


def test_contexts_are_places(source: Cluster, target: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "sparrowmq" / "contexts.toml"
    file.parent.mkdir()
    file.write_text(f'[contexts.old]\nname-servers = ["{source.name_server}"]\n')
    ran = run("migrate", "plan", "old", target.name_server, XDG_CONFIG_HOME=str(tmp_path))
    assert rows(ran)["topic", "orders"][0] == "to do"
    wrong = run("migrate", "plan", "odl", target.name_server, XDG_CONFIG_HOME=str(tmp_path))
    assert wrong.returncode == 2
    assert "a context (old) or a store directory" in wrong.stderr


def test_wrong_places_are_refused(source: Cluster, tmp_path: Path) -> None:
    at = source.name_server
    same = run("migrate", "run", at, at)
    assert (same.returncode, "the same cluster" in same.stderr) == (2, True)
    directory = run("migrate", "run", at, str(tmp_path))
    assert (directory.returncode, "only its broker changes it" in directory.stderr) == (2, True)
    empty = run("migrate", "plan", str(tmp_path), at)
    assert (empty.returncode, "holds no store" in empty.stderr) == (2, True)


def test_a_group_with_live_members_in_the_target_keeps_its_progress(
    source: Cluster, target: Cluster
) -> None:
    at = target.name_server
    chosen = (source.name_server, at, "--topics", "orders", "--groups", "billing")
    run("migrate", "run", *chosen, "--groups", "none*")
    with PushConsumer("billing", {"orders": "*"}, name_servers=at) as member:
        member.start(lambda messages: None)
        state, why = rows(run("migrate", "run", *chosen))["progress", "billing@orders"]
    assert state == "cannot move"
    assert "stop them: they would store their own progress over it" in why


def test_a_cluster_that_does_not_answer_changes_nothing(source: Cluster, target: Cluster) -> None:
    with HeldPort() as port:
        away = port.address
        for places in ((away, target.name_server), (source.name_server, away)):
            ran = run_impatiently("migrate", "run", *places)
            assert (ran.returncode, ran.stdout) == (1, "")
            assert "no name server answers" in ran.stderr
    with Admin(target.name_server) as admin:
        assert "orders" not in admin.topics()
