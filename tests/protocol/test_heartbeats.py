"""Heartbeats of Go and older Java clients, and the fingerprint of version 2."""

import msgspec
import pytest

from sparrowmq.protocol.errors import BodyError
from sparrowmq.protocol.heartbeat import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
)
from sparrowmq.protocol.subscription import SubscriptionData

# What rocketmq-client-go 2.1.2 sends for a push consumer
GO_HEARTBEAT = (
    b'{"clientID":"10.0.0.1@7","producerDataSet":[{"groupName":"p"}],"consumerDataSet":[{"groupName":'
    b'"g","consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":'
    b'"CONSUME_FROM_FIRST_OFFSET","subscriptionDataSet":[{"ClassFilterMode":false,"topic":"t",'
    b'"subString":"A || B","tagsSet":["A","B"],"codeSet":["65","66"],"subVersion":17,'
    b'"expressionType":"TAG"}],"unitMode":false}]}'
)


def heartbeat(expression: str = "A || B", version: int = 17) -> HeartbeatData:
    subscription = SubscriptionData.build("t", expression, version=version)
    return HeartbeatData(
        client_id="10.0.0.1@7",
        producer_data_set=(ProducerData(group_name="p"),),
        consumer_data_set=(
            ConsumerData(
                group_name="g",
                consume_from_where=ConsumeFromWhere.FIRST_OFFSET,
                subscription_data_set=(subscription,),
            ),
        ),
    )


def test_a_heartbeat_from_go_is_read() -> None:
    assert HeartbeatData.from_json(GO_HEARTBEAT) == heartbeat()


def test_null_lists_from_go_are_empty() -> None:
    read = HeartbeatData.from_json(
        b'{"clientID":"c","producerDataSet":null,'
        b'"consumerDataSet":[{"groupName":"g","subscriptionDataSet":null}]}'
    )
    assert read == HeartbeatData(client_id="c", consumer_data_set=(ConsumerData(group_name="g"),))


def test_names_we_do_not_know_become_the_ordinary_ones() -> None:
    consumer = ConsumerData.from_json(
        b'{"groupName":"g","consumeType":"NEW","messageModel":"BroadCasting",'
        b'"consumeFromWhere":"CONSUME_FROM_MIN_OFFSET"}'
    )
    assert consumer.consume_type is ConsumeType.PASSIVELY
    assert consumer.message_model is MessageModel.BROADCASTING
    assert consumer.consume_from_where is ConsumeFromWhere.LAST_OFFSET


def test_a_heartbeat_without_a_client_is_refused() -> None:
    with pytest.raises(BodyError, match="clientID"):
        HeartbeatData.from_json(b"{}")


def test_the_fingerprint_changes_only_with_subscriptions() -> None:
    fingerprint = heartbeat().fingerprint()
    assert heartbeat(version=99).fingerprint() == fingerprint
    moved = msgspec.structs.replace(
        heartbeat(), client_id="other", without_sub=True, heartbeat_fingerprint=5
    )
    assert moved.fingerprint() == fingerprint
    assert heartbeat("A || C").fingerprint() != fingerprint
