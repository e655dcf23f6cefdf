"""What the doctor finds on a cluster of two brokers of either make, without long waits."""

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from sparrowmq import Examination
from sparrowmq.blocking import Admin
from sparrowmq.testing.held_port import HeldPort
from tests.interop import apache, raw, sparrow
from tests.interop.cluster import BROKER_PORTS, Server, Settings, accepts
from tests.interop.handles import PATIENCE_S, Producer, PushConsumer
from tests.interop.peers import start_peer
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scenarios.doctor import not_made, one
from tests.interop.scenarios.python_admin import admin_of
from tests.interop.scenarios.wire import UPDATE_OFFSET
from tests.interop.scene import Scene

FOREVER = 1_000_000
LOOK_S = 0.5
SILENT_S = 2.0
CREATE_TOPIC, WIPE, GIVE_BACK = 17, 205, 327
IGNORED = Settings(properties=(("inSyncReplicas", "2"),))
"""A setting without effect on a broker that waits for no slave."""
APACHE_CANNOT_TELL = {"broker-busy", "slave-behind"}
"""Of a cluster."""


@dataclass(frozen=True)
class Second:
    """The broker broker-b."""

    address: str
    pid: int


@dataclass(frozen=True)
class World:
    """A cluster with a second broker, and who asks about it."""

    scene: Scene
    admin: Admin
    second: Second
    producer: Producer

    @property
    def is_apache(self) -> bool:
        """Whether the servers are Apache's."""
        return self.scene.cluster.target == apache.NAME


@scenario(clients=PYTHON, needs="transactions", lane="apart", compared=False, lasts_s=40)
def the_doctor_finds_what_apache_tells(scene: Scene) -> Outcome:
    own = scene.own_cluster(IGNORED)
    world = World(own, admin_of(own), with_second_broker(own), own.producer())
    found: set[str] = set()
    for examine in (topics, positions, filters, dead_letters, transactions, others, servers):
        found |= examine(world)
    unsaid = found - documented()
    check(not unsaid, f"docs/doctor.md does not say that these are found: {unsaid}")
    return {"found": sorted(found)}


def documented() -> set[str]:
    """What the page says is found on Apache's brokers."""
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
    section = page.partition("## Against Apache's brokers")[2].partition("\n## ")[0]
    return set(re.findall(r"`([a-z-]+)`", section))


def with_second_broker(scene: Scene) -> Second:
    """Start broker-b of the same make; returns when the name server has it."""
    cluster, folder = scene.cluster, scene.folder / "second"
    folder.mkdir(parents=True)
    held = HeldPort(beside=BROKER_PORTS)
    conf = folder / "broker.conf"
    conf.write_text(
        apache.broker_conf(
            cluster.name_server, held.port, folder / "store", {"brokerName": "broker-b"}
        )
    )
    server: Server
    if cluster.target == apache.NAME:
        server = apache.run_broker(folder, conf, heap="512m")
    else:
        server = sparrow.run_broker(folder, conf)

    def close() -> None:
        server.stop(timeout_s=1.0)
        held.close()

    scene.closing(close)
    scene.wait_until(
        lambda: (
            accepts(held.address)
            and held.address.encode() in raw.call(cluster.name_server, 106).body
        ),
        "the second broker is registered",
    )
    return Second(held.address, server.pid)


def found_in(examined: Examination, *names: str) -> set[str]:
    """These findings, which have to be there."""
    return {one(examined, name).id for name in names}


def settles(world: World, about: str, name: str, *wanted: str) -> set[str]:
    """These findings, as soon as members have joined and brokers have counted."""

    def examined() -> set[str]:
        return {each.id for each in world.admin.doctor(about, name, for_s=LOOK_S).findings}

    world.scene.wait_until(lambda: examined() >= set(wanted), f"{wanted} of {about} {name}")
    return set(wanted)


def topics(world: World) -> set[str]:
    """Permissions, numbers of queues, and a topic that a message created."""
    scene, admin = world.scene, world.admin
    read_only, write_only = scene.topic("ro", queues=1), scene.topic("wo", queues=1)
    admin.update_topic(read_only, perm=4)
    admin.update_topic(write_only, perm=2)
    scene.wait_until(
        lambda: _has(admin.doctor("topic", write_only), "not-readable"), "w is in the route"
    )
    found = found_in(admin.doctor("topic", write_only), "not-readable")
    scene.wait_until(
        lambda: _has(admin.doctor("topic", read_only), "not-writable"), "r is in the route"
    )
    found |= found_in(admin.doctor("topic", read_only), "not-writable")
    uneven = scene.topic("uneven", queues=2)
    raw.call(world.second.address, CREATE_TOPIC, _topic_fields(uneven, 4))
    found |= settles(world, "topic", uneven, "queues-differ-by-broker")
    made = scene.name("made")
    world.producer.send(made, ["first"])
    return found | settles(world, "topic", made, "auto-created", "nobody-consumes")


def positions(world: World) -> set[str]:
    """Groups that stand where there is nothing, or nowhere."""
    scene, admin = world.scene, world.admin
    topic, gone, fresh = scene.topic(queues=2), scene.name("gone"), scene.name("fresh")
    many = [f"m-{number}" for number in range(120)]
    world.producer.send(topic, many, how="send_to_queue", queue_id=0)
    admin.create_group(gone)
    _commit(scene, gone, topic, 5)
    found = settles(world, "group", gone, "no-members")
    _commit(scene, gone, topic, 1000)
    found |= found_in(admin.doctor("group", gone, for_s=LOOK_S), "offset-out-of-range")
    found |= settles(world, "topic", topic, "queues-uneven")
    reader = scene.lite_consumer("fresh", topic=topic)
    reader.poll(1)
    return found | settles(world, "group", fresh, "never-committed", "lag-one-queue")


def filters(world: World) -> set[str]:
    """Filters that pass nothing, and members that disagree."""
    scene, admin = world.scene, world.admin
    topic = scene.topic("tagged", queues=1)
    sent = world.producer.send(topic, [{"body": f"m-{n}", "tags": "std"} for n in range(12)])
    scene.push_consumer(topic, "choosy", tags="vip")
    found = settles(world, "group", scene.name("choosy"), "filter-matches-nothing")
    other = start_peer("python", scene.folder / "other")  # in one process our client refuses it
    scene.closing(other.close)
    disagrees = {"group": scene.name("choosy"), "topic": topic, "tags": "std"}
    PushConsumer(other, "disagrees", scene.cluster.name_server, **disagrees)
    found |= settles(world, "group", scene.name("choosy"), "unequal-subscriptions")
    scene.push_consumer(topic, "vips", tags="vip")
    found |= settles_message(world, sent[0]["unique_id"], topic, "filtered-for-group")
    late = scene.name("late")
    admin.create_group(late)
    _commit(scene, late, topic, 3)
    found |= settles_message(world, sent[9]["unique_id"], topic, "waiting-behind")
    scene.push_consumer(topic, "everyone", model="BROADCASTING")
    return found | settles(world, "group", scene.name("everyone"), "broadcasting-has-no-lag")


def dead_letters(world: World) -> set[str]:
    """Messages that are being retried, and one that is dead."""
    scene = world.scene
    topic = scene.topic("poison", queues=1)
    (sent,) = world.producer.send(topic, ["bad"])
    scene.push_consumer(topic, "hopeless", fails={"bad": FOREVER}, retry_level=-1).received(1)
    found = settles_message(world, sent["unique_id"], topic, "dead")
    again = scene.topic("again", queues=1)
    world.producer.send(again, ["bad"])
    scene.push_consumer(again, "hopeful", fails={"bad": FOREVER}, retry_level=1).received(1)
    found |= settles(world, "group", scene.name("hopeful"), "retries-growing", "handler-fails")
    return found | settles(world, "group", scene.name("hopeless"), "dead-letters-growing")


def transactions(world: World) -> set[str]:
    """Half messages that are open, and rolled back."""
    scene = world.scene
    topic = scene.topic("paid", queues=1)
    states = {"half-open": "UNKNOW", "rolled-back": "ROLLBACK_MESSAGE"}
    producer, found = scene.transaction_producer(), set()
    for name, state in states.items():
        properties = {"execute": state, "check": "UNKNOW"}
        (sent,) = producer.send(topic, [{"body": name, "properties": properties}])
        found |= settles_message(world, sent["unique_id"], topic, name)
    return found


def others(world: World) -> set[str]:
    """Name servers that are silent, or know nothing; brokers that are hidden."""
    scene, server = world.scene, world.scene.cluster.name_server
    ignores = _has(world.admin.doctor("cluster"), "protective-setting-ignored")
    check(ignores is world.is_apache, "ours reads it, and waits for no slave, as its role says")
    found = {"protective-setting-ignored"} if ignores else set()
    with HeldPort() as held:
        empty = sparrow.start_name_server(scene.folder / "empty", held.address)
        scene.closing(empty.stop)
        scene.wait_until(lambda: accepts(held.address), "another name server listens")
        with Admin([server, held.address], timeout_s=PATIENCE_S) as admin:
            found |= found_in(admin.doctor("cluster"), "nameservers-differ")
        empty.stop()
        with Admin([server, held.address], timeout_s=PATIENCE_S) as admin:
            found |= found_in(admin.doctor("cluster"), "nameserver-silent")
    raw.call(server, WIPE, {"brokerName": "broker-b"})
    examined = world.admin.doctor("cluster")
    raw.call(server, GIVE_BACK, {"brokerName": "broker-b"})
    return found | found_in(examined, "permission-wiped")


def servers(world: World) -> set[str]:
    """What brokers cannot tell is listed as not made; one of them hangs."""
    skipped = not_made(world.admin.doctor("cluster"))
    check((skipped >= APACHE_CANNOT_TELL) is world.is_apache, f"not made: {skipped}")
    members = not_made(world.admin.doctor("group", world.scene.name("choosy"), for_s=LOOK_S))
    check(("doubled-client-id" in members) is world.is_apache, f"not made: {members}")
    os.kill(world.second.pid, signal.SIGSTOP)
    try:
        with Admin(world.scene.cluster.name_server, timeout_s=SILENT_S) as admin:
            return found_in(admin.doctor("cluster"), "broker-silent")
    finally:
        os.kill(world.second.pid, signal.SIGCONT)


def settles_message(world: World, message_id: str, topic: str, wanted: str) -> set[str]:
    """This finding about a message, as soon as it is indexed and groups have moved."""
    world.scene.wait_until(
        lambda: _has(world.admin.doctor("message", message_id, topic=topic), wanted),
        f"{wanted} of {message_id} in {topic}",
    )
    return {wanted}


def _has(examined: Examination, name: str) -> bool:
    return any(each.id == name for each in examined.findings)


def _commit(scene: Scene, group: str, topic: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    raw.call(scene.cluster.broker, UPDATE_OFFSET, fields | {"commitOffset": str(offset)})


def _topic_fields(topic: str, queues: int) -> dict[str, str]:
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "order": "false"}
    fields |= {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    return fields | {"topicFilterType": "SINGLE_TAG", "topicSysFlag": "0"}
