"""Every request code with every kind of nonsense: answered, and never with an internal error."""

import itertools
import json
import logging
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from sparrowmq.broker.server import routes
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader
from tests.broker.world import World, subscribes
from tests.net.wire import Wire, request

KINDS = sorted(routes.handlers, key=lambda kind: int(kind.CODE))
NONSENSE = [
    *("", " ", "-1", "0", "3", "99999999999999999999", "1e9", "true", "\x00", "日本語", "x" * 5000),
    *("%RETRY%billing", "SCHEDULE_TOPIC_XXXX", "a\x01b\x02", "9223372036854775807"),
]
BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"{}",
    b'"text"',
    b"7",
    b"\xff",
    b"x",
    b"[" * 70_000,
    bytes(20),
]
VALUES: list[Any] = [None, -1, 2**70, "", "x" * 300, "\x00", "日", [], [None], {}, {"a": {}}, True]
LIKELY = {
    "topic": "orders",
    "b": "orders",
    "defaultTopic": "TBW102",
    "c": "TBW102",
    **dict.fromkeys(("group", "groupName", "consumerGroup", "srcGroup", "compareGroup"), "billing"),
    **dict.fromkeys(("producerGroup", "a"), "shop"),
    "destGroup": "clone",
    "clientID": "c",
    "clientId": "c",
    "properties": "",
    "i": "",
    "perm": "6",
    "readQueueNums": "2",
    "writeQueueNums": "2",
    "key": "k",
    "maxNum": "8",
    "statsName": "TOPIC_PUT_NUMS",
    "statsKey": "orders",
    "recallHandle": "x",
    "msgId": "m",
    "subscription": "*",
    "maxMsgNums": "8",
    "count": "8",
    "endTimestamp": "9999999999999",
    "masterAddress": "10.9.9.9:10911",
    "slaveId": "1",
    "dryRun": "true",
}
QUEUE = {"topic": "orders", "brokerName": "broker-a", "queueId": 0}
SUBSCRIBED = {"topic": "orders", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
CONSUMER = {
    "groupName": "billing",
    "consumeType": "CONSUME_PASSIVELY",
    "messageModel": "CLUSTERING",
    "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
    "subscriptionDataSet": [SUBSCRIBED],
}
LOCKS = {"consumerGroup": "billing", "clientId": "c", "mqSet": [QUEUE]}
LIKELY_BODIES: dict[RequestCode, Any] = {
    RequestCode.HEART_BEAT: {
        "clientID": "c",
        "producerDataSet": [{"groupName": "shop"}],
        "consumerDataSet": [CONSUMER],
        "heartbeatFingerprint": 1,
        "isWithoutSub": False,
    },
    RequestCode.LOCK_BATCH_MQ: LOCKS,
    RequestCode.UNLOCK_BATCH_MQ: LOCKS,
    RequestCode.CHECK_CLIENT_CONFIG: {
        "clientId": "c",
        "group": "billing",
        "subscriptionData": {**SUBSCRIBED, "expressionType": "SQL92", "subString": "a > 1"},
    },
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: {
        "groupName": "g",
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "consumeEnable": True,
        "attributes": {},
        "brokerId": 0,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
    },
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: {
        "groupConfigList": [{"groupName": "g", "retryQueueNums": 1}]
    },
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: {
        "topicConfigList": [
            {"topicName": "t", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "attributes": {}}
        ]
    },
    RequestCode.QUERY_ASSIGNMENT: {
        "topic": "orders",
        "consumerGroup": "billing",
        "clientId": "c",
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    },
    RequestCode.SET_MESSAGE_REQUEST_MODE: {
        "topic": "orders",
        "consumerGroup": "billing",
        "mode": "PULL",
        "popShareQueueNum": 0,
    },
}


def spoilt(value: Any) -> Iterator[Any]:
    """The value with one thing in it replaced, or missing."""
    yield from VALUES
    if isinstance(value, dict):
        for name, inner in value.items():
            rest = {each: kept for each, kept in value.items() if each != name}
            yield rest
            yield from ({**rest, name: other} for other in spoilt(inner))
    elif isinstance(value, list):
        yield from ([other] for inner in value for other in spoilt(inner))


def hostile_frames(kind: type[RequestHeader]) -> Iterator[bytes]:
    """Likely requests with one thing wrong."""
    code = kind.CODE.value
    fields = msgspec.structs.fields(kind)
    likely = {each.encode_name: LIKELY.get(each.encode_name, "0") for each in fields}
    likely_body = LIKELY_BODIES.get(kind.CODE)
    body = b"" if likely_body is None else json.dumps(likely_body).encode()
    for other, binary in itertools.product(BODIES, (False, True)):
        yield request(code, likely, other, binary=binary)
    for name in likely:
        yield request(code, {each: text for each, text in likely.items() if each != name}, body)
        for text in NONSENSE:
            yield request(code, {**likely, name: text}, body)
    for other in spoilt(likely_body) if likely_body is not None else ():
        yield request(code, likely, json.dumps(other).encode())


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
def test_nonsense_is_answered_and_the_broker_keeps_serving(
    kind: type[RequestHeader], world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.topic("orders")
    world.send("orders", b"1", b"2")
    world.client("member").beat(subscribes("billing"), producers=("shop",))

    async def over_the_wire() -> list[str]:
        host, _, port = world.broker.address.rpartition(":")
        wire = await Wire.open(host, int(port))
        remarks = [(await wire.ask(frame)).remark for frame in hostile_frames(kind)]
        wire.close()
        return remarks

    remarks = world.sim.wait(world.sim.host("hostile").start(over_the_wire()))
    assert len(remarks) >= len(BODIES)
    assert [each for each in remarks if "failed inside the server" in each] == []
    assert max(map(len, remarks)) < 3000
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []
