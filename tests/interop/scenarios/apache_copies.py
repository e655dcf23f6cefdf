"""Apache's brokers and ours copy each other's log, under load and while either is killed."""

import json
from types import ModuleType

from sparrowmq.clock import system_clock
from tests.interop import apache, raw, sparrow
from tests.interop.cluster import Cluster, Settings
from tests.interop.copies import LOG_FILE_BYTES, MASTER, SLAVE, Copy
from tests.interop.handles import Message, Producer
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

CREATE_GROUP, SET_REQUEST_MODE = 200, 401
PER_SECOND = 100
EARLIER = 1_500
"""Messages that the master has before a slave comes: several files of its log."""
OUTAGE_S = 1.0
PENDING_MS, PENDING_LEVEL = 30_000, 4
"""A level and its delay: longer than one broker needs to take the place of another."""


@scenario(clients=("java5",), needs="peers", lane="apart", compared=False)
def a_slave_of_apaches_follows_our_master_through_kills_of_both(scene: Scene) -> Outcome:
    # Its tables come after a minute, which the move below waits for.
    return _follows_through_kills(scene, sparrow, "sparrow", "java5", reads_slave=False)


@scenario(clients=("java4",), needs="peers", lane="apart", compared=False)
def a_slave_of_apaches_4_9_follows_our_master_through_kills_of_both(scene: Scene) -> Outcome:
    return _follows_through_kills(scene, apache, "sparrow", "broker4")


@scenario(clients=("java5",), needs="peers", lane="apart", compared=False)
def our_slave_follows_a_master_of_apaches_through_kills_of_both(scene: Scene) -> Outcome:
    return _follows_through_kills(scene, apache, "java5", "sparrow")


@scenario(clients=("java5",), needs="peers", lane="apart", compared=False)
def clients_move_from_apaches_broker_to_ours_and_back(scene: Scene) -> Outcome:
    """Each broker follows the other until it takes its place, under load."""
    own, apaches, ours = _pair(scene, sparrow, "java5", "sparrow")
    topic, producer = own.topic(queues=4), own.producer(timeout_ms=3000, route_poll_ms=1000)
    ours.start(SLAVE)
    own.wait_until(apaches.feeds_a_slave, "our slave follows")
    group = own.push_consumer(topic, persist_ms=500, route_poll_ms=1000)
    producer.call("load_start", topic=topic, per_second=PER_SECOND)
    pending: set[str] = set()
    for old, new in ((apaches, ours), (ours, apaches)):
        _wait_for_tables(own, new, topic)
        pending |= _send_pending(producer, topic, f"at {old.maker}")
        old.stop()
        new.stop()
        new.start(MASTER)
        own.cluster.broker = new.address
        old.start(SLAVE)
        own.wait_until(new.feeds_a_slave, "the old master follows the new one")
        seen = len(group.bodies())
        own.wait_until(lambda: len(group.bodies()) > seen + PER_SECOND, "clients go on")  # noqa: B023
    load = producer.call("load_stop")
    acknowledged = set(load["acknowledged"]) | pending
    own.wait_until(lambda: acknowledged <= set(group.bodies()), "the group gets everything")
    bodies = group.bodies()
    twice = sorted(body for body in pending if bodies.count(body) > 1)
    check(not twice, f"delivered twice: {twice}")
    own.say(
        f"from Apache's broker to ours and back: {len(acknowledged)} acknowledged, 0 lost,"
        f" {load['failed']} failed sends, {len(bodies) - len(set(bodies))} delivered again"
    )
    return {"lost": 0}


def _send_pending(producer: Producer, topic: str, word: str) -> set[str]:
    """Messages that become due when the other broker is the master."""
    time = {"TIMER_DELIVER_MS": str(system_clock() + PENDING_MS)}
    messages: list[Message] = [
        {"body": f"timer {word}", "system_properties": time},
        {"body": f"level {word}", "delay_level": PENDING_LEVEL},
    ]
    producer.send(topic, messages)
    return {str(message["body"]) for message in messages}


def _follows_through_kills(
    scene: Scene, name_server: ModuleType, master: str, slave: str, *, reads_slave: bool = True
) -> Outcome:
    """Everything that was acknowledged is in the slave's files alone, with `reads_slave` the tables
    are there, too, and Java's clients read from it."""
    own, one, other = _pair(scene, name_server, master, slave)
    topic, producer = own.topic(queues=4), own.producer(timeout_ms=8000)
    earlier = _earlier(own, one, producer, topic)
    other.start(SLAVE)
    own.wait_until(one.feeds_a_slave, "the slave has what was stored before it came")
    group = own.push_consumer(topic, persist_ms=500)
    producer.call("load_start", topic=topic, per_second=PER_SECOND)
    own.pause(2.0)
    for killed, role in ((other, SLAVE), (one, MASTER)):
        killed.kill()
        own.pause(OUTAGE_S)
        killed.start(role)
        own.wait_until(one.feeds_a_slave, "the slave follows again")
        own.pause(1.0)
    load = producer.call("load_stop")
    acknowledged = set(load["acknowledged"])
    own.wait_until(lambda: acknowledged <= set(group.bodies()), "the group gets everything")
    sent = acknowledged | earlier
    own.wait_until(lambda: one.bodies(topic) == other.bodies(topic), "both have the same")
    if reads_slave:
        own.wait_until_committed(topic, len(one.bodies(topic)))
        _wait_for_tables(own, other, topic)
    one.kill()
    lost = sent - set(other.bodies(topic))
    check(not lost, f"{len(lost)} messages are lost, such as {sorted(lost)[:3]}")
    if reads_slave:
        fresh = own.push_consumer(topic, "fresh")
        own.wait_until(lambda: sent <= set(fresh.bodies()), "the slave's messages are read")
    own.say(
        f"{slave} as a slave of {master}: {len(acknowledged)} acknowledged,"
        f" {load['failed']} failed sends, 0 lost"
    )
    return {"lost": 0}


def _pair(
    scene: Scene, name_server: ModuleType, master: str, slave: str
) -> tuple[Scene, Copy, Copy]:
    """A name server, a master that runs, and a slave that does not yet."""
    target = name_server.NAME
    start = name_server.start_name_server
    own = scene.on(Cluster(target, scene.folder / "names", start, None, Settings()))
    copies = [
        Copy(maker, own.folder / f"{word}-{maker}", own.cluster.name_server)
        for word, maker in (("first", master), ("second", slave))
    ]
    for copy in copies:
        scene.closing(copy.close)
    copies[0].start(MASTER)
    own.cluster.broker = copies[0].address
    return own, copies[0], copies[1]


def _earlier(own: Scene, master: Copy, producer: Producer, topic: str) -> set[str]:
    """Messages over several log files. One-way: without a slave, sends would wait in vain."""
    bodies = [f"earlier {n} {'.' * 150}" for n in range(EARLIER)]
    producer.send_one_way(topic, bodies)
    own.wait_until(lambda: set(bodies) <= set(master.bodies(topic)), "the master stores everything")
    stored = len(bodies) * 150
    check(stored > LOG_FILE_BYTES / 2, f"{stored} bytes do not reach the second file")
    return set(bodies)


def _wait_for_tables(own: Scene, slave: Copy, topic: str) -> None:
    """Return when the slave has topics, groups and progress, as they are now or newer."""
    quiet = own.name(f"quiet-{slave.maker}")
    # A slave makes the group of a member by itself, so another one has to arrive.
    raw.call(own.cluster.broker, CREATE_GROUP, body=json.dumps({"groupName": quiet}).encode())
    mode = {"topic": topic, "consumerGroup": quiet, "mode": "PULL", "popShareQueueNum": 0}
    raw.call(own.cluster.broker, SET_REQUEST_MODE, body=json.dumps(mode).encode())
    consumed = sum(own.committed(topic, "billing").values())

    progress = f"{topic}@{own.name('billing')}"

    def has_tables() -> bool:
        offsets = slave.table("consumerOffset.json", "offsetTable").get(progress, {})
        return (
            topic in slave.table("topics.json", "topicConfigTable")
            and quiet in slave.table("subscriptionGroup.json", "subscriptionGroupTable")
            and sum(offsets.values()) >= consumed
            and (
                slave.maker == "broker4"  # 4.9 knows no modes
                or quiet
                in slave.table("messageRequestMode.json", "messageRequestModeMap").get(topic, {})
            )
        )

    own.wait_until(has_tables, "the tables arrive")
