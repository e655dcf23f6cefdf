"""Finding messages by id, key and time, and the ends of queues."""

from collections.abc import Callable

from tests.interop.outcomes import bodies, seen
from tests.interop.peers import PeerError
from tests.interop.registry import JAVA, Outcome, check, scenario
from tests.interop.scene import Scene


@scenario(clients=JAVA)
def a_message_is_viewed_by_its_offset_id(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    sent = producer.send(topic, [{"body": f"m-{n}", "tags": "paid", "keys": "o"} for n in range(3)])
    found = [
        producer.call("view_message", topic=topic, id=one["offset_id"].split(",")[0])
        for one in sent
    ]
    wrong = sent[0]["offset_id"][:16] + "00000000000F4240"
    unknown = scene.refusal(lambda: producer.call("view_message", topic=topic, id=wrong))
    return {"found": seen(found), "unknown": unknown}


@scenario(clients=JAVA)
def a_message_is_found_by_its_unique_id(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    sent = producer.send(topic, [f"m-{n}" for n in range(3)])
    ids = [one["unique_id"] for one in sent]

    def found() -> list[str | None]:
        views = [producer.call("view_message", topic=topic, id=one) for one in ids]
        return [view["body"] if view else None for view in views]

    # The index may trail the log for a moment.
    scene.wait_until(lambda: None not in found(), "the unique ids are indexed")
    return {"found": found()}


@scenario(clients=JAVA)
def messages_are_found_by_key_and_time(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    producer.send(
        topic,
        [{"body": f"m-{n}", "keys": f"k-{n} {'odd' if n % 2 else 'even'}"} for n in range(10)],
    )

    def query(key: str, **args: int) -> list[str]:
        return bodies(producer.call("query_by_key", topic=topic, key=key, **args))

    scene.wait_until(lambda: _answers(lambda: len(query("odd")) == 5), "the keys are indexed")
    return {
        "odd": query("odd"),
        "one": query("k-4"),
        "at_most": len(query("even", max=3)),
        "long_ago": scene.refusal(lambda: query("odd", begin=1, end=2)),
        "unknown": scene.refusal(lambda: query("never")),
    }


def _answers(holds: Callable[[], bool]) -> bool:
    """Java raises while nothing is found."""
    try:
        return holds()
    except PeerError:
        return False


@scenario(clients=JAVA)
def the_ends_of_a_queue_are_told(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    ops = ("min_offset", "max_offset", "earliest_store_time")
    empty = {op: producer.offset(op, topic, 0) for op in ops}
    producer.send(topic, [f"m-{n}" for n in range(7)], "send_to_queue", queue_id=0)
    filled = {op: producer.offset(op, topic, 0) for op in ops}
    check(filled.pop("earliest_store_time") > 1_500_000_000_000, "no time of the oldest message")
    return {
        "empty": empty,
        "filled": filled,
        "no_such_queue": scene.refusal(lambda: producer.offset("max_offset", topic, 77)),
    }


@scenario(clients=JAVA)
def offsets_are_found_by_time(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    pull = scene.pull_consumer()
    for number in range(5):
        producer.send(topic, [f"m-{number}"])
        scene.pause(0.02)
    stored = [message["stored_at"] for message in pull.pull(topic, 0, 0)["messages"]]

    def search(timestamp: int) -> int:
        return producer.offset("search_offset", topic, 0, timestamp=timestamp)

    return {
        "exactly": [search(time) for time in stored],
        "just_before": [search(time - 1) for time in stored],
        "just_after": [search(time + 1) for time in stored],
        "at_0": search(0),
        "tomorrow": search(stored[-1] + 86_400_000),
    }
