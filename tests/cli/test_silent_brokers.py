"""One broker hangs: its row has `?`, an error names it, the others are there; exit code 3."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from sparrowmq.admin.cluster_calls import MOST_AT_ONCE
from sparrowmq.net.peers import Peers
from sparrowmq.testing import cluster
from tests.cli.in_process import run
from tests.cli.silent_broker import closed_port, silent_broker

SILENT = "broker-z"
READ = [
    ("topic", "list", "--long"),
    ("topic", "show", "orders", "--queues"),
    ("topic", "stats", "orders"),
    ("cluster", "show"),
    ("broker", "list"),
    ("broker", "show", SILENT),
    ("client", "list"),
    ("slave", "list"),
    ("topic", "delete", "orders", "--dry-run"),
]
CHANGES = [
    ("topic", "update", "orders", "--queues", "32"),
    ("topic", "update", "orders", "--read-queues", "1"),
    ("topic", "create", "orders", "--queues", "3"),
    ("topic", "delete", "orders", "--yes"),
    ("broker", "config", "set", SILENT, "deleteWhen=5"),
    ("broker", "config", "get", SILENT),
    ("broker", "clean", SILENT, "--log", "--yes"),
]


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[str, ...]]:
    """A cluster in which one of two brokers hangs."""
    with cluster() as running:
        running.create_topic("orders", queues=1)
        with silent_broker(running.name_server, SILENT, "orders"):
            yield "--name-servers", running.name_server, "--timeout", "300ms"


@pytest.mark.slow
@pytest.mark.parametrize("command", READ, ids=" ".join)
def test_a_question_is_answered_by_the_others(
    command: tuple[str, ...], at: tuple[str, ...]
) -> None:
    ended = run(*command, *at)
    assert ended.returncode == 3, ended.stderr
    assert f"sparrowmq: {SILENT}: " in ended.stderr
    assert "Traceback" not in ended.stderr
    document = json.loads(run(*command, "--json", *at).stdout)
    assert [each["broker"] for each in document["errors"]] == [SILENT]


def test_figures_of_a_broker_that_hangs_are_unknown_and_not_zero(at: tuple[str, ...]) -> None:
    row = run("cluster", "show", *at).stdout.splitlines()[-1]
    assert row.split("\t")[1] == SILENT
    assert row.split("\t")[5:] == ["?"] * 6


@pytest.mark.slow
@pytest.mark.parametrize("command", CHANGES, ids=" ".join)
def test_a_change_is_refused_before_anything_is_changed(
    command: tuple[str, ...], at: tuple[str, ...]
) -> None:
    ended = run(*command, *at)
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert "did not answer" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert run("topic", "show", "orders", *at).returncode == 3  # it is there still


class Counted:
    """Requests that a broker was sent, by what they ask for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
        self.asked: list[str] = []
        call = Peers.call

        async def counted(peers: Peers, to: str, header: Any, *args: Any, **more: Any) -> Any:
            if to == address:
                self.asked.append(type(header).__name__)
            return await call(peers, to, header, *args, **more)

        monkeypatch.setattr(Peers, "call", counted)


MANY_QUESTIONS = [
    ("topic", "stats", "orders", "payments"),
    ("topic", "show", "orders", "--queues"),
    ("group", "show", "billing"),
    ("group", "list", "--long"),
    ("group", "lag"),
    ("group", "lag", "billing", "audit", "--by", "queue"),
    ("cluster", "show"),
    ("dlq", "list"),
    ("message", "get", "orders", "--since", "-1h"),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", MANY_QUESTIONS, ids=" ".join)
def test_a_hanging_broker_costs_a_command_one_timeout_in_total(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, busy: tuple[tuple[str, ...], str]
) -> None:
    at, address = busy
    counted = Counted(monkeypatch, address)
    ended = run(*command, *at)
    assert ended.returncode == 3, ended.stderr
    assert ended.stderr.count(f"sparrowmq: {SILENT}: ") == 1, ended.stderr
    # What is asked at the same time fails at the same time; nothing is asked afterwards
    assert 1 <= len(counted.asked) <= MOST_AT_ONCE
    assert len(set(counted.asked)) == 1, counted.asked


@pytest.fixture(scope="module")
def busy() -> Iterator[tuple[tuple[str, ...], str]]:
    """The same with groups that have progress, so that there is much to ask; and the address of the
    one that hangs."""
    with cluster() as running:
        for topic in ("orders", "payments", "%DLQ%billing"):
            running.create_topic(topic, queues=1)
        at = ("--name-servers", running.name_server)
        for group in ("billing", "audit"):
            assert run("group", "create", group, *at).returncode == 0
            for topic in ("orders", "payments"):
                run("group", "reset", group, "--topic", topic, "--to", "latest", "--yes", *at)
        with silent_broker(
            running.name_server, SILENT, "orders", "payments", "%DLQ%billing"
        ) as address:
            yield (*at, "--timeout", "300ms"), address


@pytest.mark.parametrize(
    ("command", "rows", "said"),
    [
        (
            ("group", "lag", "billing", "--topic", "orders"),
            [
                "billing\torders\tbroker-a/0\t0\t0\t0\t0\t\t",
                f"billing\torders\t{SILENT}/0\t?\t?\t?\t?\t?\t?",
            ],
            "lag: ≥0",
        ),
        (
            ("group", "lag", "billing", "--by", "topic"),
            ["billing\torders\t17\t≥0\t≥0\t", "billing\tpayments\t17\t≥0\t≥0\t"],
            "lag: ≥0",
        ),
        (("group", "show", "billing"), ["orders\t17\t≥0\t", "payments\t17\t≥0\t"], "lag: ≥0"),
        (
            ("topic", "show", "orders", "--queues"),
            [
                "broker-a/0\t0\t0\t0\t",
                f"{SILENT}/0\t?\t?\t?\t?",
                "audit\t≥0\t≥0",
                "billing\t≥0\t≥0",
            ],
            "messages: ≥0",
        ),
    ],
    ids=["lag by queue", "lag by topic", "group", "topic"],
)
def test_sums_without_a_broker_that_hangs_are_marked_and_its_queues_are_unknown(
    command: tuple[str, ...], rows: list[str], said: str, busy: tuple[tuple[str, ...], str]
) -> None:
    ended = run(*command, *busy[0])
    assert ended.returncode == 3
    assert [each for each in ended.stdout.splitlines() if each in rows] == rows, ended.stdout
    assert said in ended.stderr.splitlines()
    document = json.loads(run(*command, "--json", *busy[0]).stdout)
    assert document["isComplete"] is False


NEVER_SENT = "0A000001" + "F" * 24
NOT_FOUND = [
    ("message", "get", "orders", "--id", NEVER_SENT),
    ("message", "get", "orders", "--key", "o-1"),
    ("message", "trace", NEVER_SENT, "--topic", "orders"),
    ("message", "trace", "--topic", "orders", "--key", "o-1"),
    ("message", "deliver", NEVER_SENT, "--topic", "orders", "--group", "billing", "--yes"),
]


@pytest.mark.parametrize("command", NOT_FOUND, ids=" ".join)
def test_a_message_that_a_hanging_broker_may_have_is_not_reported_as_missing(
    command: tuple[str, ...], at: tuple[str, ...]
) -> None:
    ended = run(*command, *at)
    assert ended.returncode == 3, ended.stderr
    assert "was not found on the brokers that answered" in ended.stderr
    assert "does not exist" not in ended.stderr
    assert f"sparrowmq: {SILENT}: " in ended.stderr
    document = json.loads(run(*command, "--json", *at).stdout)
    assert (document["items"], document["truncated"]) == ([], False)
    assert [each["broker"] for each in document["errors"]] == [SILENT]


def test_the_doctor_does_not_miss_a_message_that_a_broker_that_hangs_may_have(
    at: tuple[str, ...],
) -> None:
    ended = run("doctor", "message", NEVER_SENT, "--topic", "orders", "--json", *at)
    document = json.loads(ended.stdout)
    assert [each["finding"] for each in document["items"]] == ["broker-silent"]
    assert "not-found" in [name for each in document["notMade"] for name in each["checks"]]


def test_dead_letters_that_only_a_broker_that_hangs_has_are_not_counted_in_silence(
    at: tuple[str, ...],
) -> None:
    with silent_broker(at[1], "broker-y", "%DLQ%audit"):
        ended = run("dlq", "list", *at)
        assert ended.returncode == 3
        assert ended.stdout.splitlines()[-1] == "audit\t?\t?\t?\t?"
        assert "sparrowmq: broker-y: " in ended.stderr


def test_health_is_bad_while_a_broker_hangs(at: tuple[str, ...]) -> None:
    ended = run("cluster", "health", "--max-disk", "100%", "--max-lag", "5", *at)
    assert ended.returncode == 1
    rows = dict(line.split("\t")[:2] for line in ended.stdout.splitlines()[1:])
    assert (rows["brokers"], rows["lag"], rows["name-servers"]) == ("bad", "unknown", "good")


def test_the_trace_of_an_error_is_shown_on_request_only(at: tuple[str, ...]) -> None:
    for flags, is_shown in (((), False), (("-v",), True)):
        ended = run("broker", "config", "get", SILENT, *flags, *at)
        assert ended.returncode == 1
        assert ("Traceback" in ended.stderr) == is_shown


def test_an_unreachable_name_server_is_listed_along_with_the_one_that_answers(
    at: tuple[str, ...],
) -> None:
    with closed_port() as away:
        ended = run("nameserver", "list", "--name-servers", f"{at[1]},{away}")
    assert ended.returncode == 3
    assert ended.stdout.splitlines()[-1] == f"{away}\tno\t?\t?"
    assert f"sparrowmq: name server {away}: " in ended.stderr
