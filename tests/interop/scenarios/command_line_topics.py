"""The command line against both brokers: what it reads, and a topic from beginning to end."""

import json
import subprocess
import sys
from typing import Any

from tests.interop.handles import PATIENCE_S
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene


def ran(scene: Scene, *words: str, code: int = 0) -> Any:
    """The JSON document that a command prints; None where it has to fail."""
    at = ("--name-servers", scene.cluster.name_server, "--timeout", f"{PATIENCE_S:g}s")
    command = [sys.executable, "-m", "sparrowmq", *words, "--json", *at]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S)
    said = f"{' '.join(words)} ended with {ended.returncode}: {ended.stderr}"
    check(ended.returncode == code, said)
    check("Traceback" not in ended.stderr, said)
    return json.loads(ended.stdout) if ended.stdout else None


def items(scene: Scene, *words: str) -> list[dict[str, Any]]:
    """The rows of a command that every server answered."""
    document = ran(scene, *words)
    check(document["errors"] == [], f"{words}: {document['errors']}")
    rows: list[dict[str, Any]] = document["items"]
    return rows


@scenario(clients=PYTHON, needs="admin")
def command_line_creates_changes_and_deletes_a_topic(scene: Scene) -> Outcome:
    topic = scene.name("made")
    made = items(scene, "topic", "create", topic, "--queues", "3", "--type", "fifo")
    ran(scene, "topic", "create", topic, "--queues", "4", code=1)
    planned = items(scene, "topic", "update", topic, "--queues", "4", "--dry-run")
    changed = items(
        scene, "topic", "update", topic, "--queues", "4", "--attribute", "-message.type"
    )
    for _ in range(2):
        scene.producer().send(topic, ["m"], how="send_to_queue", queue_id=3)
    lost = ran(scene, "topic", "update", topic, "--read-queues", "2", "--dry-run")["lostQueues"]
    ran(scene, "topic", "update", topic, "--read-queues", "2", code=1)
    shown = ran(scene, "topic", "show", topic, "--queues")
    (listed,) = items(scene, "topic", "list", "--long", "--match", topic)
    (route,) = items(scene, "topic", "route", topic)
    deleted = items(scene, "topic", "delete", topic, "--yes")
    ran(scene, "topic", "show", topic, code=1)
    return {
        "made": made,
        "planned": planned,
        "changed": changed,
        "lost": lost,
        "shown": [shown["messages"], shown["items"], len(shown["queues"]), shown["groups"]],
        "listed": [listed["queues"], listed["perm"], listed["type"], listed["messages"]],
        "route": [route["readQueues"], route["writeQueues"], route["perm"]],
        "deleted": deleted,
    }


@scenario(clients=PYTHON, needs="admin")
def command_line_looks_around(scene: Scene) -> Outcome:
    topic, namespace = scene.topic(queues=2), scene.name("SHOP")
    producer, consumer = scene.producer(), scene.push_consumer(topic)
    for queue_id in (0, 1):
        producer.send(topic, ["m"], how="send_to_queue", queue_id=queue_id)
    consumer.received(2)
    scene.wait_until_committed(topic, 2)
    group = scene.name("billing")
    (reader,) = ran(scene, "topic", "show", topic)["groups"]
    (member,) = items(scene, "client", "list", "--group", group)
    (stats,) = items(scene, "topic", "stats", topic)
    (broker,) = items(scene, "cluster", "show")
    health = items(scene, "cluster", "health", "--max-disk", "100%")
    runtime = {row["key"] for row in items(scene, "broker", "show", "broker-a", "--long")}
    check({"putTps", "bootTimestamp"} <= runtime, f"runtime information: {runtime}")
    (setting,) = items(scene, "broker", "config", "get", "broker-a", "brokerName")
    ran(scene, "broker", "config", "set", "broker-a", "noSuchSetting=1", code=1)
    (server,) = items(scene, "nameserver", "list")
    check(bool(items(scene, "nameserver", "config", "get")), "no setting of the name server")
    set_key(scene, namespace)
    keys = items(scene, "nameserver", "kv", "list", namespace)
    return {
        "reader": [reader["group"] == group, reader["lag"], reader["members"]],
        "member": [member["role"], member["language"], member["groups"] == [group]],
        "since": member["since"] is not None,
        "stats": [stats["messages"], stats["inPerS"] is not None],
        "broker": [broker["cluster"], broker["broker"], broker["role"], broker["busy"] or ""],
        "health": [[row["check"], row["state"]] for row in health],
        "setting": setting["value"],
        "server": [server["answers"], server["brokers"]],
        "keys": keys,
    }


def set_key(scene: Scene, namespace: str) -> None:
    """A command without a document."""
    command = ["nameserver", "kv", "set", namespace, "region", "eu"]
    at = ["--name-servers", scene.cluster.name_server]
    subprocess.run(
        [sys.executable, "-m", "sparrowmq", *command, *at], check=True, capture_output=True
    )
