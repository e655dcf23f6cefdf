"""The command line against a broker of release 4.9, which lacks requests of 5.x: its fall-backs."""

import re
from pathlib import Path

from tests.interop import apache, sparrow
from tests.interop.cluster import Cluster, Server, Settings
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scenarios.group_commands import command, rows
from tests.interop.scenarios.moving_in import migrate
from tests.interop.scene import Scene


def broker_4_9(cluster: Cluster) -> Server:
    """Apache's broker of release 4.9 on the cluster's port and store directory."""
    return apache.run_broker(cluster.folder, apache.write_conf(cluster), "broker4", "512m")


def cluster_4_9(folder: Path) -> Cluster:
    """That broker at a name server of ours, which starts in less time."""
    start = sparrow.start_name_server
    return Cluster(apache.NAME, folder, start, broker_4_9, Settings())


@scenario(clients=("java4",), needs="peers", lane="apart", compared=False)
def commands_look_at_and_change_a_cluster_of_4_9(scene: Scene) -> Outcome:
    own = scene.on(cluster_4_9(scene.folder / "old"))
    topic, group, copy = own.topic(queues=2), own.name("billing"), own.name("copy")
    command(own, "group", "create", group, "--retries", "0")
    member = own.push_consumer(topic, fails={"bad": 1}, max_reconsume_times=0, persist_ms=500)
    own.producer().send(topic, [{"body": body, "keys": f"k-{body}"} for body in ("good", "bad")])
    own.wait_until_committed(topic, 2)
    live = command(own, "group", "members", group)
    check(len(live["members"]) == 1, f"members of a live group: {live}")
    member.stop()
    own.wait_until(
        lambda: not command(own, "group", "members", group)["members"], "the member has left"
    )

    def letters() -> int:
        return sum(each["dead"] for each in command(own, "dlq", "list")["items"])

    own.wait_until(lambda: letters() == 1, "the dead letter is counted")
    where = ("--topic", topic)
    lag = command(own, "group", "lag", group, *where)["lag"]
    check(lag == 0, f"{lag} messages wait after they were read")
    moved = command(own, "group", "reset", group, *where, "--to", "earliest", "--yes")
    check(moved["repeated"] == 2, f"the reset says {moved}")
    behind = command(own, "group", "lag", group, *where)["lag"]
    check(behind == 2, f"{behind} messages wait after a reset")
    check(command(own, "group", "undo", group, "--yes")["skipped"] == 2, "it is undone")
    cloned = command(own, "group", "clone", group, copy, "--yes")
    check({topic for (topic,) in rows(cloned, "topic")} == {topic}, f"the clone says {cloned}")
    found = command(own, "message", "get", topic, "--key", "k-good")
    check(rows(found, "keys") == [[["k-good"]]], f"by key there is {found}")
    sent = command(own, "dlq", "resend", group, "--all", "--yes")
    check((sent["sent"], sent["refused"]) == (1, 0), f"the resend says {sent}")
    again = command(own, "dlq", "resend", group, "--all", "--yes")
    check(again["sent"] == 0, f"a second resend says {again}")
    planned = migrate("plan", own.cluster.name_server, scene.cluster.name_server)
    states = {re.sub(rf"-{own.suffix}\b", "", name): state for (_, name), state in planned.items()}
    check(states["orders"] == states["billing"] == states["billing@orders"] == "to do", f"{states}")
    return {"commands": True}
