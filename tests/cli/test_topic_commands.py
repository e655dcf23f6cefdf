"""`sparrowmq topic …`: what they do, and what they refuse with an exit code and an error line."""

import json

import pytest

from sparrowmq.broker.config import ReplicationMode
from sparrowmq.testing import Cluster, cluster
from tests.cli.in_process import run
from tests.cli.servers import sparrowmq


def test_a_topic_is_created_changed_listed_and_deleted(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    assert run("topic", "create", "cli-changed", "--queues", "8", *at).returncode == 0
    assert "\t8\t" in run("topic", "route", "cli-changed", *at).stdout
    assert run("topic", "update", "cli-changed", "--queues", "16", *at).returncode == 0
    assert "\t16\t" in run("topic", "route", "cli-changed", *at).stdout
    assert "cli-changed" in run("topic", "list", *at).stdout.splitlines()
    assert run("topic", "delete", "cli-changed", "--yes", *at).returncode == 0
    assert "cli-changed" not in run("topic", "list", *at).stdout.splitlines()


def test_a_topic_that_exists_with_other_settings_is_refused_and_update_is_named(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    for _ in range(2):  # a repetition makes no difference
        assert run("topic", "create", "cli-twice", "--queues", "2", *at).returncode == 0
    refused = run("topic", "create", "cli-twice", "--queues", "4", *at)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "broker-a: read_queues 2 → 4" in refused.stderr
    assert "sparrowmq topic update cli-twice" in refused.stderr
    kept = run("topic", "create", "cli-twice", "--queues", "4", "--if-missing", *at)
    assert (kept.returncode, kept.stdout) == (0, "")
    assert "\t2\t2\t" in run("topic", "route", "cli-twice", *at).stdout


def test_an_update_changes_only_the_settings_given_and_nothing_in_a_dry_run(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    made = ("--queues", "2", "--type", "fifo", "--order")
    assert run("topic", "create", "cli-part", *made, *at).returncode == 0
    for flags in (("--dry-run",), ()):
        changed = run("topic", "update", "cli-part", "--perm", "r", *flags, *at)
        assert changed.stdout.splitlines()[1:] == ["perm\tbroker-a\t6\t4"]
        settings = run("topic", "show", "cli-part", *at).stdout.splitlines()[1]
        perm = "RW-" if flags else "R--"
        assert settings == f"broker-a\t2\t2\t{perm}\tyes\tmessage.type=FIFO"
    gone = run("topic", "update", "cli-part", "--attribute", "-message.type", *at)
    assert gone.stdout.splitlines()[1:] == ["message.type\tbroker-a\tFIFO\t"]
    same = run("topic", "update", "cli-part", "--perm", "r", *at)
    assert (same.returncode, same.stdout) == (0, "FIELD\tBROKER\tWAS\tNOW\n")


def test_messages_of_queues_that_go_are_shown_and_kept_without_a_yes(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    assert run("topic", "create", "cli-fewer", "--queues", "4", *at).returncode == 0
    assert run("send", "cli-fewer", "x", "--count", "4", *at).returncode == 0
    one = ("consume", "cli-fewer", "--group", "cli-fewer", "--count", "4", "--format", "body")
    assert run(*one, *at).returncode == 0
    assert run("send", "cli-fewer", "x", "--count", "4", *at).returncode == 0
    update = ("topic", "update", "cli-fewer", "--read-queues", "2")
    refused = run(*update, *at)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "LOST-QUEUE" in refused.stderr
    assert "topic cli-fewer would lose queues with messages: nothing was changed" in refused.stderr
    assert "\t4\t4\t" in run("topic", "route", "cli-fewer", *at).stdout
    lost = json.loads(run(*update, "--dry-run", "--json", *at).stdout)["lostQueues"]
    assert [(each["queue"], each["messages"], each["unread"]) for each in lost] == [
        ("broker-a/2", 2, 1),
        ("broker-a/3", 2, 1),
    ]
    assert {name for each in lost for name in each["groups"]} == {"cli-fewer"}
    assert run(*update, "--yes", *at).returncode == 0
    assert "\t2\t4\t" in run("topic", "route", "cli-fewer", *at).stdout


def test_a_deletion_names_messages_groups_and_members_first(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    assert run("topic", "create", "cli-read", "--queues", "1", *at).returncode == 0
    assert run("send", "cli-read", "x", "--count", "3", *at).returncode == 0
    assert run("consume", "cli-read", "--group", "reader", "--count", "1", *at).returncode == 0
    shown = json.loads(run("topic", "delete", "cli-read", "--dry-run", "--json", *at).stdout)
    assert (shown["topic"], shown["messages"]) == ("cli-read", 3)
    assert shown["groups"] == [{"group": "reader", "lag": 2, "members": []}]
    refused = run("topic", "delete", "cli-read", *at)
    assert refused.returncode == 1
    assert (
        "topic cli-read would be deleted: 3 messages, 1 group with 0 live members" in refused.stderr
    )
    deleted = run("topic", "delete", "cli-read", "--yes", *at)
    assert deleted.stdout == "BROKER\tRESULT\nbroker-a\tdeleted\n"
    assert "topic cli-read is deleted, with 3 messages (name servers " in deleted.stderr


def test_a_long_list_is_cut_with_a_notice_and_asks_only_for_the_printed_rows(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    for number in range(3):
        assert run("topic", "create", f"cli-many-{number}", *at).returncode == 0
    listed = run("topic", "list", "--long", "--match", "cli-many-*", "--limit", "2", *at)
    assert [each.split("\t")[0] for each in listed.stdout.splitlines()] == [
        "NAME",
        "cli-many-0",
        "cli-many-1",
    ]
    assert listed.stderr == "2 of 3; --limit 0 for all\n"
    whole = run("topic", "list", "--match", "cli-many-*", "--limit", "0", "-q", *at)
    assert len(whole.stdout.splitlines()) == 4
    of_cluster = run("topic", "list", "--cluster", "DefaultCluster", *at)
    assert "cli-many-0" in of_cluster.stdout.splitlines()
    unknown = run("topic", "list", "--cluster", "Other", *at)
    assert "cluster Other does not exist; known are: DefaultCluster" in unknown.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("create", "t", "--broker", "a", "--cluster", "b"), "--broker and --cluster cannot be"),
        (("create", "t", "--attribute", "x"), "--attribute 'x' is neither KEY=VALUE nor -KEY"),
        (("create", "t", "--attribute", "-x"), "an attribute of a new topic needs a value"),
        (("create", "t", "--type", "lite"), "'lite' is not one of 'normal', 'fifo'"),
        (
            ("create", "t", "--type", "fifo", "--attribute", "message.type=DELAY"),
            "--type and --attribute message.type cannot be combined",
        ),
        (("update", "t"), "nothing to change is given"),
        (("update", "t", "--queues", "1", "--read-queues", "1", "--write-queues", "1"), "--queues"),
        (("stats", "t", "--match", "x"), "NAME and --match cannot be combined"),
        (("stats", "--sort", "name"), "'name' is not one of 'in', 'out', 'size'"),
        (("list", "--limit", "-1"), "-1 is not in the range x>=0"),
        (("list", "--timeout", "0s"), "must be more than 0"),
    ],
)
def test_wrong_usage_is_refused_before_anything_is_asked(
    command: tuple[str, ...], said: str
) -> None:
    refused = run("topic", *command)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr


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
        assert "nothing was changed; --yes does it without asking\n" in ran.stderr
    assert "cli-kept" in run("topic", "list", *at).stdout.splitlines()


def test_a_route_shows_the_lag_of_a_brokers_slaves() -> None:
    with cluster(slaves=1, replication=ReplicationMode.SYNC) as running:
        running.create_topic("orders", queues=2)
        addresses = running.broker_addresses
        shown = run("topic", "route", "orders", "--name-servers", running.name_server)
        lines = shown.stdout.splitlines()[1:]
        assert lines[0].endswith(f"0:{addresses['broker-a']}, 1:{addresses['broker-a.1']}")
        assert lines[3:] == ["broker-a\t0\tmaster\t2\t\t", "broker-a\t1\tslave\t\t0\t0"]


@pytest.mark.parametrize(
    ("written", "shown"), [("2", "-W-"), ("r", "R--"), ("RW", "RW-"), ("6", "RW-")]
)
def test_a_permission_is_a_number_of_apaches_or_letters(
    written: str, shown: str, sparrowmq_session_cluster: Cluster
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    topic = f"cli-perm-{written}"
    assert run("topic", "create", topic, "--perm", written, *at).returncode == 0
    assert f"\t{shown}\t" in run("topic", "route", topic, *at).stdout


@pytest.mark.parametrize("written", ["3", "7", "x", ""])
def test_another_permission_is_refused_with_those_that_are_allowed(written: str) -> None:
    refused = run("topic", "create", "cli-perm", "--perm", written)
    assert refused.returncode == 2
    allowed = "must be 2 or w (write), 4 or r (read), 6 or rw (both)"
    assert f"{written!r} is not a permission, {allowed}" in refused.stderr


def test_a_topic_whose_broker_is_stopped_is_not_reported_as_missing(
    sparrowmq_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_cluster.name_server)
    assert run("topic", "create", "orders", *at).returncode == 0
    ((name, address),) = sparrowmq_cluster.broker_addresses.items()
    sparrowmq_cluster.stop_broker(name)
    commands = (
        ("topic", "route", "orders"),
        ("topic", "delete", "orders", "--yes"),
        ("send", "orders", "x", "--timeout", "1s"),  # so long it waits for the broker
    )
    for command in commands:
        refused = run(*command, *at)
        assert refused.returncode == 1
        assert f"broker {name} at {address} left " in refused.stderr
        assert "; start it again" in refused.stderr
        assert "create it" not in refused.stderr
    unknown = run("topic", "route", "never-made", *at)  # a broker that comes may have it
    assert "no broker is registered with the name server; start one first" in unknown.stderr


def test_an_illegal_name_is_not_advised_to_be_created(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    refused = run("topic", "route", "../x", *at)
    assert refused.returncode == 1
    assert "create it" not in refused.stderr
    assert "topic '../x' has characters that are not allowed" in refused.stderr


def test_a_topic_that_may_not_be_read_is_reported_as_such(
    sparrowmq_session_cluster: Cluster,
) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    one = run("topic", "create", "cli-unread", "--perm", "w", "--queues", "1", *at)
    assert one.stdout.splitlines()[0] == "BROKER\tQUEUES"
    ended = sparrowmq("consume", "cli-unread", "--group", "g", "--timeout", "1s", *at)
    text = "topic cli-unread has no queue that can be read: it has none, or its permission forbids"
    assert text in ended.stderr


def test_a_deletion_names_brokers_that_are_drained_and_keep_the_topic() -> None:
    with cluster(brokers=2) as running:
        at = ("--name-servers", running.name_server)
        assert run("topic", "create", "left", *at).returncode == 0
        assert run("broker", "drain", "broker-a", "--yes", *at).returncode == 0
        deleted = run("topic", "delete", "left", "--yes", *at)
        assert (deleted.returncode, "broker-b\tdeleted" in deleted.stdout) == (0, True)
        assert "broker-a is drained" in deleted.stderr
        assert "sparrowmq topic delete left" in deleted.stderr
        assert run("broker", "resume", "broker-a", *at).returncode == 0
        again = run("topic", "delete", "left", "--yes", *at)
        assert (again.returncode, "drained" in again.stderr) == (0, False)
        assert "left" not in run("topic", "list", *at).stdout.splitlines()
