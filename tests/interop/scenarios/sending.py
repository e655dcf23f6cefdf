"""Every way to send, and the refusals."""

from functools import partial

from tests.interop.cluster import Settings
from tests.interop.handles import Message
from tests.interop.outcomes import bodies, dense, filled, seen, statuses
from tests.interop.registry import JAVA, Outcome, check, scenario
from tests.interop.scene import Scene

MEBIBYTE = 1024 * 1024


@scenario()
def a_synchronous_send_tells_status_queue_and_offset(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    producer = scene.producer()
    sent = producer.send(topic, [f"m-{n}" for n in range(16)])
    return {
        "statuses": statuses(sent),
        "queue_ids": {one["queue_id"] for one in sent},
        "brokers": {one["broker"] for one in sent},
        "offsets_are_dense": dense(sent),
        "offset_id_lengths": {len(one["offset_id"]) for one in sent},
    }


@scenario()
def asynchronous_sends_all_call_back(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    producer = scene.producer()
    sent = producer.send(topic, [f"m-{n}" for n in range(64)], "send_async")
    got = scene.push_consumer(topic).received(64)
    return {"statuses": statuses(sent), "dense": dense(sent), "bodies": bodies(got)}


@scenario()
def one_way_sends_arrive(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    producer.send_one_way(topic, [f"m-{n}" for n in range(8)])
    return {"bodies": bodies(scene.push_consumer(topic).received(8))}


@scenario()
def a_batch_lands_in_one_queue_in_order(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    batch = [{"body": f"m-{n}", "tags": "paid", "keys": f"k-{n}"} for n in range(10)]
    sent = producer.send_batch(topic, batch)
    after = producer.send(topic, ["after"])
    got = scene.push_consumer(topic).received(11)
    ids = sent["unique_id"].split(","), sent["offset_id"].split(",")
    return {
        "status": sent["status"],
        "first_offset": sent["queue_offset"],
        "next_offset": after[0]["queue_offset"],
        "ids": [len(part) for part in ids],
        "messages": seen(got),
        "offsets": {message["body"]: message["queue_offset"] for message in got},
    }


@scenario()
def the_same_sharding_key_lands_in_the_same_queue(scene: Scene) -> Outcome:
    topic = scene.topic(queues=8)
    producer = scene.producer()
    keyed = [{"body": f"m-{n}", "sharding_key": f"order-{n % 5}"} for n in range(40)]
    sent = producer.send(topic, keyed, "send_selected")
    queues: dict[str, set[int]] = {}
    for message, result in zip(keyed, sent, strict=True):
        queues.setdefault(str(message["sharding_key"]), set()).add(result["queue_id"])
    check(all(len(ids) == 1 for ids in queues.values()), f"a key has several queues: {queues}")
    return {"statuses": statuses(sent), "queues": queues}


@scenario()
def a_long_body_is_compressed_and_comes_back_whole(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    sizes = [4095, 4096, 65536, 3 * MEBIBYTE]
    sent = producer.send(topic, [{"body": f"size {size} ", "fill": size} for size in sizes])
    got = scene.push_consumer(topic).received(len(sizes))
    whole = sorted(filled(f"size {size} ", size) for size in sizes)
    check(bodies(got) == whole, "a body came back changed")
    return {"statuses": statuses(sent), "bodies": bodies(got)}


@scenario()
def keys_tags_flag_and_properties_come_back(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    message: Message = {
        "body": "café 日本",
        "tags": "paid",
        "keys": "o-1 o-2",
        "flag": 7,
        "properties": {"colour": "grün", "a": "1"},
    }
    producer.send(topic, [message, {"body": "bare"}])
    got = scene.push_consumer(topic).received(2)
    return {"messages": seen(got), "sys_flags": {message["sys_flag"] for message in got}}


@scenario()
def a_topic_that_does_not_exist_is_created_by_the_first_send(scene: Scene) -> Outcome:
    topic = scene.name("new")
    producer = scene.producer(queues=3)
    sent = producer.send(topic, [f"m-{n}" for n in range(12)])
    scene.wait_for_route(topic)
    got = scene.push_consumer(topic).received(12)
    queue_ids = {one["queue_id"] for one in sent}
    if scene.peer.name == "go":
        # It always asks for 4 queues, and uses them from its next poll of the route
        # on: 10 ms after its start, which may be before the last of these sends.
        queue_ids.discard(3)
    return {"statuses": statuses(sent), "queue_ids": queue_ids, "bodies": bodies(got)}


@scenario()
def a_body_over_4_mib_is_refused(scene: Scene) -> Outcome:
    topic = scene.topic()
    # The client's own limit is lifted as far as it goes: the broker has to say no.
    producer = scene.producer(max_message_bytes=16 * MEBIBYTE)
    huge = [{"noise": 4 * MEBIBYTE + 1}]
    refused = scene.refusal(lambda: producer.send(topic, huge))
    after = producer.send(topic, ["small"])
    return {"huge": refused, "after": statuses(after)}


@scenario()
def an_illegal_topic_name_is_refused(scene: Scene) -> Outcome:
    producer = scene.producer()
    names = ["a b", "a/../b", "ü", "x" * 128, ""]
    return {name: scene.refusal(partial(producer.send, name, ["m"])) for name in names}


@scenario()
def a_system_topic_is_refused(scene: Scene) -> Outcome:
    producer = scene.producer()
    names = ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "SELF_TEST_TOPIC"]
    return {name: scene.refusal(partial(producer.send, name, ["m"])) for name in names}


@scenario(lane="apart")
def without_auto_creation_an_unknown_topic_is_an_error(scene: Scene) -> Outcome:
    own = scene.own_cluster(Settings(auto_create_topics=False))
    topic = own.topic("known", queues=2)
    producer = own.producer()
    return {
        "unknown": own.refusal(lambda: producer.send(own.name("unknown"), ["m"])),
        "known": statuses(producer.send(topic, ["m"])),
    }


@scenario(clients=JAVA)
def a_producer_creates_a_topic_and_sees_its_queues(scene: Scene) -> Outcome:
    topic = scene.name("made")
    producer = scene.producer()
    producer.call("create_topic", topic=topic, queues=6, key="DefaultCluster")
    scene.wait_for_route(topic)
    queues = producer.call("publish_queues", topic=topic)
    return {"queues": sorted(queue["queue_id"] for queue in queues)}
