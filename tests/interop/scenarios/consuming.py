"""Push consumers: clustering, broadcasting, filters, order, restarts and starting points."""

import datetime
import itertools
import statistics

from tests.interop.handles import Producer, PushConsumer
from tests.interop.outcomes import bodies, in_order, seen, twice
from tests.interop.registry import JAVA, PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene


@scenario()
def two_members_of_a_group_share_the_queues(scene: Scene) -> Outcome:
    topic = scene.topic(queues=8)
    producer = scene.producer()
    members = [scene.push_consumer(topic), scene.push_consumer(topic)]
    settle(scene, producer, topic, members)
    wanted = [f"m-{n}" for n in range(80)]
    producer.send(topic, wanted)

    def fresh() -> list[list[str]]:
        return [[body for body in m.bodies() if body in wanted] for m in members]

    scene.wait_until(lambda: sum(map(len, fresh())) >= 80, "all messages at the two members")
    first, second = fresh()
    return {
        "covered": sorted(set(first) | set(second)) == sorted(wanted),
        "twice": twice(first, second),
        "shares": sorted([len(first), len(second)]),
    }


def settle(scene: Scene, producer: Producer, topic: str, members: list[PushConsumer]) -> None:
    """Return when every queue is consumed once and every member takes part.

    The Go client does not show its assignment; a round of probes, one to each queue, does. While
    queues change hands a member may be about to take a probe that another one had already, so that
    a single good round proves nothing: it has to be good three times in a row.
    """
    good = 0
    for attempt in itertools.count():
        got = _probe(scene, producer, topic, members, attempt)
        is_even = sum(map(len, got)) == 8 and all(len(one) == 8 // len(members) for one in got)
        good = good + 1 if is_even else 0
        if good == 3:
            return
        check(attempt < 200, f"the members never shared the queues evenly: {got}")


def _probe(
    scene: Scene, producer: Producer, topic: str, members: list[PushConsumer], attempt: int
) -> list[list[str]]:
    """Send one message to each queue; which of them every member got."""
    probes = {f"probe-{attempt}-{queue_id}" for queue_id in range(8)}
    for probe in sorted(probes):
        producer.send(topic, [probe], "send_to_queue", queue_id=int(probe[-1]))

    def got() -> list[list[str]]:
        return [[body for body in member.bodies() if body in probes] for member in members]

    scene.wait_until(lambda: set().union(*got()) == probes, "probes arrive")
    scene.pause(0.5)
    return got()


@scenario()
def every_member_of_a_broadcasting_group_gets_all(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    producer = scene.producer()
    members = [scene.push_consumer(topic, model="BROADCASTING") for _ in range(2)]
    started = []
    for member in members:
        # A member starts at the end of a queue it has no progress for; wait until it listens.
        for attempt in itertools.count():
            for queue_id in range(4):
                producer.send(
                    topic, [f"probe-{attempt}-{queue_id}"], "send_to_queue", queue_id=queue_id
                )
            scene.pause(0.3)
            if len({body[-1] for body in member.bodies()}) == 4:
                break
            check(attempt < 400, "the member never listens to all queues")
        started.append(member)
    wanted = [f"m-{n}" for n in range(20)]
    producer.send(topic, wanted)

    def real(member: PushConsumer) -> list[str]:
        return sorted(body for body in member.bodies() if body.startswith("m-"))

    scene.wait_until(lambda: all(len(real(m)) >= 20 for m in started), "both members have all")
    return {"each": [real(member) == sorted(wanted) for member in started]}


@scenario()
def a_tag_filter_lets_only_its_tags_through(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    tags = ["created", "paid", "sent", None]
    # Aa and BB have the same hash: the broker lets both pass, the client does not.
    tags += ["Aa", "BB"]
    producer.send(topic, [{"body": f"m-{n}", "tags": tags[n % 6]} for n in range(24)])
    consumer = scene.push_consumer(topic, tags="created || paid || Aa")
    consumer.received(12)
    # Whatever should not come has the time to come.
    scene.pause(0.5)
    return {"messages": seen(consumer.received())}


@scenario()
def a_restarted_consumer_goes_on_at_its_offset(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    producer = scene.producer()
    producer.send(topic, [f"first-{n}" for n in range(20)])
    consumer = scene.push_consumer(topic)
    first = consumer.received(20)
    scene.wait_until_committed(topic, 20)
    consumer.stop()
    producer.send(topic, [f"second-{n}" for n in range(20)])
    second = scene.push_consumer(topic).received(20)
    return {"first": bodies(first), "second": bodies(second)}


@scenario()
def an_orderly_consumer_sees_every_queue_in_order(scene: Scene) -> Outcome:
    topic = scene.topic(queues=4)
    producer = scene.producer()
    keyed = [{"body": f"m-{n:03}", "sharding_key": f"order-{n % 7}"} for n in range(70)]
    producer.send(topic, keyed, "send_selected")
    got = scene.push_consumer(topic, orderly=True).received(70)
    return {"bodies": bodies(got), "in_order": in_order(got)}


# The Go client holds on to the lock of a queue that it gave away until the lock expires.
@scenario(clients=(*JAVA, *PYTHON))
def two_orderly_members_never_share_a_queue(scene: Scene) -> Outcome:
    topic = scene.topic(queues=8)
    producer = scene.producer()
    members = [scene.push_consumer(topic, orderly=True) for _ in range(2)]
    settle(scene, producer, topic, members)
    producer.send(topic, [f"m-{n:03}" for n in range(80)])

    def fresh(index: int) -> list[dict[str, object]]:
        return [m for m in members[index].received() if m["body"].startswith("m-")]

    scene.wait_until(lambda: len(fresh(0)) + len(fresh(1)) >= 80, "all messages")
    got = [fresh(0), fresh(1)]
    queues = [{message["queue_id"] for message in one} for one in got]
    return {
        "bodies": sorted(str(message["body"]) for one in got for message in one),
        "in_order": [in_order(one) for one in got],
        "shared_queues": queues[0] & queues[1],
    }


@scenario()
def a_new_group_starts_where_it_was_told(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    producer = scene.producer()
    producer.send(topic, [f"early-{n}" for n in range(10)])
    hour_ago = datetime.datetime.now().astimezone() - datetime.timedelta(hours=1)
    starts = {
        "first": {"from_where": "CONSUME_FROM_FIRST_OFFSET"},
        # The topic is young: Apache starts even a LAST group at its beginning.
        "last": {"from_where": "CONSUME_FROM_LAST_OFFSET"},
        "timestamp": {
            "from_where": "CONSUME_FROM_TIMESTAMP",
            "from_timestamp": hour_ago.strftime("%Y%m%d%H%M%S"),
        },
    }
    consumers = {
        word: scene.push_consumer(topic, group=word, **options) for word, options in starts.items()
    }
    early = {word: consumer.bodies(10) for word, consumer in consumers.items()}
    producer.send(topic, [f"late-{n}" for n in range(10)])
    for word, consumer in consumers.items():
        consumer.bodies(len(early[word]) + 10)
    return {word: sorted(consumer.bodies()) for word, consumer in consumers.items()}


@scenario()
def a_message_wakes_a_waiting_consumer(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    consumer = scene.push_consumer(topic)
    producer.send(topic, ["hello"])
    consumer.received(1)
    for number in range(20):
        producer.send(topic, [f"m-{number}"])
        consumer.received(number + 2)
    # Who is not woken learns of each message by the broker's look at all queues every 5 s. Most of
    # them tell: a busy machine may stand still for a moment.
    waits = [message["at"] - message["born_at"] for message in consumer.received()[1:]]
    check(statistics.median(waits) < 2500, f"messages took {waits} ms")
    return {"bodies": consumer.bodies()}
