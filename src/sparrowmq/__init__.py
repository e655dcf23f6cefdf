"""SparrowMQ: Apache RocketMQ for Python and Spark people.

    from sparrowmq import Message, Producer, PushConsumer

Names are loaded when first used, so that a command or a Spark worker pays only for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrowmq.client.client import Client
    from sparrowmq.client.config import ClientConfig
    from sparrowmq.client.deduplicate import Deduplicate, MemorySeen, SqliteSeen
    from sparrowmq.client.errors import (
        BrokerRefused,
        ClientError,
        NoRoute,
        NotStarted,
        QueueLost,
        SendFailed,
    )
    from sparrowmq.client.flow_control import FlowLimits
    from sparrowmq.client.handling import RetryLater
    from sparrowmq.client.lite_pull_consumer import LitePullConsumer
    from sparrowmq.client.producer import Producer
    from sparrowmq.client.pull_consumer import PullConsumer
    from sparrowmq.client.push_consumer import PushConsumer
    from sparrowmq.client.request_reply import RequestTimedOut
    from sparrowmq.client.scheduled_pull import ScheduledPull
    from sparrowmq.client.send_result import SendResult, SendStatus
    from sparrowmq.client.strategies import Strategy
    from sparrowmq.client.subscriptions import Only, Sql
    from sparrowmq.client.transaction import (
        HalfMessage,
        TransactionListener,
        TransactionResult,
        TransactionState,
    )
    from sparrowmq.client.transactional_producer import TransactionalProducer
    from sparrowmq.net.errors import NetError
    from sparrowmq.protocol.compression import CompressionType
    from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
    from sparrowmq.protocol.message import Message, MessageQueue
    from sparrowmq.protocol.message_ext import MessageExt

__version__ = "0.1.0"

__all__ = [
    "BrokerRefused",
    "Client",
    "ClientConfig",
    "ClientError",
    "CompressionType",
    "ConsumeFromWhere",
    "Deduplicate",
    "FlowLimits",
    "HalfMessage",
    "LitePullConsumer",
    "MemorySeen",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "NetError",
    "NoRoute",
    "NotStarted",
    "Only",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "QueueLost",
    "RequestTimedOut",
    "RetryLater",
    "ScheduledPull",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "Sql",
    "SqliteSeen",
    "Strategy",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "TransactionalProducer",
    "__version__",
]

_HOMES = {
    "BrokerRefused": "client.errors",
    "Client": "client.client",
    "ClientConfig": "client.config",
    "ClientError": "client.errors",
    "CompressionType": "protocol.compression",
    "ConsumeFromWhere": "protocol.heartbeat",
    "Deduplicate": "client.deduplicate",
    "FlowLimits": "client.flow_control",
    "HalfMessage": "client.transaction",
    "LitePullConsumer": "client.lite_pull_consumer",
    "MemorySeen": "client.deduplicate",
    "Message": "protocol.message",
    "MessageExt": "protocol.message_ext",
    "MessageModel": "protocol.heartbeat",
    "MessageQueue": "protocol.message",
    "NetError": "net.errors",
    "NoRoute": "client.errors",
    "NotStarted": "client.errors",
    "Only": "client.subscriptions",
    "Producer": "client.producer",
    "PullConsumer": "client.pull_consumer",
    "PushConsumer": "client.push_consumer",
    "QueueLost": "client.errors",
    "RequestTimedOut": "client.request_reply",
    "RetryLater": "client.handling",
    "ScheduledPull": "client.scheduled_pull",
    "SendFailed": "client.errors",
    "SendResult": "client.send_result",
    "SendStatus": "client.send_result",
    "Sql": "client.subscriptions",
    "SqliteSeen": "client.deduplicate",
    "Strategy": "client.strategies",
    "TransactionListener": "client.transaction",
    "TransactionResult": "client.transaction",
    "TransactionState": "client.transaction",
    "TransactionalProducer": "client.transactional_producer",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
