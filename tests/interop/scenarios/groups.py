"""What operators see and do with live groups: progress, connections, reset, running information."""

import re
from typing import Any

from tests.interop import raw
from tests.interop.handles import PushConsumer
from tests.interop.outcomes import bodies
from tests.interop.peers import PeerError
from tests.interop.registry import Outcome, scenario
from tests.interop.scenarios.administration import JAVA5, printed
from tests.interop.scene import Scene

QUERY_OFFSET = 14


def consumed(scene: Scene) -> tuple[str, PushConsumer]:
    """A topic whose ten messages a group has consumed and committed."""
    topic = scene.topic(queues=2)
    scene.producer().send(topic, [f"m-{n}" for n in range(10)])
    consumer = scene.push_consumer(topic, persist_ms=200)
    consumer.received(10)
    scene.wait_until_committed(topic, 10)
    return topic, consumer


def lag(stats: dict[str, Any]) -> list[list[Any]]:
    """Rows of (topic, queue, broker offset, consumer offset)."""
    rows = [
        [queue["topic"], queue["queueId"], at["brokerOffset"], at["consumerOffset"]]
        for queue, at in stats["offsetTable"]
        if not queue["topic"].startswith("%RETRY%")
    ]
    return sorted(rows)


@scenario(clients=JAVA5, needs="statistics")
def the_progress_of_a_group_is_told(scene: Scene) -> Outcome:
    topic, _ = consumed(scene)
    group = scene.name("billing")
    total = [5, 5]
    scene.wait_until(
        lambda: [row[3] for row in lag(scene.admin("examineConsumeStats", group))] == total,
        "the group's offsets are committed",
    )
    stats = scene.admin("examineTopicStats", topic)
    by_queue = sorted(
        [queue["queueId"], at["minOffset"], at["maxOffset"]] for queue, at in stats["offsetTable"]
    )
    progress = printed(scene.mqadmin("consumerProgress", "-g", group), only=topic)
    # A member may end before it has stored where it stands in its retry topic.
    topics = scene.admin("queryTopicsByConsumer", group)["topicList"]
    return {
        "lag": lag(scene.admin("examineConsumeStats", group)),
        "topic": by_queue,
        "groups": scene.admin("queryTopicConsumeByWho", topic)["groupList"],
        "topics": sorted(name for name in topics if not name.startswith("%RETRY%")),
        "consumerProgress": [line.split()[:6] for line in progress],
        "topicStatus": printed(scene.mqadmin("topicStatus", "-t", topic), only="broker-a"),
    }


@scenario(clients=JAVA5, needs="statistics")
def the_connections_of_a_group_are_told(scene: Scene) -> Outcome:
    topic, _ = consumed(scene)
    group = scene.name("billing")
    info = scene.admin("examineConsumerConnectionInfo", group, signature="String")
    for connection in info["connectionSet"]:
        connection["clientId"] = re.sub(r".*@", "", connection["clientId"])
    for subscription in info["subscriptionTable"].values():
        subscription["subVersion"] = "…"
    # A producer that knew no broker at its first heartbeat sends the next one 30 s later.
    known: list[Any] = []

    def producer_is_known() -> bool:
        try:
            told = scene.admin("examineProducerConnectionInfo", scene.name("producers"), topic)
        except PeerError:
            return False
        known[:] = told["connectionSet"]
        return bool(known)

    scene.wait_until(producer_is_known, "the producer is connected")
    return {"consumers": info, "producers": len(known)}


@scenario(clients=JAVA5, needs="statistics")
def running_information_is_passed_through(scene: Scene) -> Outcome:
    topic, _ = consumed(scene)
    group = scene.name("billing")
    connections = scene.admin("examineConsumerConnectionInfo", group, signature="String")
    client = connections["connectionSet"][0]["clientId"]
    info = scene.admin("getConsumerRunningInfo", group, client, False)
    held = sorted(queue["queueId"] for queue, _ in info["mqTable"] if queue["topic"] == topic)
    unknown = scene.refusal(lambda: scene.admin("getConsumerRunningInfo", group, "nobody", False))
    return {
        "queues": held,
        "orderly": info["properties"]["PROP_CONSUMEORDERLY"],
        "topics": sorted(one["topic"] for one in info["subscriptionSet"]),
        "unknown": unknown,
    }


@scenario(clients=JAVA5, needs="reset")
def a_reset_brings_the_messages_again(scene: Scene) -> Outcome:
    topic, consumer = consumed(scene)
    group = scene.name("billing")
    reset = scene.admin("resetOffsetByTimestamp", topic, group, 0, True)
    got = consumer.received(20)
    return {
        "offsets": sorted([queue["queueId"], offset] for queue, offset in reset),
        "bodies": bodies(got),
    }


@scenario(clients=JAVA5, needs="reset")
def offsets_are_cloned_to_another_group(scene: Scene) -> Outcome:
    topic, consumer = consumed(scene)
    group, heir = scene.name("billing"), scene.name("heir")
    consumer.stop()
    broker = scene.cluster.broker
    scene.admin("createAndUpdateSubscriptionGroupConfig", broker, {"groupName": heir})
    scene.admin("cloneGroupOffset", group, heir, topic, False)
    where = {"consumerGroup": heir, "topic": topic}
    stored = [raw.call(broker, QUERY_OFFSET, where | {"queueId": str(q)}) for q in range(2)]
    return {"heir": [reply.fields for reply in stored]}
