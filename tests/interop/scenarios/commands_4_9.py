"""The command line against a broker of release 4.9, which lacks requests of 5.x: its fall-backs."""

import json
import re
from operator import itemgetter
from pathlib import Path
from typing import Any

from tests.interop import apache, sparrow
from tests.interop.cluster import Cluster, Server, Settings
from tests.interop.handles import Producer
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scenarios.group_commands import command, output, rows, started
from tests.interop.scenarios.moving_in import migrate
from tests.interop.scene import Scene


def broker_4_9(cluster: Cluster) -> Server:
    """Apache's broker of release 4.9 on the cluster's port and store directory."""
    return apache.run_broker(cluster.folder, apache.write_conf(cluster), "broker4", "512m")


def cluster_4_9(folder: Path) -> Cluster:
    """That broker at a name server of ours, which starts in less time. It makes no groups, so that
    reading messages must not need one."""
    start = sparrow.start_name_server
    settings = Settings(properties=(("autoCreateSubscriptionGroup", "false"),))
    return Cluster(apache.NAME, folder, start, broker_4_9, settings)


@scenario(clients=("java4",), needs="peers", lane="apart", compared=False)
def commands_look_at_and_change_a_cluster_of_4_9(scene: Scene) -> Outcome:
    own = scene.on(cluster_4_9(scene.folder / "old"))
    topic, group, copy = own.topic(queues=2), own.name("billing"), own.name("copy")
    command(own, "group", "create", group, "--retries", "0")
    member = own.push_consumer(topic, fails={"bad": 1}, max_reconsume_times=0, persist_ms=500)
    bodies = ("good", "bad")
    producer = own.producer()
    producer.send(topic, [{"body": one, "keys": f"k-{one}", "tags": one} for one in bodies])
    own.wait_until_committed(topic, 2)
    live = command(own, "group", "members", group)
    check(len(live["members"]) == 1, f"members of a live group: {live}")
    where = ("--topic", topic)
    found = command(own, "message", "get", topic, "--key", "k-good")
    check(rows(found, "keys") == [[["k-good"]]], f"by key there is {found}")
    once_more = ("--group", group, *where, "--yes")
    good = found["items"][0]["id"]
    done = command(own, "message", "deliver", good, *once_more)
    check(rows(done, "group", "result") == [[group, "consumed"]], f"the delivery says {done}")
    handled = sorted(member.bodies(3))
    check(handled == ["bad", "good", "good"], f"the member handled {handled}")
    member.stop()
    own.wait_until(
        lambda: not command(own, "group", "members", group)["members"], "the member has left"
    )

    def letters() -> int:
        return sum(each["dead"] for each in command(own, "dlq", "list")["items"])

    own.wait_until(lambda: letters() == 1, "the dead letter is counted")
    lag = command(own, "group", "lag", group, *where)["lag"]
    check(lag == 0, f"{lag} messages wait after they were read")
    moved = command(own, "group", "reset", group, *where, "--to", "earliest", "--yes")
    check(moved["repeated"] == 2, f"the reset says {moved}")
    behind = command(own, "group", "lag", group, *where)["lag"]
    check(behind == 2, f"{behind} messages wait after a reset")
    check(command(own, "group", "undo", group, "--yes")["skipped"] == 2, "it is undone")
    cloned = command(own, "group", "clone", group, copy, "--yes")
    check({topic for (topic,) in rows(cloned, "topic")} == {topic}, f"the clone says {cloned}")
    traced = command(own, "message", "trace", good, *where)
    states = {each["group"]: each["state"] for each in traced["groups"]}
    check(states == {group: "consumed", copy: "consumed"}, f"the trace says {traced}")
    _follow(own, topic)
    _follow_from_now(own, producer)
    sent = command(own, "dlq", "resend", group, "--all", "--yes")
    check((sent["sent"], sent["refused"]) == (1, 0), f"the resend says {sent}")
    again = command(own, "dlq", "resend", group, "--all", "--yes")
    check(again["sent"] == 0, f"a second resend says {again}")
    planned = migrate("plan", own.cluster.name_server, scene.cluster.name_server)
    moves = {re.sub(rf"-{own.suffix}\b", "", name): state for (_, name), state in planned.items()}
    check(moves["orders"] == moves["billing"] == moves["billing@orders"] == "to do", f"{moves}")
    return {"commands": True}


def _follow(scene: Scene, topic: str) -> None:
    """The topic has `good` and `bad`, tagged as they are called."""

    def tail(*arguments: str) -> list[dict[str, Any]]:
        ran = output(scene, "message", "tail", topic, "--since", "-1h", *arguments)
        return [json.loads(line) for line in ran.splitlines()]

    found = sorted(tail("--count", "2"), key=itemgetter("body"))
    check([each["body"] for each in found] == ["bad", "good"], f"the tail says {found}")
    good = found[1]
    only = ("--queue", f"{good['broker']}/{good['queue']}", "--filter", "good", "--count", "1")
    again = tail(*only)
    check(again == [good], f"the tail of a tag in a queue says {again}")


def _follow_from_now(scene: Scene, producer: Producer) -> None:
    topic = scene.topic("late", queues=1)
    with started(scene, "message", "tail", topic, "--count", "1") as process:
        try:
            # What is stored before the command has asked where the queue ends is not shown
            scene.wait_until(
                lambda: bool(producer.send(topic, ["now"])) and process.poll() is not None,
                "the tail has shown a message",
            )
        finally:
            process.kill()
        printed, errors = process.communicate()
    check(process.returncode == 0, f"the tail ends with {process.returncode}: {errors}")
    check([json.loads(line)["body"] for line in printed.splitlines()] == ["now"], printed)
