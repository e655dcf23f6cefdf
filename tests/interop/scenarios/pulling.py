"""Pull and lite pull consumers, and offset queries."""

from tests.interop.outcomes import bodies, seen
from tests.interop.registry import JAVA, PYTHON, Outcome, scenario
from tests.interop.scene import Scene


@scenario()
def a_pull_consumer_reads_a_queue_and_stores_its_offset(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    scene.producer().send(topic, [f"m-{n:02}" for n in range(40)])
    consumer = scene.pull_consumer(topic=topic)
    first = consumer.pull(topic, 0, 0, max=32)
    second = consumer.pull(topic, 0, first["next_offset"], max=32)
    # The Go client asks the broker to hold this one for 20 s.
    end = {} if scene.peer.name == "go" else consumer.pull(topic, 0, second["next_offset"])
    beyond = consumer.pull(topic, 0, 1000, max=32)
    consumer.commit(topic, 0, 40)
    results = {"first": first, "second": second, "end": end, "beyond": beyond}
    for result in results.values():
        result["messages"] = bodies(result.get("messages", []))
    committed = consumer.committed(topic, 0)
    consumer.stop()
    again = scene.pull_consumer(topic=topic)
    return results | {"committed": committed, "again": again.committed(topic, 0)}


@scenario(clients=(*JAVA, *PYTHON))
def a_pull_with_a_tag_skips_other_messages(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    tagged = [{"body": f"m-{n:02}", "tags": "odd" if n % 2 else "even"} for n in range(20)]
    scene.producer().send(topic, tagged)
    consumer = scene.pull_consumer()
    odd = consumer.pull(topic, 0, 0, max=32, tags="odd")
    none = consumer.pull(topic, 0, 0, max=32, tags="never")
    return {
        "odd": seen(odd["messages"]),
        "odd_next": odd["next_offset"],
        "none": {key: none[key] for key in ("status", "next_offset", "min_offset", "max_offset")},
    }


@scenario(clients=(*JAVA, *PYTHON))
def a_held_pull_is_answered_when_a_message_arrives(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    consumer = scene.pull_consumer()
    producer.send(topic, ["first"])
    got = consumer.pull(topic, 0, 0, wait=True)
    queues = consumer.call("pull_queues", topic=topic)
    return {
        "status": got["status"],
        "bodies": bodies(got["messages"]),
        "queues": [queue["queue_id"] for queue in queues],
    }


@scenario(clients=(*JAVA, *PYTHON))
def a_lite_pull_consumer_subscribes_and_commits(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    producer.send(topic, [f"m-{n:02}" for n in range(10)])
    consumer = scene.lite_consumer(topic=topic)
    first = consumer.poll(10)
    consumer.call("lite_commit")
    committed = [consumer.on_queue("committed", topic, queue_id) for queue_id in range(2)]
    consumer.stop()
    producer.send(topic, [f"n-{n:02}" for n in range(10)])
    second = scene.lite_consumer(topic=topic).poll(10)
    return {"first": bodies(first), "committed": sum(committed), "second": bodies(second)}


@scenario(clients=(*JAVA, *PYTHON))
def a_lite_pull_consumer_assigns_and_seeks(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    producer.send(topic, [f"m-{n:02}" for n in range(10)], "send_to_queue", queue_id=1)
    consumer = scene.lite_consumer()
    consumer.call("lite_assign", topic=topic, queue_ids=[1])
    consumer.on_queue("seek_to_begin", topic, 1)
    everything = consumer.poll(10)
    consumer.on_queue("seek", topic, 1, offset=7)
    tail = consumer.poll(3)
    consumer.on_queue("seek_to_end", topic, 1)
    producer.send(topic, ["late"], "send_to_queue", queue_id=1)
    late = consumer.poll(1)
    return {
        "everything": bodies(everything),
        "tail": bodies(tail),
        "late": bodies(late),
        "at_0": consumer.on_queue("offset_for_timestamp", topic, 1, timestamp=0),
    }


@scenario(clients=("go",))
def a_go_pull_consumer_polls_and_acknowledges(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    producer.send(topic, [f"m-{n:02}" for n in range(10)])
    consumer = scene.pull_consumer(topic=topic)
    first = consumer.poll(10)
    scene.wait_until_committed(topic, 10)
    consumer.stop()
    producer.send(topic, [f"n-{n:02}" for n in range(10)])
    second = scene.pull_consumer(topic=topic).poll(10)
    return {"first": bodies(first), "second": bodies(second)}
