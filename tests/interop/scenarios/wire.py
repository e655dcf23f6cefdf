"""Answers that no client shows unchanged: requests written by hand, compared field by field."""

import json
import re
from typing import Any

from tests.interop import raw
from tests.interop.raw import RawReply
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

SEND, PULL, SEARCH, MAX, MIN, QUERY_OFFSET, UPDATE_OFFSET = 10, 11, 29, 30, 31, 14, 15
HEARTBEAT, UNREGISTER, CONSUMER_LIST, VIEW, CONSUME_STATS = 34, 35, 38, 33, 208
ROUTE, CLUSTER_INFO = 105, 106
NOT_FOUND = 22
RAW = ("raw",)
# Optional fields of a pull's answer that no client reads.
UNREAD = {"groupSysFlag", "topicSysFlag"}


@scenario(clients=RAW)
def the_route_of_a_topic_has_the_same_json(scene: Scene) -> Outcome:
    topic = scene.topic(queues=3)
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    standard = raw.call(scene.cluster.name_server, ROUTE, fields)
    # The Go client splits this text by hand: blanks after colons would break it.
    return {"answer": answer(standard), "text": scene.plain(standard.body.decode())}


@scenario(clients=RAW)
def the_route_of_an_unknown_topic_is_refused(scene: Scene) -> Outcome:
    reply = raw.call(scene.cluster.name_server, ROUTE, {"topic": scene.name("unknown")})
    return {"code": reply.code, "body": len(reply.body)}


@scenario(clients=RAW)
def the_consumer_list_of_a_group_has_the_same_json(scene: Scene) -> Outcome:
    topic, group = scene.topic(), scene.name("members")
    with raw.RawConnection(scene.cluster.broker) as connection:
        beat = connection.call(HEARTBEAT, body=heartbeat(group, topic))
        members = connection.call(CONSUMER_LIST, {"consumerGroup": group})
        gone = connection.call(UNREGISTER, {"clientID": "10.0.0.1@raw", "consumerGroup": group})
        empty = connection.call(CONSUMER_LIST, {"consumerGroup": group})
    return {
        "heartbeat": beat.code,
        "members": members.json(),
        "unregister": gone.code,
        "empty": {"code": empty.code, "body": len(empty.body)},
    }


@scenario(clients=RAW)
def a_send_written_by_hand_is_answered_alike(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    good = send(scene, topic)
    traced = {name: good.fields.get(name) for name in ("MSG_REGION", "TRACE_ON")}
    return {
        "good": {"code": good.code, "fields": set(good.fields), "queue": good.fields["queueId"]},
        "traced": traced,
        "offset": good.fields.get("queueOffset"),
        "queue_does_not_exist": refused(send(scene, topic, queue_id=9)),
        "any_queue": refused(send(scene, topic, queue_id=-1)),
        "blank_topic": refused(send(scene, "")),
        "illegal_topic": refused(send(scene, "a b")),
        "path_as_topic": refused(send(scene, "../../etc")),
        "long_topic": refused(send(scene, "x" * 128)),
        "system_topic": refused(send(scene, "SCHEDULE_TOPIC_XXXX")),
        "half_topic": refused(send(scene, "RMQ_SYS_TRANS_HALF_TOPIC")),
        "huge_body": refused(send(scene, topic, body=b"x" * (4 * 1024 * 1024 + 1))),
        "huge_properties": refused(send(scene, topic, properties="a\x01" + "x" * 32768 + "\x02")),
    }


@scenario(clients=RAW)
def offsets_asked_by_hand_are_answered_alike(scene: Scene) -> Outcome:
    topic, group = scene.topic(queues=1), scene.name("asking")
    broker = scene.cluster.broker
    where = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    empty = raw.call(broker, QUERY_OFFSET, where)
    # Apache's broker lets clients ask for the end, and skip what came in between: docs say why.
    answered = NOT_FOUND if scene.cluster.target == "apache" else 0
    check(empty.code == answered, f"an empty queue was answered {empty.code}, not {answered}")
    unknown_update = raw.call(broker, UPDATE_OFFSET, where | {"commitOffset": "2"})
    with raw.RawConnection(broker) as connection:
        connection.call(HEARTBEAT, body=heartbeat(group, topic))
    for number in range(3):
        send(scene, topic, body=f"m-{number}".encode(), queue_id=0)
    young = raw.call(broker, QUERY_OFFSET, where)
    update = raw.call(broker, UPDATE_OFFSET, where | {"commitOffset": "2"})
    stored = raw.call(broker, QUERY_OFFSET, where)
    other = raw.call(broker, QUERY_OFFSET, where | {"queueId": "7"})
    return {
        "unknown_group": unknown_update.code,
        "young": answer(young),
        "update": update.code,
        "stored": answer(stored),
        "no_such_queue": answer(other),
        "max": answer(raw.call(broker, MAX, {"topic": topic, "queueId": "0"})),
        "min": answer(raw.call(broker, MIN, {"topic": topic, "queueId": "0"})),
        "max_unknown_topic": answer(raw.call(broker, MAX, {"topic": "never", "queueId": "0"})),
        "search": answer(
            raw.call(broker, SEARCH, {"topic": topic, "queueId": "0", "timestamp": "0"})
        ),
    }


@scenario(clients=RAW)
def pulls_written_by_hand_are_answered_alike(scene: Scene) -> Outcome:
    topic, group = scene.topic(queues=1), scene.name("pulling")
    for number in range(3):
        send(scene, topic, body=f"m-{number}".encode(), queue_id=0)
    with raw.RawConnection(scene.cluster.broker) as connection:
        connection.call(HEARTBEAT, body=heartbeat(group, topic))

        def pull(offset: int, **changes: str) -> dict[str, Any]:
            reply = connection.call(PULL, pull_fields(group, topic, offset) | changes)
            return answer(reply) | {"bytes": bool(reply.body)}

        return {
            "found": pull(0),
            "at_the_end": pull(3),
            "beyond": pull(100),
            "before": pull(-1),
            "tag": pull(0, subscription="never"),
            "no_such_queue": pull(0, queueId="5"),
            "no_such_topic": pull(0, topic="never"),
            "zero": pull(0, maxMsgNums="0"),
        }


@scenario(clients=RAW, needs="statistics", compared=False)
def what_was_pulled_and_not_committed_is_in_flight(scene: Scene) -> Outcome:
    topic, group = scene.topic(queues=1), scene.name("pulling")
    for number in range(3):
        send(scene, topic, body=f"m-{number}".encode(), queue_id=0)
    with raw.RawConnection(scene.cluster.broker) as connection:
        connection.call(HEARTBEAT, body=heartbeat(group, topic))

        def shown() -> list[int]:
            stats = connection.call(CONSUME_STATS, {"consumerGroup": group, "topic": topic})
            # Maps with objects for keys are not JSON that Python can read.
            names = ("brokerOffset", "pullOffset", "consumerOffset")
            found = [re.search(rf'"{name}":(\d+)', stats.body.decode()) for name in names]
            return [int(one[1]) if one else -1 for one in found]

        at = {"consumerGroup": group, "topic": topic, "queueId": "0"}
        connection.call(UPDATE_OFFSET, at | {"commitOffset": "1"})
        before = shown()
        connection.call(PULL, pull_fields(group, topic, 1) | {"maxMsgNums": "1"})
        pulled = shown()
        connection.call(UPDATE_OFFSET, at | {"commitOffset": "2"})
        committed = shown()
    check(before == [3, 1, 1], f"before the pull: {before}")
    check(pulled == [3, 2, 1], f"one message in flight: {pulled}")
    check(committed == [3, 2, 2], f"after the commit: {committed}")
    return {"queue": committed}


@scenario(clients=RAW)
def what_is_not_understood_is_answered(scene: Scene) -> Outcome:
    broker, server = scene.cluster.broker, scene.cluster.name_server
    return {
        "unknown_code": raw.call(broker, 32000).code,
        "unknown_code_at_the_name_server": raw.call(server, 32000).code,
        "missing_field": raw.call(broker, MAX, {"queueId": "0"}).code,
        "not_a_number": raw.call(broker, MAX, {"topic": "t", "queueId": "many"}).code,
        "view_nothing": raw.call(broker, VIEW, {"offset": "123456789"}).code,
    }


def send(
    scene: Scene,
    topic: str,
    *,
    queue_id: int = 1,
    body: bytes = b"hello",
    properties: str = "TAGS\x01paid\x02",
) -> RawReply:
    """One SEND_MESSAGE with long field names."""
    fields = {"producerGroup": scene.name("by-hand"), "topic": topic, "defaultTopic": "TBW102"}
    fields |= {"defaultTopicQueueNums": "4", "queueId": str(queue_id), "sysFlag": "0"}
    fields |= {"bornTimestamp": "1700000000000", "flag": "0", "properties": properties}
    fields |= {"reconsumeTimes": "0", "unitMode": "false", "batch": "false"}
    return raw.call(scene.cluster.broker, SEND, fields, body)


def pull_fields(group: str, topic: str, offset: int) -> dict[str, str]:
    """A pull from queue 0 that does not wait."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": "0"}
    fields |= {"queueOffset": str(offset), "maxMsgNums": "32", "commitOffset": "0"}
    fields |= {"sysFlag": "4", "suspendTimeoutMillis": "0", "subscription": "*"}
    return fields | {"subVersion": "0", "expressionType": "TAG"}


def heartbeat(group: str, topic: str) -> bytes:
    """A push consumer's heartbeat."""
    subscription: dict[str, Any] = {
        "classFilterMode": False,
        "codeSet": [],
        "expressionType": "TAG",
    }
    subscription |= {"subString": "*", "subVersion": 1, "tagsSet": [], "topic": topic}
    consumer: dict[str, Any] = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET"}
    consumer |= {
        "consumeType": "CONSUME_PASSIVELY",
        "groupName": group,
        "messageModel": "CLUSTERING",
        "unitMode": False,
    }
    data: dict[str, Any] = {"clientID": "10.0.0.1@raw", "producerDataSet": []}
    data |= {"consumerDataSet": [consumer | {"subscriptionDataSet": [subscription]}]}
    return json.dumps(data).encode()


def answer(reply: RawReply) -> dict[str, Any]:
    """Code, fields and JSON body of an answer."""
    body = reply.json() if reply.body.startswith(b"{") else None
    fields = {name: value for name, value in reply.fields.items() if name not in UNREAD}
    return {"code": reply.code, "fields": fields, "body": body}


def refused(reply: RawReply) -> int:
    """The code alone: texts may differ, and ours say more."""
    return reply.code
