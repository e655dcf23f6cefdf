"""Delivery features: retry and dead letters, delay, transactions, SQL92, replies."""

import time
from typing import Any

from sparrowmq.protocol.properties import decode_properties
from sparrowmq.protocol.record import Record, decode_record
from tests.interop import raw
from tests.interop.cluster import Settings
from tests.interop.handles import Message
from tests.interop.outcomes import bodies, in_order, seen, statuses
from tests.interop.peers import PeerError
from tests.interop.registry import JAVA, PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene

QUICK_CHECKS = Settings(
    properties=(("transactionTimeOut", "1000"), ("transactionCheckInterval", "1000"))
)
FEW_CHECKS = Settings(properties=(*QUICK_CHECKS.properties, ("transactionCheckMax", "2")))
SEND_MESSAGE = 10
PULL = 11
GET_MAX_OFFSET = 30
GET_PRODUCER_CONNECTIONS = 204
SET_ASIDE_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


def warm_up(scene: Scene, topic: str, group: str = "billing") -> None:
    """Make the broker create the group's retry topic, so that the next member knows it at once."""
    first = scene.push_consumer(topic, group)
    scene.wait_for_route(f"%RETRY%{scene.name(group)}")
    first.stop()


def records_of(scene: Scene, topic: str) -> list[Record]:
    """What lies in the first queue of a topic, up to 32 records, pulled by hand."""
    fields = {"consumerGroup": scene.name("reader"), "topic": topic, "queueId": "0"}
    fields |= {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0"}
    fields |= {"suspendTimeoutMillis": "0", "subVersion": "0", "subscription": "*"}
    data = raw.call(scene.cluster.broker, PULL, fields | {"expressionType": "TAG"}).body
    found: list[Record] = []
    while data:
        found.append(decode_record(data))
        data = data[found[-1].size :]
    return found


@scenario(needs="retry")
def a_failed_message_comes_back_and_ends_in_the_dead_letters(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    warm_up(scene, topic)
    letters: list[Message] = [{"body": "good"}]
    letters += [{"body": "once", "keys": "k-1", "tags": "paid", "properties": {"a": "1"}}]
    letters += [{"body": "always", "keys": "k-2", "tags": "paid", "properties": {"a": "2"}}]
    consumer = scene.push_consumer(
        topic, fails={"once": 1, "always": 99}, retry_level=1, max_reconsume_times=2
    )
    scene.producer().send(topic, letters)
    # good: 1, once: 2, always: the first delivery and two more.
    got = consumer.received(6)
    dead_topic = f"%DLQ%{scene.name('billing')}"
    scene.wait_for_route(dead_topic)
    dead = scene.push_consumer(dead_topic, "undertaker").received(1)
    return {"deliveries": seen(got), "dead": seen(dead), "topics": {m["topic"] for m in got}}


@scenario(needs="retry")
def a_message_can_be_sent_to_the_dead_letters_at_once(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    consumer = scene.push_consumer(topic, fails={"bad": 99}, retry_level=-1)
    scene.producer().send(topic, ["bad", "good"])
    got = consumer.received(2)
    dead_topic = f"%DLQ%{scene.name('billing')}"
    scene.wait_for_route(dead_topic)
    dead = scene.push_consumer(dead_topic, "undertaker").received(1)
    return {"deliveries": bodies(got), "dead": seen(dead)}


@scenario(needs="retry")
def a_failing_orderly_queue_is_retried_in_place(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    scene.producer().send(topic, ["m-0", "m-1", "m-2"])
    got = scene.push_consumer(topic, orderly=True, fails={"m-1": 2}).received(5)
    order = [message["body"] for message in got]
    check(order == ["m-0", "m-1", "m-1", "m-1", "m-2"], f"out of order: {order}")
    return {"order": order}


@scenario(needs="delay")
def delay_levels_deliver_later_and_never_early(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    consumer = scene.push_consumer(topic)
    levels = {"now": 0, "second": 1, "five": 2}
    sent = scene.producer().send(
        topic, [{"body": body, "delay_level": level} for body, level in levels.items()]
    )
    got = consumer.received(3)
    late = {m["body"]: m["at"] - m["born_at"] for m in got}
    check(late["second"] >= 1000 and late["five"] >= 5000, f"early: {late}")
    # The order in the queue: a consumer's threads may finish in another one.
    order = [m["body"] for m in sorted(got, key=lambda m: m["queue_offset"])]
    return {"statuses": statuses(sent), "messages": seen(got), "order": order}


@scenario(needs="delay")
def any_delivery_time_is_kept(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    consumer = scene.push_consumer(topic)
    timed: list[Message] = [
        {"body": "seconds", "system_properties": {"TIMER_DELAY_SEC": "3"}},
        {"body": "milliseconds", "system_properties": {"TIMER_DELAY_MS": "6000"}},
        {"body": "past", "system_properties": {"TIMER_DELIVER_MS": "1700000000000"}},
    ]
    producer = scene.producer()
    sent = producer.send(topic, timed)
    far = [{"body": "far", "system_properties": {"TIMER_DELAY_SEC": str(4 * 86_400)}}]
    refused = scene.refusal(lambda: producer.send(topic, far))
    got = consumer.received(3)
    late = {m["body"]: m["at"] - m["born_at"] for m in got}
    # Apache may be a second early.
    check(late["seconds"] >= 2000 and late["milliseconds"] >= 5000, f"early: {late}")
    return {"statuses": statuses(sent), "messages": seen(got), "far": refused}


@scenario(needs="transactions", lane="apart")
def transactions_commit_roll_back_and_are_asked_back(scene: Scene) -> Outcome:
    own = scene.own_cluster(QUICK_CHECKS)
    topic = own.topic(queues=1)
    consumer = own.push_consumer(topic)
    producer = own.transaction_producer()

    def half(body: str, execute: str, check: str = "UNKNOW") -> Message:
        return {"body": body, "keys": "k", "properties": {"execute": execute, "check": check}}

    sent = producer.send(
        topic,
        [
            half("committed", "COMMIT_MESSAGE"),
            half("rolled back", "ROLLBACK_MESSAGE"),
            half("committed later", "UNKNOW", "COMMIT_MESSAGE"),
            half("rolled back later", "UNKNOW", "ROLLBACK_MESSAGE"),
        ],
    )

    # Half messages that were already answered may be asked about as well, when the ask overtakes
    # the answer: only the open ones count.
    def asked() -> dict[str, int]:
        return {b: n for b, n in producer.checks().items() if b.endswith("later")}

    own.wait_until(lambda: len(asked()) == 2, "both open transactions are asked about")
    consumer.received(2)
    own.pause(1.0)
    # With checks this close together Apache may commit the same message twice.
    once = {message["body"]: message for message in consumer.received()}
    return {
        "statuses": statuses(sent),
        "asked": sorted(asked()),
        "messages": seen(list(once.values())),
    }


@scenario(needs="transactions")
def a_transaction_of_a_vanished_producer_is_ended_by_another_of_its_group(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    consumer = scene.push_consumer(topic)
    survivor = scene.transaction_producer()
    # A client says who it is to brokers that it knows, which its first message sees to.
    own = {"execute": "COMMIT_MESSAGE", "check": "COMMIT_MESSAGE"}
    survivor.send(topic, [{"body": "its own", "properties": own}])
    group = scene.name("transactions")
    fields = {"producerGroup": group, "topic": topic}
    scene.wait_until(
        lambda: raw.call(scene.cluster.broker, GET_PRODUCER_CONNECTIONS, fields).code == 0,
        "the broker knows the producer that stays",
    )
    _send_half(scene, topic, group, "left behind")
    # Its own may come twice, if the broker asks before it hears of the commit.
    scene.wait_until(lambda: "left behind" in consumer.bodies(), "the other's message")
    asked = survivor.checks().keys() & {"left behind"}
    return {"asked": sorted(asked), "bodies": sorted(set(consumer.bodies()))}


def _send_half(scene: Scene, topic: str, group: str, body: str) -> None:
    """A half message of a producer that is gone when the broker has answered."""
    pairs = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": f"half-{scene.suffix}"}
    pairs |= {"check": "COMMIT_MESSAGE", "WAIT": "true"}
    fields = {"producerGroup": group, "topic": topic, "queueId": "0", "sysFlag": "4", "flag": "0"}
    fields |= {"defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "reconsumeTimes": "0"}
    fields |= {"bornTimestamp": str(round(time.time() * 1000)), "unitMode": "false"}
    fields |= {"properties": "".join(f"{name}\x01{value}\x02" for name, value in pairs.items())}
    reply = raw.call(scene.cluster.broker, SEND_MESSAGE, fields, body.encode())
    check(reply.code == 0, f"half message refused: {reply.code} {reply.remark}")


@scenario(needs="transactions", lane="apart")
def a_transaction_that_nobody_knows_is_set_aside(scene: Scene) -> Outcome:
    own = scene.own_cluster(FEW_CHECKS)
    topic = own.topic(queues=1)
    consumer = own.push_consumer(topic)
    unknown = {"execute": "UNKNOW", "check": "UNKNOW"}
    producer = own.transaction_producer()
    producer.send(topic, [{"body": "forgotten", "keys": "k", "properties": unknown}])
    kept = {"topic": SET_ASIDE_TOPIC, "queueId": "0"}

    def is_kept() -> bool:
        reply = raw.call(own.cluster.broker, GET_MAX_OFFSET, kept)
        return reply.code == 0 and int(reply.fields["offset"]) > 0

    own.wait_until(is_kept, "it is set aside")
    record = records_of(own, SET_ASIDE_TOPIC)[0]
    told = decode_properties(record.properties)
    return {
        "delivered": bodies(consumer.received()),
        "kept": record.body.decode(),
        "keys": told["KEYS"],
        "questions": told["TRANSACTION_CHECK_TIMES"],
        "of": told["REAL_TOPIC"],
    }


@scenario(needs="sql92")
def a_sql92_filter_selects_by_properties(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    rows: list[Message] = []
    for number in range(12):
        properties: dict[str, Any] = {"a": str(number)} if number % 4 else {}
        properties |= {"colour": "green" if number % 2 else "red"}
        rows.append({"body": f"m-{number:02}", "tags": f"T{number % 3}", "properties": properties})
    scene.producer().send(topic, rows)
    expressions = {
        "between": ("a BETWEEN 1 AND 6", 5),
        "null": ("a IS NULL", 3),
        "both": ("(a > 4 OR colour IN ('red')) AND TAGS IS NOT NULL AND TAGS <> 'T0'", 7),
    }
    out = {}
    for word, (sql, count) in expressions.items():
        out[word] = bodies(scene.push_consumer(topic, word, sql=sql).received(count))
    return out


# The Go client does not report that its heartbeat and its pulls were refused.
@scenario(clients=(*JAVA, *PYTHON), needs="sql92")
def a_broken_sql92_expression_is_refused(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    refused = scene.refusal(lambda: scene.push_consumer(topic, sql="a BETWEEN AND (("))
    return {"refused": refused}


@scenario(needs="request-reply")
def a_request_gets_its_reply(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    replies = scene.producer(group=scene.name("repliers"))
    consumer = scene.push_consumer(topic, reply_producer=replies.name)
    asking = scene.producer(group=scene.name("askers"))
    asking.send(topic, ["hello"])
    consumer.received(1)
    ask = [{"body": "what?", "keys": "k-1"}]

    # The broker finds the asking client only after its heartbeat.
    def answered() -> bool:
        try:
            reply = asking.call("request", topic=topic, messages=ask, timeout_ms=10_000)
        except PeerError:
            return False
        return bool(reply == {"body": "reply to what?"})

    scene.wait_until(answered, "a reply")
    return {"asked": sorted(set(consumer.bodies()))}


@scenario(needs="retry")
def an_orderly_consumer_gives_up_after_its_limit(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    warm_up(scene, topic)
    consumer = scene.push_consumer(topic, orderly=True, fails={"m-1": 99}, max_reconsume_times=2)
    scene.producer().send(topic, ["m-0", "m-1", "m-2"])
    scene.wait_until(lambda: "m-2" in consumer.bodies(), "the queue goes on")
    dead_topic = f"%DLQ%{scene.name('billing')}"
    scene.wait_for_route(dead_topic)
    dead = scene.push_consumer(dead_topic, "undertaker").received(1)
    first = [m for m in consumer.received() if m["body"] != "m-1"]
    return {"others": bodies(first), "in_order": in_order(first), "dead": bodies(dead)}
