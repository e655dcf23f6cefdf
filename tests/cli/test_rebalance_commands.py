"""`sparrowmq rebalance …`: tables, JSON, the picture, and what is refused."""

import json
from pathlib import Path

import pytest

from sparrowmq.testing import Cluster
from tests.cli.in_process import run

DESCRIBED = ("rebalance", "simulate", "--queues", "16", "--members", "3")
TABLE = """\
STRATEGY\tMOVES\tSKEW\tPAUSE\tAT MOST\tREPEATED\tSPIKE
AVG\t9\t1\t0.12\t11\t0\t32
AVG_BY_CIRCLE\t10\t1\t0.12\t11\t0\t32
CONSISTENT_HASH\t4\t5\t0.12\t11\t0\t32
STICKY\t4\t1\t0.12\t11\t0\t32
"""


def test_a_described_group_is_simulated_without_a_cluster() -> None:
    ran = run(*DESCRIBED, "--event", "join")
    facts = "queues: 16\nmembers: 3\nmessages per second: 1,000\nhandler: 0.1s\n"
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, TABLE, facts)
    assert run(*DESCRIBED).stdout == TABLE  # a join, unless said


def test_several_events_are_reported_one_by_one_and_in_total() -> None:
    ran = run(*DESCRIBED, "--event", "join", "--event", "kill", "--strategy", "STICKY", "--json")
    found = json.loads(ran.stdout)
    assert [each["strategy"] for each in found["items"]] == ["STICKY"]
    assert [each["event"] for each in found["events"]] == ["join=member-4", "kill=member-4"]
    assert found["items"][0]["moves"] == sum(each["moves"] for each in found["events"])
    assert (found["queues"], found["members"], found["handlerS"]) == (16, 3, 0.1)


def test_every_move_is_listed_on_request() -> None:
    ran = run(*DESCRIBED, "--strategy", "AVG", "--moves", "--json")
    moves = json.loads(ran.stdout)["queueMoves"]
    assert len(moves) == 9
    assert moves[0] == {
        "strategy": "AVG",
        "event": "join=member-4",
        "topic": "topic",
        "queue": "broker-a/4",
        "from": "member-1",
        "to": "member-2",
        "pauseS": 0.12,
        "repeated": 0,
        "why": "assigned to another member",
    }


def test_the_picture_is_written(tmp_path: Path) -> None:
    path, foreign = tmp_path / "out.svg", tmp_path / "out.svg.tmp"
    foreign.write_text("of another program")
    ran = run(*DESCRIBED, "--svg", str(path))
    assert "handler: 0.1s\nsimulated: one more member joins" in ran.stderr
    assert ran.stderr.endswith(f"drawn: {path}\n")
    assert path.read_text("utf-8").startswith("<svg ")
    assert foreign.read_text() == "of another program"


def test_java_members_and_slow_handlers_cost_more() -> None:
    def figures(*more: str) -> dict[str, float]:
        ran = run(*DESCRIBED, "--strategy", "AVG", "--event", "leave", "--json", *more)
        found: dict[str, float] = json.loads(ran.stdout)["items"][0]
        return found

    ours, java = figures(), figures("--language", "java")
    assert (ours["repeated"], java["pauseS"], java["longestPauseS"]) == (0, 1.0, 20.0)
    assert java["repeated"] > 0
    assert figures("--handler", "2s")["pauseS"] == 2.02
    assert figures("--rate", "0")["spike"] == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "name a live group, or describe one with --queues and --members"),
        (("--queues", "4"), "name a live group, or describe one with --queues and --members"),
        (("billing", "--queues", "4"), "--queues describe a group, and billing is a live one"),
        (("--queues", "4", "--members", "2", "--topic", "t"), "--topic is for a live group"),
        (("--queues", "4", "--members", "1", "--event", "kill"), "is the last member"),
        (("--queues", "4", "--members", "1", "--event", "fly"), "'fly' is not an event"),
        (("--queues", "0", "--members", "1"), "0 is not in the range 1<=x<=4096"),
        (("--queues", "4", "--members", "1", "--strategy", "BEST"), "'BEST' is not one of"),
    ],
)
def test_what_is_not_possible_is_refused(arguments: tuple[str, ...], told: str) -> None:
    ran = run("rebalance", "simulate", *arguments)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr


def test_a_group_that_does_not_exist_is_refused(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    for verb in ("explain", "simulate"):
        ran = run("rebalance", verb, "no-such-group", *at)
        assert ran.returncode == 1
        assert "group no-such-group does not exist" in ran.stderr


def test_a_group_without_members_is_explained(sparrowmq_session_cluster: Cluster) -> None:
    at = ("--name-servers", sparrowmq_session_cluster.name_server)
    assert run("topic", "create", "cli-explained", "--queues", "2", *at).returncode == 0
    assert run("send", "cli-explained", "x", *at).returncode == 0
    read = ("--group", "cli-explainers", "--count", "1")
    assert run("consume", "cli-explained", *read, *at).returncode == 0
    ran = run("rebalance", "explain", "cli-explainers", "--topic", "cli-explained", *at)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[:2] == [
        "TOPIC\tQUEUE\tOWNER\tSINCE\tWHY",
        "cli-explained\tbroker-a/0\t\t\tthe group has no live members ?",
    ]
