"""Operators' requests through Apache's administration client and its mqadmin command line."""

import re
from typing import Any

from tests.interop import outcomes
from tests.interop.registry import Outcome, check, scenario
from tests.interop.scene import Scene

JAVA5 = ("java5",)
NOISE = (
    (r"\b[0-9A-F]{32,}\b", "<id>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,.]\d+", "<time>"),
    (r"\b1[5-9]\d{11}\b", "<ms>"),
    (r"/tmp/rocketmq/\S+", "<path>"),
    (r"\b\d+(\.\d+){3}@", "<ip>@"),
    (r"\bV\d_\d+_\d+(_SNAPSHOT)?\b", "<version>"),
    (r"storeSize=\d+", "storeSize=<n>"),
    (rf"\s*{outcomes.RECORD_CRC}=\d+,?", ""),
    (r"(CommitLog Offset:|commitLogOffset=|physicOffset=)\s*\d+", r"\1<n>"),
)

# What clusterList prints, and what consoles read.
RUNTIME_KEYS = (
    "brokerVersionDesc",
    "bootTimestamp",
    "msgPutTotalTodayNow",
    "msgGetTotalTodayNow",
    "putTps",
    "getTotalTps",
    "getTransferredTps",
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "commitLogMinOffset",
    "commitLogMaxOffset",
    "commitLogDiskRatio",
    "consumeQueueDiskRatio",
    "dispatchBehindBytes",
    "earliestMessageTimeStamp",
    "runtime",
    "sendThreadPoolQueueSize",
    "pullThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills",
    "pullThreadPoolQueueHeadWaitTimeMills",
    "pageCacheLockTimeMills",
    "putMessageTimesTotal",
    "brokerActive",
    "timerReadBehind",
    "timerOffsetBehind",
)


def printed(text: str, *, only: str = "") -> list[str]:
    """What mqadmin printed: lines (those with a word) with single blanks, ids and times blanked."""
    for pattern, word in NOISE:
        text = re.sub(pattern, word, text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [line for line in lines if line and only in line]


def entries(line: str) -> list[str]:
    """A line that prints a Java map, as sorted pieces: the order means nothing."""
    return sorted(re.split(r"[{}, ]+", line))


@scenario(clients=JAVA5, needs="admin")
def a_topic_is_created_changed_and_deleted(scene: Scene) -> Outcome:
    topic, broker = scene.name("made"), scene.cluster.broker
    config = {"topicName": topic, "readQueueNums": 3, "writeQueueNums": 2, "perm": 6}
    scene.admin("createAndUpdateTopicConfig", broker, config | {"topicFilterType": "SINGLE_TAG"})
    scene.wait_for_route(topic)
    made = scene.admin("examineTopicConfig", broker, topic)
    route = scene.admin("examineTopicRouteInfo", topic)["queueDatas"]
    scene.admin("createAndUpdateTopicConfig", broker, config | {"readQueueNums": 5, "perm": 4})
    changed = scene.admin("examineTopicConfig", broker, topic)
    listed = topic in scene.admin("fetchAllTopicList")["topicList"]
    by_cluster = topic in scene.admin("fetchTopicsByCLuster", "DefaultCluster")["topicList"]
    scene.admin("deleteTopic", topic, "DefaultCluster")
    return {
        "made": made,
        "route": route,
        "changed": changed,
        "listed": [listed, by_cluster],
        "gone": scene.refusal(lambda: scene.admin("examineTopicRouteInfo", topic)),
        "gone_from_broker": scene.refusal(lambda: scene.admin("examineTopicConfig", broker, topic)),
    }


@scenario(clients=JAVA5, needs="admin")
def an_illegal_topic_is_not_created(scene: Scene) -> Outcome:
    broker = scene.cluster.broker

    def create(topic: str, **changes: Any) -> dict[str, Any]:
        config = {"topicName": topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        config |= {"topicFilterType": "SINGLE_TAG"} | changes
        return scene.refusal(lambda: scene.admin("createAndUpdateTopicConfig", broker, config))

    return {
        "blank": create("a b"),
        "path": create("../x"),
        "long": create("x" * 128),
        "system": create("SCHEDULE_TOPIC_XXXX"),
        "cluster": create("DefaultCluster"),
    }


@scenario(clients=JAVA5, needs="admin")
def a_group_is_created_changed_and_deleted(scene: Scene) -> Outcome:
    group, broker = scene.name("made"), scene.cluster.broker
    config = {"groupName": group, "consumeEnable": True, "retryMaxTimes": 3, "retryQueueNums": 1}
    scene.admin("createAndUpdateSubscriptionGroupConfig", broker, config)
    made = scene.admin("examineSubscriptionGroupConfig", broker, group)
    config |= {"retryMaxTimes": 5, "consumeBroadcastEnable": False}
    scene.admin("createAndUpdateSubscriptionGroupConfig", broker, config)
    changed = scene.admin("examineSubscriptionGroupConfig", broker, group)
    listed = scene.admin("getAllSubscriptionGroup", broker, 5000)["subscriptionGroupTable"]
    scene.admin("deleteSubscriptionGroup", broker, group, True)
    after = scene.admin("getAllSubscriptionGroup", broker, 5000)["subscriptionGroupTable"]
    return {
        "made": made,
        "changed": changed,
        "listed": group in listed,
        "still_listed": group in after,
    }


@scenario(clients=JAVA5, needs="admin")
def the_cluster_is_shown(scene: Scene) -> Outcome:
    info = scene.admin("examineBrokerClusterInfo")
    runtime = scene.admin("fetchBrokerRuntimeStats", scene.cluster.broker)["table"]
    return {"info": info, "missing": [key for key in RUNTIME_KEYS if key not in runtime]}


@scenario(clients=JAVA5, needs="statistics")
def what_the_prometheus_exporter_asks_for_is_counted(scene: Scene) -> Outcome:
    topic, broker = scene.topic(queues=1), scene.cluster.broker
    scene.producer().send(topic, ["m-0", "m-1"])
    scene.push_consumer(topic, fails={"m-1": 1}, retry_level=1).received(3)
    read = f"{topic}@{scene.name('billing')}"
    asked = {
        ("TOPIC_PUT_NUMS", topic),
        ("TOPIC_PUT_SIZE", topic),
        ("GROUP_GET_NUMS", read),
        ("GROUP_GET_SIZE", read),
        ("SNDBCK_PUT_NUMS", read),
        ("BROKER_PUT_NUMS", "DefaultCluster"),
        ("BROKER_GET_NUMS", "DefaultCluster"),
    }
    return {name: _counted(scene, broker, name, key) for name, key in sorted(asked)}


def _counted(scene: Scene, broker: str, name: str, key: str) -> Outcome:
    """The spans of a counter and what each has, as soon as something is counted."""

    def view() -> Any:
        return scene.admin("viewBrokerStatsData", broker, name, key)

    scene.wait_until(lambda: scene.refusal(view) == {"raises": None}, f"{name} of {key} is counted")
    return {span: sorted(values) for span, values in view().items()}


@scenario(clients=JAVA5, needs="admin")
def the_broker_config_is_read_and_one_key_changed(scene: Scene) -> Outcome:
    broker = scene.cluster.broker
    before = scene.admin("getBrokerConfig", broker)
    scene.admin("updateBrokerConfig", broker, {"fileReservedTime": "49"})
    after = scene.admin("getBrokerConfig", broker)
    scene.admin("updateBrokerConfig", broker, {"fileReservedTime": before["fileReservedTime"]})
    names = ["brokerName", "brokerClusterName", "brokerId", "listenPort", "autoCreateTopicEnable"]
    names += ["flushDiskType", "brokerRole", "maxMessageSize", "defaultTopicQueueNums"]
    shown = {name: before.get(name) for name in names}
    shown["listenPort"] = shown["listenPort"] == str(scene.cluster.broker_port)
    refused = scene.refusal(
        lambda: scene.admin("updateBrokerConfig", broker, {"brokerConfigPath": "/etc/passwd"})
    )
    check(refused["raises"] is not None, "a path was changed over the wire")
    return {"shown": shown, "changed": after["fileReservedTime"], "path": refused["code"]}


@scenario(clients=JAVA5, needs="admin")
def the_name_server_keeps_key_values(scene: Scene) -> Outcome:
    space, key = scene.name("space"), "colour"
    unknown = scene.refusal(lambda: scene.admin("getKVConfig", space, key))
    scene.admin("createAndUpdateKvConfig", space, key, "green")
    value = scene.admin("getKVConfig", space, key)
    listed = scene.admin("getKVListByNamespace", space)
    scene.admin("deleteKvConfig", space, key)
    gone = scene.refusal(lambda: scene.admin("getKVConfig", space, key))
    return {"unknown": unknown, "value": value, "listed": listed, "gone": gone}


@scenario(clients=JAVA5, needs="admin", lane="alone")
def a_broker_without_write_permission_gets_no_sends(scene: Scene) -> Outcome:
    topic = scene.topic(queues=2)
    wiped = scene.mqadmin("wipeWritePerm", "-b", "broker-a")
    route = scene.admin("examineTopicRouteInfo", topic)["queueDatas"]
    producer = scene.producer()
    refused = scene.refusal(lambda: producer.send(topic, ["m"]))
    added = scene.mqadmin("addWritePerm", "-b", "broker-a")
    sent = producer.send(topic, ["m"])
    count = re.compile(r"OK, \d+")
    return {
        "wiped": printed(count.sub("OK, <n>", wiped)),
        "route": route,
        "refused": refused,
        "added": printed(count.sub("OK, <n>", added)),
        "sent": sent[0]["status"],
    }


@scenario(clients=JAVA5, needs="admin")
def mqadmin_shows_topics_and_groups(scene: Scene) -> Outcome:
    topic, group, broker = scene.topic(queues=2), scene.name("shown"), scene.cluster.broker
    made = scene.mqadmin(
        "updateTopic", "-b", broker, "-t", scene.name("made"), "-r", "3", "-w", "3"
    )
    grouped = scene.mqadmin("updateSubGroup", "-b", broker, "-g", group)
    config = scene.mqadmin("getConsumerConfig", "-g", group)
    return {
        "topicList": printed(scene.mqadmin("topicList"), only=topic),
        "topicRoute": printed(scene.mqadmin("topicRoute", "-t", topic)),
        "topicClusterList": printed(scene.mqadmin("topicClusterList", "-t", topic)),
        "updateTopic": printed(made),
        "updateTopicPerm": printed(
            scene.mqadmin("updateTopicPerm", "-b", broker, "-t", topic, "-p", "4")
        ),
        "updateSubGroup": [entries(line) for line in printed(grouped)],
        "getConsumerConfig": sorted(printed(config)),
        "deleteTopic": printed(
            scene.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", scene.name("made"))
        ),
        "deleteSubGroup": printed(scene.mqadmin("deleteSubGroup", "-b", broker, "-g", group)),
        "clusterList": len(printed(scene.mqadmin("clusterList"), only="broker-a")),
        "brokerStatus": bool(printed(scene.mqadmin("brokerStatus", "-b", broker), only="putTps")),
    }


@scenario(clients=JAVA5, needs="admin")
def mqadmin_finds_messages(scene: Scene) -> Outcome:
    topic = scene.topic(queues=1)
    producer = scene.producer()
    sent = producer.send(
        topic, [{"body": f"m-{n}", "keys": f"k-{n}", "tags": "A"} for n in range(3)]
    )
    scene.wait_until(
        lambda: producer.call("view_message", topic=topic, id=sent[2]["unique_id"]) is not None,
        "the messages are indexed",
    )
    where = ("-t", topic)
    by_queue = ("printMsgByQueue", *where, "-a", "broker-a", "-i", "0", "-p", "true")
    by_id = scene.mqadmin("queryMsgById", *where, "-i", sent[0]["offset_id"])
    by_unique = scene.mqadmin("queryMsgByUniqueKey", *where, "-i", sent[1]["unique_id"])
    by_offset = scene.mqadmin("queryMsgByOffset", *where, "-b", "broker-a", "-i", "0", "-o", "2")
    by_key = scene.mqadmin("queryMsgByKey", *where, "-k", "k-1")
    return {
        "queryMsgById": _message(by_id),
        "queryMsgByUniqueKey": _message(by_unique),
        "queryMsgByOffset": _message(by_offset),
        "queryMsgByKey": [line.split()[:3] for line in printed(by_key)],
        "printMsgByQueue": len(printed(scene.mqadmin(*by_queue), only="MSGID")),
        "sendMessage": len(
            printed(scene.mqadmin("sendMessage", *where, "-p", "hello"), only="SEND_OK")
        ),
    }


def _message(text: str) -> list[Any]:
    lines = printed(text)
    return [entries(line) if line.startswith("Properties") else line for line in lines]
