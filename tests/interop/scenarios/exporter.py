"""Apache's rocketmq-exporter, by the requests that it sends, in its order.

It reads every field of a broker's runtime information. Where one is missing or no number, it
exports nothing of that broker at all.
"""

import re
from typing import Any

from sparrowmq.protocol.json_reader import parse_json
from tests.interop import apache, raw
from tests.interop.registry import PYTHON, Outcome, check, scenario
from tests.interop.scene import Scene

CLUSTER, TOPICS, TOPIC_STATS, PRODUCERS, READERS, MEMBERS = 106, 206, 202, 328, 300, 203
CONSUME_STATS, ROUTE, COUNTER, RUNTIME, RUNNING = 208, 105, 315, 28, 307
INTEGERS = (
    *("msgPutTotalTodayMorning", "msgPutTotalYesterdayMorning", "msgPutTotalTodayNow"),
    *("msgGetTotalTodayMorning", "msgGetTotalYesterdayMorning", "msgGetTotalTodayNow"),
    *("sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "queryThreadPoolQueueSize"),
    *("sendThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity"),
    *("queryThreadPoolQueueCapacity", "sendThreadPoolQueueHeadWaitTimeMills"),
    *("pullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueHeadWaitTimeMills"),
    *("brokerVersion", "bootTimestamp", "startAcceptSendRequestTimeStamp"),
    *("dispatchMaxBuffer", "dispatchBehindBytes", "remainTransientStoreBufferNumbs"),
    *("getMessageEntireTimeMax", "putMessageEntireTimeMax", "pageCacheLockTimeMills"),
    *("putMessageTimesTotal", "putMessageSizeTotal", "earliestMessageTimeStamp"),
    *("commitLogMinOffset", "commitLogMaxOffset"),
)
NUMBERS = ("putMessageAverageSize", "commitLogDiskRatio", "consumeQueueDiskRatio")
RATES = ("putTps", "getTotalTps", "getFoundTps", "getMissTps", "getTransferredTps")
"""For 10 s, a minute and ten."""
APACHE_LACKS = {"brokerVersion"}
"""So that the exporter can read our broker, but not Apache's 5.5.0."""
COUNTERS = ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE", "GROUP_GET_NUMS", "GROUP_GET_SIZE")


@scenario(clients=PYTHON, needs="statistics")
def the_prometheus_exporter_is_answered_in_its_order(scene: Scene) -> Outcome:
    topic, group = scene.topic(queues=1), scene.name("billing")
    producer, consumer = scene.producer(), scene.push_consumer(topic)
    producer.send(topic, ["m-0", "m-1"])
    consumer.received(2)
    scene.wait_until_committed(topic, 2)
    with (
        raw.RawConnection(scene.cluster.name_server) as servers,
        raw.RawConnection(scene.cluster.broker) as broker,
    ):
        info = answered(servers, CLUSTER)
        check("broker-a" in info["brokerAddrTable"], f"brokers: {info}")
        check(topic in answered(servers, TOPICS)["topicList"], "the topic is not listed")
        ends = answered(broker, TOPIC_STATS, topic=topic)["offsetTable"]
        producers = answered(broker, PRODUCERS)["data"]
        readers = answered(broker, READERS, topic=topic)["groupList"]
        members = answered(broker, MEMBERS, consumerGroup=group)
        stats = answered(broker, CONSUME_STATS, consumerGroup=group, topic=topic)["offsetTable"]
        route = answered(servers, ROUTE, topic=topic, acceptStandardJsonOnly="true")
        scene.wait_until(
            lambda: all(counted(broker, name, topic, group) for name in COUNTERS),
            "the counters have begun",
        )
        runtime = answered(broker, RUNTIME)["table"]
        client_id = members["connectionSet"][0]["clientId"]
        asked = {"consumerGroup": group, "clientId": client_id, "jstackEnable": "false"}
        running = answered(broker, RUNNING, **asked)
    check_runtime(scene, runtime)
    return {
        "ends": [sorted(end) for end in ends.values()],
        "producers": isinstance(producers, dict),
        "readers": readers,
        "members": [members["messageModel"], len(members["connectionSet"])],
        "stats": [[each["brokerOffset"], each["consumerOffset"]] for each in stats.values()],
        "route": sorted(route),
        "running": sorted(running["statusTable"][topic]),
    }


def answered(connection: raw.RawConnection, code: int, **fields: str) -> Any:
    """The body of an answer without an error, read as Java reads it."""
    reply = connection.call(code, fields)
    check(reply.code == 0, f"{code} is answered {reply.code} {reply.remark}")
    return parse_json(reply.body)


def counted(broker: raw.RawConnection, name: str, topic: str, group: str) -> bool:
    """Whether a counter is there."""
    key = topic if name.startswith("TOPIC") else f"{topic}@{group}"
    return broker.call(COUNTER, {"statsName": name, "statsKey": key}).code == 0


def check_runtime(scene: Scene, table: dict[str, str]) -> None:
    """Every field is there, and what the exporter takes it for."""
    is_apache = scene.cluster.target == apache.NAME
    missing = {*INTEGERS, *NUMBERS, *RATES} - table.keys()
    check(missing == (APACHE_LACKS if is_apache else set()), f"{missing}")
    for name in {*INTEGERS} - missing:
        check(re.fullmatch(r"-?\d+", table[name]) is not None, f"{name} is {table[name]}")
    for name in NUMBERS:
        float(table[name])
    for name in RATES:
        spans = [float(each) for each in table[name].split()]
        check(len(spans) == 3 or is_apache, f"{name}: {table[name]}")  # Apache's lack some at first
    float(table["remainHowManyDataToFlush"].split()[0])
    words = table["commitLogDirCapacity"].split(" ")
    check(all(each[-1] in ",." for each in (words[3], words[7])), f"capacity: {words}")
    classes = [each.split(":") for each in table["putMessageDistributeTime"].split()]
    check(all(len(each) == 2 for each in classes) or is_apache, f"times of sends: {classes}")
    check("runtime" in table and "brokerVersionDesc" in table, f"table: {sorted(table)}")
