"""Every body that Apache's classes wrote is read, and written back so that Java reads it."""

import json
import re
from typing import Any

import pytest

from sparrowmq.protocol.body import Body, BrokerMemberGroup, DataVersion, KVTable
from sparrowmq.protocol.connections import (
    ConsumerConnection,
    ConsumerIdList,
    ConsumerRunningInfo,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
)
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupTable
from sparrowmq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
)
from sparrowmq.protocol.locks import LockBatchRequest, LockBatchResponse
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import (
    ConsumerOffsetTable,
    ConsumerStatus,
    ConsumeStats,
    OffsetPair,
    ResetOffset,
    TopicOffset,
    TopicStats,
)
from sparrowmq.protocol.registration import RegisterBrokerBody
from sparrowmq.protocol.route import BrokerData, ClusterInfo, QueueData, TopicList, TopicRoute
from sparrowmq.protocol.subscription import SQL92, SubscriptionData
from sparrowmq.protocol.topic_config import TopicConfig, TopicConfigTable
from tests.protocol.java_vectors import case_id, cases

KINDS: dict[str, type[Body]] = {
    "HeartbeatData": HeartbeatData,
    "TopicRouteData": TopicRoute,
    "ClusterInfo": ClusterInfo,
    "BrokerMemberGroup": BrokerMemberGroup,
    "TopicList": TopicList,
    "KVTable": KVTable,
    "TopicConfigSerializeWrapper": TopicConfigTable,
    "RegisterBrokerBody": RegisterBrokerBody,
    "DataVersion": DataVersion,
    "ConsumerOffsetSerializeWrapper": ConsumerOffsetTable,
    "ResetOffsetBody": ResetOffset,
    "GetConsumerStatusBody": ConsumerStatus,
    "ConsumeStats": ConsumeStats,
    "TopicStatsTable": TopicStats,
    "SubscriptionGroupWrapper": SubscriptionGroupTable,
    "SubscriptionGroupConfig": SubscriptionGroupConfig,
    "GetConsumerListByGroupResponseBody": ConsumerIdList,
    "ConsumerConnection": ConsumerConnection,
    "ConsumerRunningInfo": ConsumerRunningInfo,
    "LockBatchRequestBody": LockBatchRequest,
    "LockBatchResponseBody": LockBatchResponse,
    "QueryAssignmentRequestBody": QueryAssignmentRequest,
    "QueryAssignmentResponseBody": QueryAssignmentResponse,
}
ORDERS_0 = MessageQueue("orders", "broker-a", 0)
ORDERS_1 = MessageQueue("orders", "broker-a", 1)
DATA_VERSION = DataVersion(timestamp=1_700_000_000_000, counter=3)

json_cases = [case for case in cases("bodies") if case.get("text", "").startswith("{")]


def java_body(name: str) -> bytes:
    (case,) = cases("bodies", name)
    return str(case["text"]).encode()


def with_quoted_numbers(text: str) -> str:
    """Java's text with its bare numeric keys quoted, a liberty we do not take."""
    return re.sub(r"(?<=[{,])(\d+)(?=:)", r'"\1"', text)


def in_our_spelling(text: str) -> str:
    """Java's text as we write it: a HashSet of numbers in ascending order, numeric keys quoted."""
    ordered = text.replace("[1028554472,3433164]", "[3433164,1028554472]")
    return with_quoted_numbers(ordered)


@pytest.mark.parametrize("case", json_cases, ids=case_id)
def test_a_body_is_written_back_byte_by_byte(case: dict[str, Any]) -> None:
    body = KINDS[case["type"]].from_json(case["text"].encode())
    assert body.to_json().decode() == in_our_spelling(case["text"])


@pytest.mark.parametrize("case", json_cases, ids=case_id)
def test_a_body_is_read_with_any_spelling_of_its_keys(case: dict[str, Any]) -> None:
    kind = KINDS[case["type"]]
    body = kind.from_json(case["text"].encode())
    assert kind.from_json(with_quoted_numbers(case["text"]).encode()) == body
    spaced = case["text"].replace(",", " , ").replace(":{", " : {").encode()
    if "||" not in case["text"]:
        assert kind.from_json(spaced) == body


def test_a_heartbeat() -> None:
    assert HeartbeatData.from_json(java_body("heartbeat")) == HeartbeatData(
        client_id="10.0.0.1@1234#567890",
        producer_data_set=(ProducerData(group_name="orders-svc"),),
        consumer_data_set=(
            ConsumerData(
                group_name="billing",
                consume_type=ConsumeType.PASSIVELY,
                message_model=MessageModel.CLUSTERING,
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                subscription_data_set=(
                    SubscriptionData.build("orders", "created || paid", version=1_700_000_000_000),
                    SubscriptionData.build("%RETRY%billing", "*", version=1_700_000_000_000),
                    SubscriptionData.build(
                        "invoices",
                        "a BETWEEN 0 AND 3",
                        version=1_700_000_000_000,
                        expression_type=SQL92,
                    ),
                ),
            ),
        ),
        heartbeat_fingerprint=-512118945,
    )


def test_a_route() -> None:
    addresses = {0: "127.0.0.1:10911", 1: "127.0.0.1:20911"}
    broker = BrokerData(cluster="DefaultCluster", broker_name="broker-a", broker_addrs=addresses)
    assert broker.master_addr == "127.0.0.1:10911"
    assert TopicRoute.from_json(java_body("topic_route")) == TopicRoute(
        queue_datas=(QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4),),
        broker_datas=(broker,),
    )
    assert ClusterInfo.from_json(java_body("cluster_info")) == ClusterInfo(
        broker_addr_table={"broker-a": broker},
        cluster_addr_table={"DefaultCluster": frozenset({"broker-a"})},
    )


def test_offset_tables_are_keyed_by_queues() -> None:
    reset = ResetOffset.from_json(java_body("reset_offset"))
    assert reset.offset_table == {ORDERS_0: 41, ORDERS_1: 0}
    status = ConsumerStatus.from_json(java_body("consumer_status"))
    assert status.consumer_table == {"10.0.0.1@1234": {ORDERS_0: 41, ORDERS_1: 0}}
    offsets = ConsumerOffsetTable.from_json(java_body("consumer_offset_table"))
    assert offsets.offset_table == {"orders@billing": {0: 41, 7: 2**40}}
    assert offsets.data_version == DATA_VERSION


def test_statistics() -> None:
    stats = ConsumeStats.from_json(java_body("consume_stats"))
    pair = OffsetPair(broker_offset=100, consumer_offset=41, last_timestamp=1_700_000_000_000)
    assert stats == ConsumeStats(offset_table={ORDERS_0: pair}, consume_tps=1.5)
    assert stats.lag == 59
    assert TopicStats.from_json(java_body("topic_stats")).offset_table == {
        ORDERS_0: TopicOffset(max_offset=100, last_update_timestamp=1_700_000_000_000)
    }


def test_locks() -> None:
    request = LockBatchRequest.from_json(java_body("lock_batch"))
    assert request.mq_set == {ORDERS_0}
    assert LockBatchResponse.from_json(java_body("lock_batch_reply")).lock_ok_mq_set == {ORDERS_0}


def test_topic_lines() -> None:
    for case in cases("bodies", "topic_config_line"):
        assert TopicConfig.from_line(case["text"]).to_line() == case["text"]


def test_gos_reset_reader_can_take_our_body_apart() -> None:
    """The Go client splits the text of the table at `,{` and `}:`."""
    table = ResetOffset(offset_table={ORDERS_0: 41, ORDERS_1: 0}).to_json().decode()
    inner = table.removeprefix('{"offsetTable":{{').removesuffix("}}")
    read = {}
    for part in inner.split(",{"):
        queue, offset = part.split("}:")
        fields = json.loads("{" + queue + "}")
        read[fields["queueId"]] = int(offset)
    assert read == {0: 41, 1: 0}


def test_gos_route_reader_can_take_our_addresses_apart() -> None:
    """The Go client splits brokerAddrs at commas, cuts at the first colon and drops the quotes."""
    route = TopicRoute.from_json(java_body("topic_route")).to_json().decode()
    inner = route.split('"brokerAddrs":{')[1].split("}")[0]
    read = {}
    for part in inner.split(","):
        broker_id, _, address = part.partition(":")
        read[int(broker_id.replace('"', ""))] = address.replace('"', "")
    assert read == {0: "127.0.0.1:10911", 1: "127.0.0.1:20911"}


def test_what_a_body_leaves_out_has_javas_default() -> None:
    """The constructors of Apache's classes, which its own tools rely on."""
    topic = TopicConfig.from_json(b'{"topicName":"t"}')
    assert (topic.read_queue_nums, topic.write_queue_nums, topic.perm) == (16, 16, 6)
    (case,) = cases("bodies", "subscription_group_config")
    assert SubscriptionGroupConfig(group_name="billing").to_json().decode() == case["text"]
    assert DataVersion.from_json(b"{}").to_json() == b'{"counter":0,"stateVersion":0,"timestamp":0}'
    assert OffsetPair.from_json(b"{}").lag == 0
    bare = HeartbeatData.from_json(b'{"clientID":"c"}')
    assert (bare.heartbeat_fingerprint, bare.without_sub) == (0, False)
    assert SubscriptionData.from_json(b'{"topic":"t"}').sub_version == 0
