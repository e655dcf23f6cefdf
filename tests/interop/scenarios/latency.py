"""The latency of a message to a waiting push consumer: measured and printed, not asserted."""

import statistics

from tests.interop.registry import Outcome, scenario
from tests.interop.scene import Scene

MESSAGES = 300


@scenario(lane="alone", compared=False)
def the_latency_to_a_waiting_consumer_is_measured(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    consumer = scene.push_consumer(topic)
    producer.send(topic, ["warm up"] * MESSAGES)
    consumer.received(MESSAGES)
    for number in range(MESSAGES):
        producer.send(topic, [f"m-{number}"])
    got = consumer.received(2 * MESSAGES)[MESSAGES:]
    waits = sorted(message["at"] - message["born_at"] for message in got)
    scene.say(
        f"latency to a waiting {scene.peer.name} consumer of {scene.cluster.target}: "
        f"median {statistics.median(waits):.0f} ms, p99 {waits[int(len(waits) * 0.99)]} ms"
    )
    return {"messages": len(got)}
