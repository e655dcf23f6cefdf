"""An operator resets a group whose members are consuming: they continue without a restart."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.interop import raw
from tests.interop.handles import Producer, PushConsumer
from tests.interop.peers import start_peer
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

RESET_OFFSET = 222
QUEUES = 4
PER_SECOND = 100
LONGEST_PAUSE_S = 5.0
"""Of the queues that are not reset. A Java or Go member that gets request 220 pulls nothing at all
for 10 s."""
SECOND_S = 1.1
"""Messages stored before and after it differ in their second, the precision of some look-ups."""


def reset(scene: Scene, topic: str, timestamp_ms: int, **fields: Any) -> dict[int, int]:
    """Move the group `billing`; each queue's new offset. Apache's answer has no strict JSON."""
    asked = {"topic": topic, "group": scene.name("billing"), "timestamp": timestamp_ms}
    asked |= {"isForce": "true"} | fields
    named = {name: str(value) for name, value in asked.items()}
    answer = raw.call(scene.cluster.broker, RESET_OFFSET, named)
    check(answer.code == 0, f"the reset was refused: {answer.code} {answer.remark}")
    return scene.committed(topic, "billing")


def load(scene: Scene, topic: str) -> Producer:
    """Constant load from a separate process: the driver does one thing at a time."""
    peer = start_peer("python", Path(scene.folder) / "load")
    scene.closing(peer.close)
    options = {"group": scene.name("producers"), "timeout_ms": 10_000}
    producer = Producer(peer, f"load-{scene.suffix}", scene.cluster.name_server, **options)
    scene.closing(producer.stop)
    producer.call("load_start", topic=topic, per_second=PER_SECOND)
    return producer


@scenario(lane="quiet", compared=False)
def a_reset_of_one_queue_stops_no_other(scene: Scene) -> Outcome:
    topic = scene.topic(queues=QUEUES)
    producer = load(scene, topic)
    consumer = scene.push_consumer(topic)
    consumer.received(10 * PER_SECOND)
    before = [message for message in consumer.received() if message["queue_id"] == 0]
    reset_ms = round(time.time() * 1000)
    reset(scene, topic, 0, queueId=0, offset=0)
    again = {message["body"] for message in before}
    scene.wait_until(lambda: again <= _since(consumer, reset_ms, queue_id=0), "queue 0 comes again")
    acknowledged = set(producer.call("load_stop")["acknowledged"])
    scene.wait_until(lambda: acknowledged <= set(consumer.bodies()), "all other messages come")
    scene.wait_until_committed(topic, len(acknowledged))
    pauses_s = _pauses_s(consumer, reset_ms)
    first_ms = min(
        message["at"]
        for message in consumer.received()
        if message["body"] in again and message["at"] > reset_ms
    )
    scene.say(
        f"reset of one queue of a {scene.peer.name} member on {scene.cluster.target}: it came again"
        f" after {(first_ms - reset_ms) / 1000:.1f} s; longest pause of the others {pauses_s:.1f} s"
    )
    check(pauses_s < LONGEST_PAUSE_S, f"the other queues paused for {pauses_s:.1f} s")
    return {"lost": 0}


def _since(consumer: PushConsumer, time_ms: int, queue_id: int) -> set[str]:
    return {
        message["body"]
        for message in consumer.received()
        if message["at"] > time_ms and message["queue_id"] == queue_id
    }


def _pauses_s(consumer: PushConsumer, reset_ms: int) -> float:
    """The longest time without a delivery after the reset, over the queues that were not reset."""
    longest_ms = 0
    for queue_id in range(1, QUEUES):
        times = [
            message["at"]
            for message in consumer.received()
            if message["queue_id"] == queue_id and message["at"] > reset_ms
        ]
        steps = pairwise([reset_ms, *sorted(times)])
        longest_ms = max(longest_ms, *(later - earlier for earlier, later in steps))
    return longest_ms / 1000


@scenario(lane="quiet", compared=False)
def a_reset_to_a_time_brings_exactly_what_came_later(scene: Scene) -> Outcome:
    topic = scene.topic(queues=QUEUES)
    producer, consumer = scene.producer(), scene.push_consumer(topic)
    early, late = ([f"{word}-{number}" for number in range(40)] for word in ("early", "late"))
    producer.send(topic, early)
    scene.pause(SECOND_S)
    between_ms = round(time.time() * 1000)
    scene.pause(SECOND_S)
    producer.send(topic, late)
    consumer.received(80)
    scene.wait_until_committed(topic, 80)
    offsets = reset(scene, topic, between_ms)
    check(sum(offsets.values()) == 40, f"offsets after the reset: {offsets}")
    got = consumer.bodies(120)[80:]
    producer.send(topic, ["last"])
    consumer.received(121)
    scene.wait_until_committed(topic, 81)
    return {"again": sorted(got), "then": consumer.bodies()[120:]}


@scenario(lane="quiet", compared=False)
def a_reset_forward_skips_exactly_what_came_before(scene: Scene) -> Outcome:
    topic = scene.topic(queues=QUEUES)
    producer, consumer = scene.producer(), scene.push_consumer(topic)
    producer.send(topic, [f"seen-{number}" for number in range(40)])
    consumer.received(40)
    scene.wait_until_committed(topic, 40)
    consumer.call("push_suspend")
    # A member that was suspended takes what its waiting pulls still bring, and pulls no more.
    for queue_id in range(QUEUES):
        producer.send(topic, ["plug"], how="send_to_queue", queue_id=queue_id)
    consumer.received(40 + QUEUES)
    producer.send(topic, [f"skipped-{number}" for number in range(40)])
    offsets = reset(scene, topic, -1)
    check(sum(offsets.values()) == 80 + QUEUES, f"offsets after the reset: {offsets}")
    producer.send(topic, [f"after-{number}" for number in range(20)])
    consumer.call("push_resume")
    got = consumer.bodies(60 + QUEUES)[40 + QUEUES :]
    scene.wait_until_committed(topic, 100 + QUEUES)
    check(len(consumer.bodies()) == 60 + QUEUES, f"more came: {consumer.bodies()[60 + QUEUES :]}")
    return {"after": sorted(got)}
