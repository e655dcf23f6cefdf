"""Apache's brokers and ours copy each other's log, under load and while either is killed."""

import json
import subprocess
import sys
from types import ModuleType

from sparrowmq.clock import system_clock
from tests.interop import apache, raw, sparrow
from tests.interop.cluster import BROKER_NAME, Cluster, Settings, accepts
from tests.interop.copies import LOG_FILE_BYTES, MASTER, SLAVE, Copy
from tests.interop.handles import Message, Producer
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scenarios.wire import (
    CONSUMER_LIST,
    HEARTBEAT,
    MAX,
    MIN,
    PULL,
    QUERY_OFFSET,
    SEARCH,
    UPDATE_OFFSET,
    heartbeat,
    send,
)
from tests.interop.scene import Scene

CREATE_GROUP, SET_REQUEST_MODE = 200, 401
SEND_BACK, END_TRANSACTION, LOCK, UNLOCK, LITE_PULL = 36, 37, 41, 42, 361
PER_SECOND = 100
EARLIER = 1_500
"""Messages that the master has before a slave comes: several files of its log."""
OUTAGE_S = 1.0
TABLES_S = 6.0
"""Our slave asks Apache's master for its tables every 5 s."""
NOTICED_S = 6.0
"""A slave has noticed that its master is gone."""
PENDING_MS, PENDING_LEVEL = 30_000, 4
"""A level and its delay: longer than one broker needs to take the place of another."""


@scenario(clients=("java5",), needs="peers", lane="apart", compared=False)
def a_slave_of_apaches_follows_our_master_through_kills_of_both(scene: Scene) -> Outcome:
    # Its tables come once a minute, unlike those of 4.9.
    return _follows_through_kills(scene, sparrow, "sparrow", "java5")


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


@scenario(clients=("java5",), needs="peers", lane="apart", compared=False)
def our_slave_is_promoted_by_command_when_apaches_master_has_stopped(scene: Scene) -> Outcome:
    """It takes over in its process, with the broker.conf of a slave. Then a slave of ours takes the
    place of Apache's broker, and has everything in its own files."""
    own, apaches, ours = _pair(scene, sparrow, "java5", "sparrow")
    topic, producer = own.topic(queues=4), own.producer(timeout_ms=3000, route_poll_ms=1000)
    ours.start(SLAVE)
    own.wait_until(apaches.feeds_a_slave, "our slave follows")
    group = own.push_consumer(topic, persist_ms=500, route_poll_ms=1000)
    producer.call("load_start", topic=topic, per_second=PER_SECOND)
    _wait_for_tables(own, ours, topic)
    pending = _send_pending(producer, topic, "at Apache's")
    own.pause(TABLES_S)
    check(not promote(own, "--dry-run"), "it takes over although its master serves")
    apaches.stop()
    own.wait_until(lambda: promote(own, "--dry-run"), "our slave has noticed")
    check(promote(own, "--yes"), "our slave does not take over")
    own.cluster.broker = ours.address
    next_slave = Copy("sparrow", own.folder / "next-sparrow", own.cluster.name_server)
    scene.closing(next_slave.close)
    next_slave.start(SLAVE)
    own.wait_until(ours.feeds_a_slave, "a slave of ours follows the new master")
    seen = len(group.bodies())
    own.wait_until(lambda: len(group.bodies()) > seen + PER_SECOND, "clients go on")
    load = producer.call("load_stop")
    acknowledged = set(load["acknowledged"]) | pending
    own.wait_until(lambda: acknowledged <= set(group.bodies()), "the group gets everything")
    bodies = group.bodies()
    twice = sorted(body for body in pending if bodies.count(body) > 1)
    check(not twice, f"delivered twice: {twice}")
    own.wait_until(lambda: ours.bodies(topic) == next_slave.bodies(topic), "both have the same")
    ours.kill()
    lost = acknowledged - set(next_slave.bodies(topic))
    check(not lost, f"{len(lost)} messages are lost, such as {sorted(lost)[:3]}")
    own.say(
        f"promoted by command: {len(acknowledged)} acknowledged, 0 lost,"
        f" {load['failed']} failed sends, {len(bodies) - len(set(bodies))} delivered again"
    )
    return {"lost": 0}


def promote(own: Scene, flag: str) -> bool:
    """`sparrowmq broker promote --accept-loss`; whether it succeeded."""
    at = ("--accept-loss", BROKER_NAME, "--name-servers", own.cluster.name_server)
    command = [sys.executable, "-m", "sparrowmq", "broker", "promote", BROKER_NAME, *at, flag]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@scenario(clients=("raw",), needs="peers", lane="apart", compared=False)
def slaves_of_both_makes_answer_clients_with_the_same_codes(scene: Scene) -> Outcome:
    """Each follows a master of its own make, which is away in the second round."""
    answered: dict[str, dict[str, list[int]]] = {}
    for maker, name_server in (("java5", apache), ("sparrow", sparrow)):
        own, master, slave = _pair(scene, name_server, maker, maker, maker)
        topic, group = own.topic(queues=1), own.name("members")
        slave.start(SLAVE)
        own.wait_until(master.feeds_a_slave, "the slave follows")
        for number in range(3):
            send(own, topic, body=f"m-{number}".encode(), queue_id=0)
        master.ask_with(HEARTBEAT, heartbeat(group, topic))
        commit = {"consumerGroup": group, "topic": topic, "queueId": "0", "commitOffset": "2"}
        master.ask(UPDATE_OFFSET, commit)
        own.wait_until(lambda: slave.ask(MAX, commit).fields.get("offset") == "3", "it has all")  # noqa: B023
        _wait_for_tables(own, slave, topic)
        rounds = [_codes(slave, topic, group)]
        master.kill()
        own.wait_until(lambda: not accepts(master.address), "the master is away")  # noqa: B023
        own.pause(NOTICED_S)
        rounds.append(_codes(slave, topic, group))
        answered[maker] = {name: [each[name] for each in rounds] for name in rounds[0]}
    ours, theirs = answered["sparrow"], answered["java5"]
    differing = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    # Locks are the master's as long as it is there: docs/compatibility.md.
    check(differing == {"lock": ([1, 0], [0, 0])}, f"ours and Apache's codes: {differing}")
    return {"requests": len(ours)}


def _codes(slave: Copy, topic: str, group: str) -> dict[str, int]:
    """What a slave answers to the requests of clients."""
    where = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    pull = where | {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0"}
    pull |= {"suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "1"}
    queue = {"topic": topic, "brokerName": BROKER_NAME, "queueId": 0}
    locks = {"consumerGroup": group, "clientId": "10.0.0.1@raw", "mqSet": [queue]}
    lock = json.dumps(locks).encode()
    back = {"offset": "0", "group": group, "delayLevel": "0", "originTopic": topic}
    end = {"producerGroup": group, "tranStateTableOffset": "0", "commitLogOffset": "0"}
    end |= {"commitOrRollback": "8", "fromTransactionCheck": "false", "msgId": "", "topic": topic}
    beat = slave.ask_with(HEARTBEAT, heartbeat(group, topic))
    asked = {
        "pull": slave.ask(PULL, pull),
        "lite pull": slave.ask(LITE_PULL, pull),
        "progress": slave.ask(QUERY_OFFSET, where),
        "commit": slave.ask(UPDATE_OFFSET, where | {"commitOffset": "3"}),
        "search": slave.ask(SEARCH, where | {"timestamp": "0"}),
        "max": slave.ask(MAX, where),
        "min": slave.ask(MIN, where),
        "heartbeat": beat,
        "members": slave.ask(CONSUMER_LIST, {"consumerGroup": group}),
        "send back": slave.ask(SEND_BACK, back),
        "end transaction": slave.ask(END_TRANSACTION, end),
        "lock": slave.ask_with(LOCK, lock),
        "unlock": slave.ask_with(UNLOCK, lock),
    }
    return {name: reply.code for name, reply in asked.items()}


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
    scene: Scene, name_server: ModuleType, master: str, slave: str, folder: str = ""
) -> tuple[Scene, Copy, Copy]:
    """A name server, a master that runs, and a slave that does not yet."""
    target = name_server.NAME
    start = name_server.start_name_server
    root = scene.folder / folder
    own = scene.on(Cluster(target, root / "names", start, None, Settings()))
    copies = [
        Copy(maker, root / f"{word}-{maker}", own.cluster.name_server)
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
