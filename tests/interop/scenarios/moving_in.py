"""`sparrowmq migrate` from Apache's cluster to ours, and how commands show Java members."""

import json
import subprocess
import sys
from typing import Any

from sparrowmq.blocking import Admin
from tests.interop import apache, sparrow
from tests.interop.cluster import Settings
from tests.interop.registry import JAVA, Outcome, check, scenario
from tests.interop.scene import Scene

COUNT = 40
QUEUES = 4


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def topics_groups_and_progress_move_from_apaches_cluster_to_ours(scene: Scene) -> Outcome:
    old = scene.on(apache.start(scene.folder / "old", Settings()))
    new = scene.on(sparrow.start(scene.folder / "new", Settings()))
    topic, group = old.topic(queues=QUEUES), old.name("billing")
    producer = old.producer()
    producer.send(topic, [{"body": f"old-{number}"} for number in range(COUNT)])
    reader = old.push_consumer(topic, persist_ms=500)
    old.wait_until_committed(topic, COUNT)
    reader.stop()
    places = (old.cluster.name_server, new.cluster.name_server)
    planned = migrate("plan", *places)
    check(planned["topic", topic] == "to do", f"the plan says {planned}")
    done = migrate("run", *places)
    check(done["topic", topic] == "done", f"the run says {done}")
    check(done["group", group] == "done", f"the run says {done}")
    check(done["progress", f"{group}@{topic}"] == "done", f"the run says {done}")
    again = migrate("run", *places)
    check(again["progress", f"{group}@{topic}"] == "there already", f"again it says {again}")
    with Admin(new.cluster.name_server) as admin:
        settings = admin.topic(topic).settings[0]
        lag = admin.lag(group).lag
    check(lag == 0, f"{lag} messages wait in a new cluster")
    sent = [f"new-{number}" for number in range(COUNT)]
    new.producer().send(topic, [{"body": body} for body in sent])
    got = new.push_consumer(topic).bodies(COUNT)
    check(sorted(got) == sorted(sent), "the group does not get exactly what is new")
    return {"queues": settings.read_queues, "messages": len(got)}


@scenario(clients=("java5",), needs="exchange", lane="apart", compared=False)
def the_stopped_store_of_apache_is_a_source_as_well(scene: Scene) -> Outcome:
    old = scene.on(apache.start(scene.folder / "old", Settings()))
    topic, group = old.topic(queues=QUEUES), old.name("billing")
    old.producer().send(topic, [{"body": f"old-{number}"} for number in range(COUNT)])
    reader = old.push_consumer(topic, persist_ms=500)
    old.wait_until_committed(topic, COUNT)
    reader.stop()
    old.cluster.stop_broker()
    new = scene.on(sparrow.start(scene.folder / "new", Settings()))
    done = migrate("run", str(old.cluster.store), new.cluster.name_server)
    check(done["topic", topic] == "done", f"the run says {done}")
    check(done["progress", f"{group}@{topic}"] == "done", f"the run says {done}")
    return {"moved": True}


@scenario(clients=(*JAVA, "go"), lane="shared", compared=False)
def owners_of_java_and_go_members_are_read_and_the_reason_is_inferred(scene: Scene) -> Outcome:
    topic = scene.topic(queues=QUEUES)
    scene.push_consumer(topic)
    group = scene.name("billing")

    def owned() -> list[dict[str, Any]]:
        ran = _sparrowmq(
            "rebalance", "explain", group, "--topic", topic, "-n", scene.cluster.name_server
        )
        found: list[dict[str, Any]] = json.loads(ran.stdout)["items"] if ran.stdout else []
        return found

    scene.wait_until(
        lambda: [each["owner"] != "" for each in owned()] == [True] * QUEUES, "all queues are held"
    )
    found = owned()
    check(all(each["why"].endswith(" ?") for each in found), f"the reason is not marked: {found}")
    check(all(each["why"].startswith("AVG: ") for each in found), f"another reason: {found}")
    return {"queues": len(found), "since": [each["since"] for each in found]}


def migrate(verb: str, source: str, target: str) -> dict[tuple[str, str], str]:
    """State by kind and name. Apache's own topics and groups may not move."""
    ran = _sparrowmq("migrate", verb, source, target)
    check(ran.returncode in (0, 3), f"migrate {verb} failed: {ran.stdout}{ran.stderr}")
    items = json.loads(ran.stdout)["items"]
    return {(each["what"], each["name"]): each["state"] for each in items}


def _sparrowmq(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparrowmq", *arguments, "--json", "--timeout", "30s"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
