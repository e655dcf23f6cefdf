"""The command line against both brokers: what it reads, and a topic from beginning to end."""

from tests.interop.command_lines import CommandLine
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene


@scenario(clients=PYTHON, needs="admin")
def command_line_creates_changes_and_deletes_a_topic(scene: Scene) -> Outcome:
    run, topic = CommandLine(scene), scene.name("made")
    made = run.items("topic", "create", topic, "--queues", "3", "--type", "fifo")
    run.printed("topic", "create", topic, "--queues", "4", code=1)
    planned = run.items("topic", "update", topic, "--queues", "4", "--dry-run")
    changed = run.items("topic", "update", topic, "--queues", "4", "--attribute", "-message.type")
    for _ in range(2):
        scene.producer().send(topic, ["m"], how="send_to_queue", queue_id=3)
    lost = run.document("topic", "update", topic, "--read-queues", "2", "--dry-run")["lostQueues"]
    run.printed("topic", "update", topic, "--read-queues", "2", code=1)
    shown = run.document("topic", "show", topic, "--queues")
    (listed,) = run.items("topic", "list", "--long", "--match", topic)
    (route,) = run.items("topic", "route", topic)
    deleted = run.items("topic", "delete", topic, "--yes")
    run.printed("topic", "show", topic, code=1)
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
    run, topic, namespace = CommandLine(scene), scene.topic(queues=2), scene.name("SHOP")
    producer, consumer = scene.producer(), scene.push_consumer(topic)
    for queue_id in (0, 1):
        producer.send(topic, ["m"], how="send_to_queue", queue_id=queue_id)
    consumer.received(2)
    scene.wait_until_committed(topic, 2)
    group = scene.name("billing")
    (reader,) = run.document("topic", "show", topic)["groups"]
    (member,) = run.items("client", "list", "--group", group)
    (stats,) = run.items("topic", "stats", topic)
    (broker,) = run.items("cluster", "show")
    health = run.items("cluster", "health", "--max-disk", "100%")
    runtime = {row["key"] for row in run.items("broker", "show", "broker-a", "--long")}
    check({"putTps", "bootTimestamp"} <= runtime, f"runtime information: {runtime}")
    (setting,) = run.items("broker", "config", "get", "broker-a", "brokerName")
    run.printed("broker", "config", "set", "broker-a", "noSuchSetting=1", code=1)
    (server,) = run.items("nameserver", "list")
    check(bool(run.items("nameserver", "config", "get")), "no setting of the name server")
    run.items("nameserver", "kv", "set", namespace, "region", "eu")
    keys = run.items("nameserver", "kv", "list", namespace)
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
