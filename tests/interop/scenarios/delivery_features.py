"""Delivery features of 5.x clients and of operators: recall, traces, policies, switches."""

import threading
import time
from typing import Any

from sparrowmq import ConsumeFromWhere, blocking
from sparrowmq import Message as OwnMessage
from sparrowmq.protocol.trace import TraceStep, parse_trace
from tests.interop.cluster import Settings
from tests.interop.handles import PATIENCE_S, Handle, Message, PushConsumer
from tests.interop.outcomes import bodies, seen, statuses
from tests.interop.registry import JAVA, Outcome, check, scenario
from tests.interop.scenarios.administration import JAVA5, printed
from tests.interop.scenarios.delivery import records_of, warm_up
from tests.interop.scene import Scene

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRACED = Settings(properties=(("traceTopicEnable", "true"),))
RECALLING = Settings(properties=(("recallMessageEnable", "true"), ("traceTopicEnable", "true")))
REBALANCE_S = 20.0
"""How often members look for themselves."""


class RecallingProducer(Handle):
    """A producer of 5.x that keeps the handles of its timed messages, and traces what it does."""

    KIND = "recalling"

    def send(self, topic: str, messages: list[Message]) -> list[dict[str, str]]:
        """Send; handle and unique id of each."""
        return list(self.call("recalling_send", topic=topic, messages=messages))

    def recall(self, topic: str, handle: str) -> str:
        """Take a message back; its unique id."""
        return str(self.call("recalling_recall", topic=topic, handle=handle))


def recalling(scene: Scene) -> RecallingProducer:
    name, server = f"recalling-{scene.suffix}", scene.cluster.name_server
    producer = RecallingProducer(scene.peer, name, server, group=scene.name("recallers"))
    scene.closing(producer.stop)
    return producer


def timed(body: str, seconds: int) -> Message:
    return {"body": body, "system_properties": {"TIMER_DELAY_SEC": str(seconds)}}


@scenario(clients=JAVA5, needs="delay", lane="apart")
def a_recalled_message_is_not_delivered(scene: Scene) -> Outcome:
    own = scene.own_cluster(RECALLING)
    topic = own.topic(queues=1)
    own.wait_for_route(TRACE_TOPIC)
    consumer = own.push_consumer(topic)
    producer = recalling(own)
    # Time enough to recall it even if the machine freezes for a while.
    waits = [timed("taken back", 20), timed("before", 16), timed("after", 22)]
    sent = producer.send(topic, waits)
    recalled = producer.recall(topic, sent[0]["handle"])
    got = consumer.received(2)
    own.pause(1.0)
    plain = producer.send(topic, [{"body": "plain"}])
    own.wait_until(lambda: recalled in _recalls(own), "a trace of the recall")
    trace = _recalls(own)[recalled]
    check(trace.topic == topic and trace.is_ok is True, f"the trace of the recall is {trace}")
    return {
        "delivered": bodies(consumer.received(3)),
        "same_id": recalled == sent[0]["unique_id"],
        "first": bodies(got),
        "handles": [one["handle"] is not None for one in [*sent, *plain]],
        "no_handle": scene.refusal(lambda: producer.recall(topic, "nonsense")),
        "other_topic": scene.refusal(lambda: producer.recall(own.name("other"), sent[1]["handle"])),
    }


@scenario(clients=JAVA5, needs="core", lane="apart")
def traces_of_clients_are_messages_like_others(scene: Scene) -> Outcome:
    own = scene.own_cluster(TRACED)
    topic = own.topic(queues=1)
    own.wait_for_route(TRACE_TOPIC)
    reader = own.push_consumer(TRACE_TOPIC, "tracers")
    came = scene.peer.call(
        "traced",
        name_server=own.cluster.name_server,
        name=f"traced-{scene.suffix}",
        group=own.name("senders"),
        consumers=own.name("billing"),
        topic=topic,
        messages=[{"body": f"m-{n}", "keys": f"k-{n}", "tags": "paid"} for n in range(3)],
        timeout_ms=240_000,
    )

    own.wait_until(lambda: len(_traces(own)) == 9, "a trace of every send and every delivery")

    def keys() -> list[str]:
        found = {key for one in reader.received() for key in one["properties"]["KEYS"].split()}
        return sorted(key for key in found if key.startswith("k-"))

    # In how many messages the traces come depends on how fast the client is.
    own.wait_until(lambda: len(keys()) >= 3, "the keys of all traces")
    return {"consumed": came, "traces": _traces(own), "keys": keys()}


@scenario(clients=("go",), needs="core", lane="apart")
def a_traced_producer_sends_a_trace_of_every_message(scene: Scene) -> Outcome:
    own = scene.own_cluster(TRACED)
    topic = own.topic(queues=1)
    own.wait_for_route(TRACE_TOPIC)
    letters: list[Message] = [{"body": f"m-{n}", "keys": f"k-{n}"} for n in range(3)]
    sent = own.producer(trace=True).send(topic, letters)
    own.wait_until(lambda: len(_traces(own)) == 3, "a trace of every send")
    return {"statuses": statuses(sent), "traces": _traces(own)}


@scenario(clients=JAVA5, needs="core", lane="apart")
def mqadmin_shows_both_halves_of_the_trace_of_our_own_client(scene: Scene) -> Outcome:
    own = scene.own_cluster(TRACED)
    topic = own.topic(queues=1)
    own.wait_for_route(TRACE_TOPIC)
    consumed = threading.Event()
    servers = own.cluster.name_server
    with (
        blocking.Producer(own.name("senders"), name_servers=servers, trace=True) as producer,
        blocking.PushConsumer(
            own.name("billing"),
            {topic: "*"},
            name_servers=servers,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            trace=True,
        ) as consumer,
    ):
        consumer.start(each=lambda message: consumed.set())
        sent = producer.send(OwnMessage(topic, b"m-0", keys="k-0"))
        check(consumed.wait(PATIENCE_S), "the message was not consumed")
    own.wait_until(lambda: len(_traces(own)) == 3, "a trace of the send and of the delivery")

    def halves() -> list[list[str]]:
        """Kind, group and status of each line that mqadmin prints of the message."""
        lines = [
            line.split()
            for line in own.mqadmin("queryMsgTraceById", "-i", sent.msg_id).splitlines()
        ]
        kinds = [words for words in lines if words and words[0] in ("Pub", "Sub")]
        return sorted([words[0], words[1], words[-1]] for words in kinds)

    own.wait_until(lambda: len(halves()) == 2, "both halves in what mqadmin prints")
    return {"halves": halves(), "traces": _traces(own)}


def _traces(scene: Scene) -> list[tuple[str, ...]]:
    """What the records in the trace topic tell: kind, topic or group, and key of the message."""
    found: set[tuple[str, ...]] = set()
    for record in records_of(scene, TRACE_TOPIC):
        for line in record.body.decode().split("\x02"):
            values = line.split("\x01")
            places = {"Pub": (0, 4, 7), "SubBefore": (0, 3, 7), "SubAfter": (0, 5)}.get(values[0])
            if places is not None:
                found.add(tuple(values[place] for place in places))
    return sorted(found)


def _recalls(scene: Scene) -> dict[str, TraceStep]:
    """The recalls in the trace topic, by the ids of their messages."""
    texts = [record.body.decode() for record in records_of(scene, TRACE_TOPIC)]
    steps = (step for text in texts for step in parse_trace(text))
    return {step.msg_id: step for step in steps if step.kind == "Recall"}


@scenario(clients=JAVA, needs="core")
def the_vip_channel_leads_to_the_same_broker(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    consumer = scene.push_consumer(topic, vip_channel=True)
    sent = scene.producer(vip_channel=True).send(topic, [f"m-{n}" for n in range(6)])
    return {"statuses": statuses(sent), "bodies": bodies(consumer.received(6))}


POLICIES: dict[str, tuple[dict[str, Any], int]] = {
    # The third of the customised ones is the first that counts, as Apache counts them.
    "customised": (
        {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 1000, 2000, 2000]}},
        2_000,
    ),
    "exponential": (
        {
            "type": "EXPONENTIAL",
            "exponentialRetryPolicy": {"initial": 2500, "max": 60_000, "multiplier": 2},
        },
        2_500,
    ),
}
"""Policies of groups, and how long each lets the first retry wait."""
LEVEL_3_MS = 10_000


@scenario(clients=JAVA5, needs="retry")
def a_group_with_a_retry_policy_retries_and_gives_up(scene: Scene) -> Outcome:
    """Apache's broker uses the policy for its gRPC clients only and waits for level 3.

    The properties of a retry show its delay, even if a busy machine delivers it late.
    """
    producer = scene.producer()
    topics = {word: scene.topic(word, queues=1) for word in POLICIES}
    consumers = {word: _failing_member(scene, word, topics[word]) for word in POLICIES}
    for topic in topics.values():
        producer.send(topic, ["bad"])
    out: Outcome = {}
    for word, (_, wait_ms) in POLICIES.items():
        got = consumers[word].received(2)
        is_ours = scene.cluster.target == "sparrow"
        least_ms = wait_ms if is_ours else LEVEL_3_MS
        asked_ms, waited_ms = _asked_ms(got[1]), got[1]["stored_at"] - got[0]["at"]
        check(asked_ms == least_ms, f"{word}: waits {asked_ms} ms, not {least_ms}")
        check(waited_ms >= least_ms, f"{word}: early, after {waited_ms} ms")
        group = scene.name(f"{word}-group")
        dead_topic = f"%DLQ%{group}"
        scene.wait_for_route(dead_topic)
        dead = scene.push_consumer(dead_topic, f"{word}-undertaker").received(1)
        read_back = scene.admin("examineSubscriptionGroupConfig", scene.cluster.broker, group)
        out[word] = {"config": read_back, "deliveries": bodies(got), "dead": bodies(dead)}
    return out


def _failing_member(scene: Scene, word: str, topic: str) -> PushConsumer:
    group, broker = f"{word}-group", scene.cluster.broker
    config = {"groupName": scene.name(group), "retryMaxTimes": 1, "retryQueueNums": 1}
    config |= {"groupRetryPolicy": POLICIES[word][0]}
    scene.admin("createAndUpdateSubscriptionGroupConfig", broker, config)
    warm_up(scene, topic, group)
    return scene.push_consumer(topic, group, fails={"bad": 99}, max_reconsume_times=1)


def _asked_ms(message: Message) -> int:
    """How long a retry had to wait: for a time, or for a level."""
    told = message["properties"]
    if "TIMER_DELAY_MS" in told:
        return int(told["TIMER_DELAY_MS"])
    return LEVEL_3_MS if told["DELAY"] == "3" else 0


@scenario(clients=JAVA5, needs="core")
def members_learn_of_others_at_once_unless_their_group_is_not_told(scene: Scene) -> Outcome:
    return {word: _learns_at_once(scene, word, word == "told") for word in ("told", "silent")}


def _learns_at_once(scene: Scene, word: str, is_told: bool) -> bool:
    """Whether a member gives queues away before it would have looked for itself.

    On a busy machine the second member may be too late to tell; then it is tried again.
    """
    for attempt in range(5):
        topic, group = scene.topic(f"{word}-{attempt}", queues=4), f"{word}-{attempt}-group"
        config = {"groupName": scene.name(group), "notifyConsumerIdsChangedEnable": is_told}
        broker = scene.cluster.broker
        scene.admin("createAndUpdateSubscriptionGroupConfig", broker, config)
        warm_up(scene, topic, group)
        # Counted from before its start, which takes a while on a busy machine.
        looks_at_s = time.monotonic() + REBALANCE_S
        first = scene.push_consumer(topic, group)
        scene.wait_until(lambda: _held(first) == 4, "the first member holds all")  # noqa: B023
        second = scene.push_consumer(topic, group)
        scene.wait_until(lambda: _held(second) == 2, "the second has its share")  # noqa: B023
        has_time = time.monotonic() < looks_at_s - REBALANCE_S / 2
        while _held(first) == 4 and time.monotonic() < looks_at_s - 4:
            scene.pause(0.2)
        has_moved = _held(first) == 2
        if has_moved and time.monotonic() < looks_at_s - 2:
            return True
        scene.wait_until(lambda: _held(first) == 2, "the first gave two away")  # noqa: B023
        # A notified member may be delayed as well, so only a consistent difference counts.
        if has_time and not has_moved and not (is_told and attempt < 4):
            return False
    raise TimeoutError("the members took too long to tell who told them")


def _held(consumer: Handle) -> int:
    return len(consumer.call("push_assigned"))


@scenario(clients=JAVA5, needs="statistics")
def a_message_is_consumed_directly_by_a_member(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    sent = scene.producer().send(topic, [{"body": "m", "keys": "k"}])
    consumer = scene.push_consumer(topic)
    consumer.received(1)
    group = scene.name("billing")
    members = scene.admin("examineConsumerConnectionInfo", group, signature="String")
    client = members["connectionSet"][0]["clientId"]
    directly = scene.admin("consumeMessageDirectly", group, client, topic, sent[0]["offset_id"])
    directly.pop("spentTimeMills")
    got = consumer.received(2)
    status = scene.admin("getConsumeStatus", topic, group, client)
    offsets = [[queue["queueId"], at] for rows in status.values() for queue, at in rows]
    nobody = scene.refusal(
        lambda: scene.admin("consumeMessageDirectly", group, "nobody", topic, sent[0]["offset_id"])
    )
    return {"result": directly, "seen": seen(got), "status": offsets, "nobody": nobody}


@scenario(clients=JAVA5, needs="reset")
def mqadmin_moves_groups_and_tells_of_them(scene: Scene) -> Outcome:
    topic, group, heir = scene.topic(queues=2), scene.name("billing"), scene.name("heir")
    broker = scene.cluster.broker
    scene.producer().send(topic, [f"m-{n}" for n in range(10)])
    consumer = scene.push_consumer(topic, persist_ms=200)
    consumer.received(10)
    scene.wait_until_committed(topic, 10)
    members = scene.admin("examineConsumerConnectionInfo", group, signature="String")
    client = members["connectionSet"][0]["clientId"]
    connected = printed(scene.mqadmin("consumerConnection", "-g", group), only=topic)
    status = printed(scene.mqadmin("consumerStatus", "-g", group, "-i", client), only=topic)
    consumer.stop()
    reset = printed(scene.mqadmin("resetOffsetByTime", "-g", group, "-t", topic, "-s", "0"))
    again = scene.push_consumer(topic, persist_ms=200)
    scene.wait_until(lambda: len(again.bodies()) >= 10, "the messages come again")
    scene.wait_until_committed(topic, 10)
    again.stop()
    scene.mqadmin("updateSubGroup", "-b", broker, "-g", heir)
    where = ("-s", group, "-d", heir, "-t", topic)
    cloned = printed(scene.mqadmin("cloneGroupOffset", *where))
    scene.producer().send(topic, ["late"] * 4)
    skipped = printed(scene.mqadmin("skipAccumulatedMessage", "-g", heir, "-t", topic))
    lag = printed(scene.mqadmin("brokerConsumeStats", "-b", broker), only=topic)
    return {
        # Sorted all of them: mqadmin prints queues in the order of hashes of their topic's name.
        "consumerConnection": sorted(connected),
        # The queues, and what was pulled from them; the rates depend on the moment.
        "consumerStatus": sorted(line.split()[:3] for line in status if "broker-a" in line),
        "resetOffsetByTime": sorted(line.split()[:4] for line in reset if "broker-a" in line),
        "cloneGroupOffset": cloned,
        "skipAccumulatedMessage": sorted(
            line.split()[:4] for line in skipped if "broker-a" in line
        ),
        "brokerConsumeStats": sorted(line.split()[:7] for line in lag),
        "statsAll": len(printed(scene.mqadmin("statsAll", "-t", topic), only=topic)) > 0,
    }
