"""The command line against both brokers: what it changes on servers and of groups, and what it
says of a group."""

import json
from pathlib import Path
from typing import Any

from tests.interop.command_lines import CommandLine, Row
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene


def columns(rows: list[Row], *keys: str) -> list[list[Any]]:
    """Some columns of a table."""
    return [[row[key] for key in keys] for row in rows]


@scenario(clients=PYTHON, needs="retry")
def command_line_changes_servers_and_groups(scene: Scene) -> Outcome:
    run = CommandLine(scene)
    servers, space = changed_servers(run), key_values(run, scene.name("SHOP"))
    return {**servers, **space, **sent_and_consumed(scene, run), **life_of_a_group(scene, run)}


def changed_servers(run: CommandLine) -> Outcome:
    """Settings there and back, a clean-up, and the list of brokers."""
    setting = ("broker", "config", "set", "broker-a")
    run.items(*setting, "fileReservedTime=50")
    planned = run.items(*setting, "fileReservedTime=51", "--dry-run")
    changed = run.items(*setting, "fileReservedTime=51")
    read = run.items("broker", "config", "get", "broker-a", "fileReservedTime")
    run.items(*setting, "fileReservedTime=72")
    waits = ("nameserver", "config", "set")
    run.items(*waits, "waitSecondsForService=44")
    server = run.items(*waits, "waitSecondsForService=45")
    parts = ("--log", "--queues", "--unused-topics", "--yes")
    listed = run.items("broker", "list")
    return {
        "planned": columns(planned, "field", "broker", "was", "now"),
        "changed": columns(changed, "field", "broker", "was", "now"),
        "read": columns(read, "key", "value"),
        "server": columns(server, "field", "was", "now"),
        "cleaned": columns(run.items("broker", "clean", "broker-a", *parts), "what"),
        "brokers": columns(listed, "cluster", "broker", "id", "role", "address"),
    }


def key_values(run: CommandLine, space: str) -> Outcome:
    """A key of the name server from beginning to end."""
    at = ("nameserver", "kv")
    made = run.items(*at, "set", space, "region", "eu")
    moved = run.items(*at, "set", space, "region", "us")
    got = run.items(*at, "get", space, "region")
    planned = run.items(*at, "delete", space, "region", "--dry-run")
    gone = run.items(*at, "delete", space, "region", "--yes")
    run.printed(*at, "get", space, "region", code=1)
    run.printed(*at, "delete", space, "region", "--yes", code=1)
    return {"keys": [made, moved, got, planned, gone]}


def sent_and_consumed(scene: Scene, run: CommandLine) -> Outcome:
    """`send` and `consume`."""
    topic = scene.topic("sent", queues=1)
    tagged = ("--tag", "A", "--key", "k-1", "--property", "colour=green")
    sent = run.lines("send", topic, "hello", *tagged)
    sent += run.lines("send", topic, "twice", "--tag", "B", "--count", "2")
    readers = ("--group", scene.name("readers"), "--count", "2")
    got = run.lines("consume", topic, *readers, "--filter", "B")
    every = run.lines("consume", topic, "--group", scene.name("others"), "--count", "1")
    seen = ("topic", "broker", "queue", "offset", "tag", "keys", "attempts", "body")
    check(every[0]["properties"]["colour"] == "green", f"properties: {every}")
    return {
        "sent": columns(sent, "status", "topic", "broker", "queue", "offset"),
        "consumed": columns(got + every, *seen),
    }


def life_of_a_group(scene: Scene, run: CommandLine) -> Outcome:
    """Made, changed, looked at, paused, resumed, and deleted with and without its progress."""
    topic, group = scene.topic(queues=1), scene.name("billing")
    made = run.items("group", "create", group, "--retries", "3")
    changed = run.items("group", "update", group, "--retries", "5", "--retry-queues", "2")
    consumer = scene.push_consumer(topic, tags="A", fails={"bad": 1}, retry_level=-1)
    scene.producer().send(topic, [{"body": body, "tags": "A"} for body in ("good", "bad")])
    consumer.received(2)
    scene.wait_until_committed(topic, 2)
    looked = looked_at(run, topic, group)
    paused = run.items("group", "pause", group)
    examined = ("doctor", "group", group, "--severity", "warning", "--for", "1s")
    why = {each["finding"]: each["evidence"] for each in run.items(*examined, code=1)}
    resumed = run.items("group", "resume", group)
    consumer.stop()
    return {
        "made": made,
        "changed": columns(changed, "field", "broker", "was", "now"),
        **looked,
        "paused": [paused, why["paused"], resumed],
        "dead": exported(scene, run, group),
        "deleted": deleted(scene, run, topic, group),
    }


def looked_at(run: CommandLine, topic: str, group: str) -> Outcome:
    """What the commands say of a live group."""
    (listed,) = run.items("group", "list", "--match", group)
    shown = run.document("group", "show", group)
    wants = run.document("group", "subscriptions", group)["subscriptions"]
    healthy = run.document("doctor", "topic", topic)
    return {
        "listed": columns([listed], "group", "model", "members", "topics", "lag"),
        "shown": [shown["state"], shown["model"], shown["lag"]],
        "settings": shown["settings"],
        "topics": columns(shown["topics"], "topic", "queues", "lag"),
        "members": columns(shown["members"], "language", "waitsFor"),
        "wants": columns(wants, "topic", "type", "expression", "difference"),
        "healthy": healthy["items"],
    }


def exported(scene: Scene, run: CommandLine, group: str) -> Outcome:
    """The dead letters of a group in a file."""
    file = Path(scene.folder) / "letters.jsonl"
    scene.wait_until(
        lambda: run.document("dlq", "show", group)["items"] != [], "the dead letter is found"
    )
    (told,) = run.items("dlq", "export", group, "--out", str(file))
    (letter,) = [json.loads(line) for line in file.read_text().splitlines()]
    return {"told": told["dead"], "keys": sorted(letter), "body": letter["body"]}


def deleted(scene: Scene, run: CommandLine, topic: str, group: str) -> Outcome:
    """Progress that stays, and progress that goes."""
    kept = run.items("group", "delete", group, "--keep-offsets", "--yes")
    stayed = scene.committed(topic, "billing")
    run.items("group", "create", group)
    lag = run.items("group", "lag", group, "--topic", topic)
    gone = run.items("group", "delete", group, "--yes")
    run.printed("group", "show", group, code=1)
    return {
        "kept": [kept, stayed, columns(lag, "queue", "committed", "end", "lag")],
        "gone": [gone, scene.committed(topic, "billing")],
    }
