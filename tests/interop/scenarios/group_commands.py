"""The command line against both brokers: groups, messages and dead letters as people see them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.interop.command_lines import CommandLine
from tests.interop.handles import PATIENCE_S
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene


def command(scene: Scene, *arguments: str) -> dict[str, Any]:
    """What a command says as JSON."""
    found: dict[str, Any] = json.loads(output(scene, *arguments))
    return found


def output(scene: Scene, *arguments: str) -> str:
    """What a command prints with --json."""
    with started(scene, *arguments) as process:
        printed, errors = process.communicate()
    check(process.returncode == 0, f"{' '.join(arguments)}: {process.returncode} {errors}")
    return printed


def started(scene: Scene, *arguments: str) -> subprocess.Popen[str]:
    """A command that runs. Its journal lies in the scenario's folder."""
    at = ("--name-servers", scene.cluster.name_server, "--timeout", f"{PATIENCE_S}s", "--json")
    return subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", *arguments, *at],
        env={**os.environ, "XDG_STATE_HOME": str(Path(scene.folder) / "state")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(found: dict[str, Any], *keys: str) -> list[list[Any]]:
    """Some columns of a table."""
    return [[item[key] for key in keys] for item in found["items"]]


@scenario(clients=PYTHON, needs="admin")
def commands_show_lag_reset_undo_find_and_trace(scene: Scene) -> Outcome:
    run, topic, group = CommandLine(scene), scene.topic(queues=2), scene.name("billing")
    producer, consumer = scene.producer(), scene.push_consumer(topic)
    for number in range(4):
        message = {"body": f"m-{number}", "keys": f"k-{number}", "tags": "A"}
        producer.send(topic, [message], how="send_to_queue", queue_id=number % 2)
    consumer.received(4)
    scene.wait_until_committed(topic, 4)
    consumer.stop()
    scene.wait_until(
        lambda: not run.document("group", "members", group)["members"], "the member has left"
    )
    where = ("--topic", topic)
    lag = run.document("group", "lag", group, *where)
    reset = run.document("group", "reset", group, *where, "--to", "earliest", "--yes")
    behind = run.document("group", "lag", group, *where)
    # All groups are asked for at once, by other requests, and get the same figures.
    every = run.document("group", "lag", "--by", "queue", "--limit", "0")
    own = [item for item in every["items"] if (item["group"], item["topic"]) == (group, topic)]
    columns = ("queue", "committed", "end", "lag")
    together, alone = rows({"items": own}, *columns), rows(behind, *columns)
    check(together == alone, f"lag of all groups: {together}, of the group: {alone}")
    undone = run.document("group", "undo", group, "--yes")
    one = ("--queue", "broker-a/1", "--by", "-1", "--yes")
    single = run.document("group", "reset", group, *where, *one)
    found = run.document("message", "get", topic, "--key", "k-3")
    ranged = run.document("message", "get", topic, "--since", "-1h")
    trace = run.document("message", "trace", found["items"][0]["id"], "--topic", topic)
    moves = ("queue", "was", "now", "skipped", "repeated")
    return {
        "lag": rows(lag, "queue", "committed", "end", "lag"),
        "reset": rows(reset, *moves),
        "behind": rows(behind, "queue", "lag"),
        "undone": rows(undone, *moves),
        "single": rows(single, *moves),
        "found": rows(found, "place", "tag", "keys", "size"),
        "ranged": rows(ranged, "place", "body"),
        "states": [
            [each["group"] == group, each["state"], each["source"], each["before"]]
            for each in trace["groups"]
        ],
    }


@scenario(clients=PYTHON, needs="retry")
def commands_send_dead_letters_to_the_failed_group_again(scene: Scene) -> Outcome:
    run, topic, group = CommandLine(scene), scene.topic(queues=1), scene.name("billing")
    consumer = scene.push_consumer(topic, fails={"bad": 1}, retry_level=-1)
    other = scene.push_consumer(topic, "audit")
    scene.producer().send(
        topic, [{"body": "bad", "keys": "k", "tags": "A", "properties": {"a": "1"}}]
    )
    consumer.received(1)
    other.received(1)

    def letters() -> list[list[Any]]:
        listed = run.document("dlq", "list", "--match", group)
        return rows(listed, "dead", "recent")

    scene.wait_until(lambda: letters() == [[1, 1]], "the dead letter is counted")
    shown = run.document("dlq", "show", group)
    sent = run.document("dlq", "resend", group, "--all", "--yes")
    got = consumer.received(2)
    scene.wait_until(
        lambda: run.document("dlq", "resend", group, "--all", "--dry-run")["sentBefore"] == 1,
        "the broker has indexed what was sent again",
    )
    again = run.document("dlq", "resend", group, "--all", "--yes")
    check(len(other.received()) == 1, "another group got the dead letter as well")
    return {
        "shown": rows(shown, "topic", "tag", "keys", "body"),
        "sent": [sent["sent"], sent["sentBefore"], sent["refused"]],
        "again": [again["sent"], again["sentBefore"], again["refused"]],
        "delivered": [[each["body"], each["topic"]] for each in got],
    }
