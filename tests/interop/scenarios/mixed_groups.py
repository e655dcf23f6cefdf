"""Java, Go and Python members in one group: what each join and leave costs, measured."""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.interop.handles import Producer, PushConsumer
from tests.interop.peers import Peer, start_peer
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

QUEUES = 12
PER_SECOND = 240
SETTLED_S = 24.0
"""The Go client looks at its share of a group every 20 s."""
SETTLED_WITHOUT_GO_S = 6.0
"""Java and Python members look as soon as the broker notifies them."""
TAKES_MS = 60
"""Of a Python member's handler: always something is in flight when a queue moves."""
BURST_MS = 100
LONG_MS = 6_000
"""Of a handler that others have to wait for; Python members wait 10 s for theirs."""
SLOW_QUEUES = 6


@dataclass(frozen=True)
class Delivery:
    """A message reached a member."""

    at_ms: int
    member: str
    queue_id: int
    queue_offset: int
    body: str

    @property
    def kind(self) -> str:
        """java, go or python."""
        return self.member.split("-")[0]


@dataclass(frozen=True)
class Change:
    """A member joined or left."""

    at_ms: int
    what: str
    committed: dict[int, int]
    """The progress of every queue before it."""


class MixedGroup:
    """Members of several peers in one group on one cluster."""

    def __init__(self, scene: Scene, topic: str) -> None:
        self._scene = scene
        self._topic = topic
        self._peers: dict[str, Peer] = {"java": scene.peer}
        self._members: dict[str, PushConsumer] = {}
        self.changes: list[Change] = []
        self.deliveries: list[Delivery] = []

    def _peer(self, kind: str) -> Peer:
        if kind not in self._peers:
            peer = start_peer(kind, Path(self._scene.folder) / kind)
            self._scene.closing(peer.close)
            self._peers[kind] = peer
        return self._peers[kind]

    def join(
        self, member: str, settled_s: float = SETTLED_S, *, takes_ms: int = TAKES_MS
    ) -> PushConsumer:
        """`java-1`, `go-1`, `python-1`, …; returns when the group has settled."""
        peer = self._peer(member.split("-")[0])
        self._note(f"{member} joins")
        self._members[member] = PushConsumer(
            peer,
            f"{member}-{self._scene.suffix}",
            self._scene.cluster.name_server,
            group=self._scene.name("mixed"),
            topic=self._topic,
            from_where="CONSUME_FROM_FIRST_OFFSET",
            **({"takes_ms": takes_ms} if member.startswith("python") else {}),
        )
        self._scene.closing(self._members[member].stop)
        if settled_s:
            self._scene.pause(settled_s)
        return self._members[member]

    def leave(self, member: str, settled_s: float = SETTLED_S) -> None:
        """Stop as an application does."""
        leaving = self._members.pop(member)
        self._note(f"{member} leaves")
        leaving.stop()
        # What it was given while it stopped is there as well.
        self._take(member, leaving.received())
        self._scene.pause(settled_s)

    def collect(self) -> None:
        """What the members that are left were given."""
        for member, consumer in self._members.items():
            self._take(member, consumer.received())

    def got(self) -> set[str]:
        """Bodies that reached any member."""
        here = {body for consumer in self._members.values() for body in consumer.bodies()}
        return here | {delivery.body for delivery in self.deliveries}

    def _take(self, member: str, messages: list[dict[str, Any]]) -> None:
        self.deliveries += [
            Delivery(m["at"], member, m["queue_id"], m["queue_offset"], m["body"]) for m in messages
        ]

    def _note(self, what: str) -> None:
        committed = self._scene.committed(self._topic, "mixed")
        self.changes.append(Change(round(time.time() * 1000), what, committed))


@dataclass(frozen=True)
class Cost:
    """What one change cost."""

    what: str
    pauses_ms: list[int]
    """Of each queue that has another owner now, the longest time without a delivery."""
    twice: Counter[str]
    """Messages delivered again, by who had them before and who got them again."""
    burst: int
    """The most messages of one moved queue within 100 ms."""

    def __str__(self) -> str:
        twice = ", ".join(f"{count} {pair}" for pair, count in sorted(self.twice.items())) or "0"
        pauses = ", ".join(map(str, self.pauses_ms)) or "–"
        return (
            f"{self.what}: {len(self.pauses_ms)} queues moved, paused for {pauses} ms;"
            f" delivered twice: {twice}; largest burst {self.burst}"
        )


def costs(group: MixedGroup, end_ms: int) -> list[Cost]:
    """Each change with what happened until the next one."""
    deliveries = sorted(group.deliveries, key=lambda one: one.at_ms)
    times = [change.at_ms for change in group.changes] + [end_ms]
    return [
        _cost(change, deliveries, until_ms)
        for change, until_ms in zip(group.changes, times[1:], strict=True)
    ]


def _cost(change: Change, deliveries: list[Delivery], until_ms: int) -> Cost:
    from_ms = change.at_ms
    by_queue: dict[int, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        if delivery.at_ms < until_ms:
            by_queue[delivery.queue_id].append(delivery)
    pauses, bursts = [], [0]
    for got in by_queue.values():
        before = [one for one in got if one.at_ms < from_ms]
        after = [one for one in got if one.at_ms >= from_ms]
        if before and after and before[-1].member != after[-1].member:
            steps = pairwise([before[-1], *after])
            pauses.append(max(later.at_ms - earlier.at_ms for earlier, later in steps))
            bursts.append(max(Counter(one.at_ms // BURST_MS for one in after).values()))
    twice = _twice(change, deliveries, until_ms)
    return Cost(change.what, sorted(pauses), twice, max(bursts))


def _twice(change: Change, deliveries: list[Delivery], until_ms: int) -> Counter[str]:
    """What came again until the next change; what was committed before it must not."""
    earlier: dict[str, Delivery] = {}
    found: Counter[str] = Counter()
    for delivery in deliveries:
        first = earlier.get(delivery.body)
        if first is not None and change.at_ms <= delivery.at_ms < until_ms:
            found[f"{first.kind} → {delivery.kind}"] += 1
            progress = change.committed.get(delivery.queue_id, 0)
            is_open = delivery.queue_offset >= progress
            check(is_open, f"{first} again at {delivery}, though {progress} was committed")
        earlier[delivery.body] = delivery
    return found


def _load(scene: Scene, topic: str) -> tuple[Peer, Producer]:
    """A producer in a separate process: the members' drivers do one thing at a time."""
    peer = start_peer("python", Path(scene.folder) / "load")
    scene.closing(peer.close)
    options = {"group": scene.name("producers"), "timeout_ms": 10_000}
    producer = Producer(peer, f"load-{scene.suffix}", scene.cluster.name_server, **options)
    scene.closing(producer.stop)
    producer.call("load_start", topic=topic, per_second=PER_SECOND)
    return peer, producer


@scenario(clients=("java5",), lane="quiet", compared=False, lasts_s=165)
def java_go_and_python_members_share_a_group(scene: Scene) -> Outcome:
    topic = scene.topic("mixed", queues=QUEUES)
    group = MixedGroup(scene, topic)
    _, producer = _load(scene, topic)
    group.join("java-1", SETTLED_WITHOUT_GO_S)
    for member in ("go-1", "python-1", "python-2"):
        group.join(member)
    group.leave("java-1")
    group.join("java-2")  # takes queues from Python members
    for member in ("go-1", "java-2"):
        group.leave(member, SETTLED_WITHOUT_GO_S)
    # Only Python members from here on: they hand queues over without repeating anything.
    group.join("python-3", SETTLED_WITHOUT_GO_S)
    group.leave("python-1", SETTLED_WITHOUT_GO_S)
    found = _judge(scene, group, producer)
    pure = [cost for cost in found[-2:] if cost.twice]
    check(not pure, f"Python members alone delivered twice: {pure}")
    return {"lost": 0}


@scenario(clients=("java5",), lane="quiet", compared=False, lasts_s=65)
def go_and_java_members_join_a_busy_python_group(scene: Scene) -> Outcome:
    topic = scene.topic("joined", queues=QUEUES)
    group = MixedGroup(scene, topic)
    _, producer = _load(scene, topic)
    for member in ("python-1", "python-2"):
        group.join(member, SETTLED_WITHOUT_GO_S)
    for member in ("go-1", "java-1"):
        group.join(member)
    _judge(scene, group, producer)
    return {"lost": 0}


@scenario(clients=("java5",), lane="quiet", compared=False)
def go_and_java_members_wait_for_handlers_that_run_for_seconds(scene: Scene) -> Outcome:
    topic = scene.topic("slow", queues=SLOW_QUEUES)
    group = MixedGroup(scene, topic)
    owner = group.join("python-1", 0, takes_ms=LONG_MS)
    producer = scene.producer()
    early = [f"early-{number}" for number in range(2 * SLOW_QUEUES)]
    producer.send(topic, early)
    owner.received(len(early))  # every worker has one in its hands
    others = [group.join(member, 0) for member in ("go-1", "java-1")]
    late = [f"late-{number}" for number in range(4 * SLOW_QUEUES)]
    producer.send(topic, late)
    scene.wait_until(lambda: {*early, *late} <= group.got(), "everything arrives")
    for other in others:
        other.received(1)  # the queues did move
    group.collect()
    found = costs(group, round(time.time() * 1000))
    for cost in found:
        scene.say(f"slow handlers on {scene.cluster.target}, {cost}")
    again = Counter(delivery.body for delivery in group.deliveries if delivery.body in early)
    if scene.cluster.target != "apache":
        check(set(again.values()) == {1}, f"what a Python member had in its hands: {again}")
    return {"lost": 0}


def _judge(scene: Scene, group: MixedGroup, producer: Producer) -> list[Cost]:
    """End the load. Everything has to arrive, and what Python members handed over, once."""
    load = producer.call("load_stop")
    acknowledged = set(load["acknowledged"])
    scene.wait_until(lambda: acknowledged <= group.got(), "everything acknowledged arrives")
    group.collect()
    found = costs(group, round(time.time() * 1000))
    for cost in found:
        scene.say(f"mixed group on {scene.cluster.target}, {cost}")
    check(load["failed"] == 0, f"{load['failed']} sends failed")
    again = [cost for cost in found if _was_handed_over_twice(cost, scene.cluster.target)]
    check(not again, f"what Python members handed over came again: {again}")
    return found


def _was_handed_over_twice(cost: Cost, target: str) -> bool:
    """Whether something came again that a Python member had, and need not have.

    Apache's brokers tell Java and Go members where a queue stands while a Python member still has
    something of it in flight; there only Python members wait for each other.
    """
    if cost.twice["python → python"]:
        return True
    if target == "apache":
        return False
    return bool(cost.twice["python → go"] or cost.twice["python → java"])
