"""A broker is drained, restarted and taken back under load of Java, Go and Python clients."""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from sparrowmq.blocking import Admin
from sparrowmq.testing.held_port import HeldPort
from tests.interop import apache, sparrow
from tests.interop.cluster import BROKER_NAME, BROKER_PORTS, Settings, accepts
from tests.interop.handles import Producer, PushConsumer
from tests.interop.peers import PeerError, start_peer
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

KINDS = ("java5", "java4", "go", "python")
PER_SECOND = 50
KEYS = 6
PAUSE_S = 0.2
"""Between two rounds of messages with keys: drivers keep all that they received."""
QUEUES = 4
OTHER = "broker-b"


class Members:
    """Of every kind a producer under load with a topic of its own, a sender of keys, and an ordered
    reader of all keys. Each topic under load is read by a group of two members: one of the
    producer's kind, and one of the next kind."""

    def __init__(self, own: Scene, ordered: str) -> None:
        self._ordered = ordered
        self.sent: list[tuple[str, str, str]] = []
        """Key, body and queue of what was sent with a key, in this order."""
        self.failed: list[str] = []
        peers = {"java5": own.peer}
        for kind in KINDS[1:]:
            peers[kind] = start_peer(kind, Path(own.folder) / kind)
            own.closing(peers[kind].close)
        at, options = own.cluster.name_server, {"timeout_ms": 5000}
        self.loads = {
            kind: Producer(
                peer, f"load-{own.suffix}", at, group=own.name(f"load-{kind}"), **options
            )
            for kind, peer in peers.items()
        }
        self.keyed = {
            kind: Producer(
                peer, f"keys-{own.suffix}", at, group=own.name(f"keys-{kind}"), **options
            )
            for kind, peer in peers.items()
        }
        self.consumers = {
            kind: [
                PushConsumer(
                    peers[member],
                    f"{kind}-{member}-{own.suffix}",
                    at,
                    group=own.name(f"mixed-{kind}"),
                    topic=own.name(kind),
                    from_where="CONSUME_FROM_FIRST_OFFSET",
                )
                for member in (kind, following)
            ]
            for kind, following in zip(KINDS, (*KINDS[1:], KINDS[0]), strict=True)
        }
        self.readers = {
            kind: PushConsumer(
                peer,
                f"reader-{own.suffix}",
                at,
                group=own.name(f"keys-{kind}"),
                topic=ordered,
                from_where="CONSUME_FROM_FIRST_OFFSET",
                orderly=True,
            )
            for kind, peer in peers.items()
        }
        for handle in (*self.loads.values(), *self.keyed.values(), *self.readers.values()):
            own.closing(handle.stop)
        for each in (each for members in self.consumers.values() for each in members):
            own.closing(each.stop)

    def send_keys(self) -> None:
        """One message of every key and kind, each awaited before the next."""
        for kind, producer in self.keyed.items():
            for number in range(KEYS):
                key = f"{kind}-{number}"
                body = f"{key} {len(self.sent):06}"
                message = {"body": body, "sharding_key": key}
                try:
                    (sent,) = producer.send(self._ordered, [message], "send_selected")
                except PeerError as error:
                    self.failed.append(f"{body}: {error}")
                else:
                    self.sent.append((key, body, f"{sent['broker']}/{sent['queue_id']}"))

    def got(self, kind: str) -> set[str]:
        """Bodies of one producer that reached any member of their group."""
        return {body for consumer in self.consumers[kind] for body in consumer.bodies()}


@scenario(clients=("java5",), lane="quiet", compared=False, lasts_s=90)
def a_broker_is_drained_and_upgraded_under_load(scene: Scene) -> Outcome:
    """Topics are spread, and their first broker is drained, restarted and taken back. No send
    fails, nothing acknowledged is lost, and every kind of reader gets keys in order."""
    own, _ = _two_brokers(scene)
    ordered = own.name("keys")
    spread = (ordered, own.name("go"))
    with Admin(own.cluster.name_server) as admin:
        for topic in (ordered, *map(own.name, KINDS)):
            brokers = [BROKER_NAME] if topic in spread else []
            admin.create_topic(topic, queues=QUEUES, brokers=brokers)
    members = Members(own, ordered)
    for kind, producer in members.loads.items():
        producer.call("load_start", topic=own.name(kind), per_second=PER_SECOND)
    members.send_keys()
    own.wait_until(lambda: all(len(members.got(kind)) > 50 for kind in KINDS), "the load arrives")
    for topic in spread:
        words = ("--broker", OTHER, "--name-servers", own.cluster.name_server)
        added = _run("topic", "spread", topic, *words)
        check(added.returncode == 0, added.stderr)
        members.send_keys()
    drain = _command(own, "drain", BROKER_NAME)
    while drain.poll() is None:
        members.send_keys()
        own.pause(PAUSE_S)
    said = drain.communicate()[1]
    check(drain.returncode == 0, f"the drain ended with {drain.returncode}: {said}")
    check("is drained: it can be stopped" in said, said)
    own.cluster.stop_broker()
    members.send_keys()
    started = sparrow.start_broker(own.cluster)
    own.closing(started.stop)
    own.wait_until(lambda: accepts(own.cluster.broker), "the broker is back")
    resumed = _command(own, "resume", BROKER_NAME)
    said = resumed.communicate()[1]
    check(resumed.returncode == 0, f"the resume ended with {resumed.returncode}: {said}")
    for _ in range(20):
        members.send_keys()
    loads = {kind: producer.call("load_stop") for kind, producer in members.loads.items()}
    own.wait_until(
        lambda: all(set(load["acknowledged"]) <= members.got(kind) for kind, load in loads.items()),
        "everything acknowledged arrives",
    )
    wanted = {body for _, body, _ in members.sent}
    for kind, reader in members.readers.items():
        own.wait_until(
            lambda: wanted <= set(reader.bodies()),  # noqa: B023
            f"all keys arrive at {kind}",
        )
    failed = {kind: load["failed"] for kind, load in loads.items()}
    count = sum(len(load["acknowledged"]) for load in loads.values())
    own.say(
        f"spread, drain, restart and resume on two brokers under {PER_SECOND}/s of each of"
        f" {', '.join(KINDS)}: {count} acknowledged, 0 lost, failed sends {failed}; with keys"
        f" {len(members.sent)} sent, {len(members.failed)} failed, {_moves(members.sent)} moves"
    )
    check(not any(failed.values()), f"sends failed: {failed}")
    check(not members.failed, f"sends with keys failed: {members.failed[:3]}")
    mixed = {
        kind: _out_of_order(members.sent, reader.bodies())
        for kind, reader in members.readers.items()
    }
    check(not any(mixed.values()), f"keys are out of order in a queue: {mixed}")
    used = {queue.partition("/")[0] for _, _, queue in members.sent}
    check(used == {BROKER_NAME, OTHER}, f"keys were sent to {used}")
    return {"lost": 0}


def _moves(sent: list[tuple[str, str, str]]) -> int:
    """How often the messages of a key went to another queue than the one before."""
    last: dict[str, str] = {}
    moves = 0
    for key, _, queue in sent:
        moves += last.get(key, queue) != queue
        last[key] = queue
    return moves


def _out_of_order(sent: list[tuple[str, str, str]], got: list[str]) -> list[str]:
    """Keys whose messages in one queue did not arrive in the order in which they were sent."""
    places = {body: place for place, body in reversed(list(enumerate(got)))}
    by_queue: dict[tuple[str, str], list[int]] = defaultdict(list)
    for key, body, queue in sent:
        by_queue[key, queue].append(places[body])
    return [key for (key, _), found in by_queue.items() if found != sorted(found)]


@scenario(clients=("java5",), lane="quiet", compared=False, lasts_s=45)
def a_topic_is_spread_and_its_first_broker_drained(scene: Scene) -> Outcome:
    """The same commands on brokers of either make; Apache's are hidden by the name server."""
    own, second = _two_brokers(scene)
    topic = own.topic(queues=2)
    refused = _command(own, "drain", BROKER_NAME)
    said = refused.communicate()[1]
    check(refused.returncode == 1 and topic in said, f"it is the last broker: {said}")
    at = ["--name-servers", own.cluster.name_server]
    spread = _run("topic", "spread", topic, "--broker", OTHER, *at)
    check(spread.returncode == 0, spread.stderr)
    rows = [line.split("\t") for line in spread.stdout.splitlines()[1:]]
    check(rows == [[BROKER_NAME, "2", "2"], [OTHER, "0", "2"]], f"it printed {rows}")
    again = _run("topic", "spread", topic, "--broker", OTHER, *at)
    check(again.returncode == 1 and "already" in again.stderr, again.stderr)
    consumer = own.push_consumer(topic)
    producer = own.producer(route_poll_ms=2000)
    producer.send(topic, [f"first {number}" for number in range(8)])
    consumer.received(8)
    drain = _command(own, "drain", BROKER_NAME, "--grace", "5s")
    said = drain.communicate()[1]
    check(drain.returncode == 0, said)
    is_apache = own.cluster.target == "apache"
    check(("cannot refuse messages" in said) == is_apache, said)
    brokers = {each["broker"] for each in producer.send(topic, [f"{n}" for n in range(8)])}
    check(brokers == {OTHER}, f"producers use {brokers}")
    resumed = _run("broker", "resume", BROKER_NAME, *at)
    check(resumed.returncode == 0, resumed.stderr)
    own.wait_until(
        lambda: (
            {each["broker"] for each in producer.send(topic, ["a", "b", "c", "d"])}
            == {BROKER_NAME, OTHER}
        ),
        "producers use both again",
    )
    second.stop()
    return {"brokers": sorted(brokers), "said": bool(re.search("drained|empty", said))}


def _two_brokers(scene: Scene) -> tuple[Scene, Any]:
    """The cluster's broker and a second one of the same make."""
    own = scene.own_cluster(Settings())
    folder = own.cluster.folder / OTHER
    folder.mkdir()
    held = HeldPort(beside=BROKER_PORTS)
    own.closing(held.close)
    conf = folder / "broker.conf"
    properties = {"brokerName": OTHER, "autoCreateTopicEnable": "true"}
    conf.write_text(
        apache.broker_conf(own.cluster.name_server, held.port, folder / "store", properties)
    )
    make = sparrow if own.cluster.target == sparrow.NAME else apache
    server = make.run_broker(folder, conf)
    own.closing(lambda: server.stop() if server.is_running() else None)
    with Admin(own.cluster.name_server) as admin:
        own.wait_until(
            lambda: {each.name for each in admin.brokers()} == {BROKER_NAME, OTHER},
            "both are there",
        )
    return own, server


def _command(own: Scene, *words: str) -> "subprocess.Popen[str]":
    at = ["--name-servers", own.cluster.name_server]
    return subprocess.Popen(
        [sys.executable, "-m", "sparrowmq", "broker", *words, *at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _run(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "sparrowmq", *words]
    return subprocess.run(command, capture_output=True, text=True)
