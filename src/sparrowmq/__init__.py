"""SparrowMQ: Apache RocketMQ for Python and Spark people.

    from sparrowmq import Message, Producer, PushConsumer

Names are loaded when first used, so that a command or a Spark worker pays only for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrowmq.admin.admin import Admin
    from sparrowmq.admin.brokers import BrokerInfo, BrokerRuntime
    from sparrowmq.admin.cleaning import Cleanable, CleanedPart
    from sparrowmq.admin.clients import ClientRole, LiveClient
    from sparrowmq.admin.dead_letters import DeadLetterCount
    from sparrowmq.admin.deliveries import Delivered
    from sparrowmq.admin.doctor.catalogue import Severity
    from sparrowmq.admin.doctor.findings import Examination, Finding, NotMade
    from sparrowmq.admin.drain_status import BrokerDrain, Unread
    from sparrowmq.admin.drains import DrainUnfinished
    from sparrowmq.admin.errors import (
        AdminError,
        AlreadyExists,
        BrokerRefusal,
        InUse,
        NameServerRefusal,
        NameServersAway,
        NoBrokerAnswers,
        NotAllAnswered,
        NotFound,
        NotReadable,
        PartlyDone,
        PartlyReset,
        TopicAway,
    )
    from sparrowmq.admin.group_rows import GroupRow
    from sparrowmq.admin.groups import GroupInfo, GroupSettings, GroupSubscription
    from sparrowmq.admin.health import Health, HealthCheck
    from sparrowmq.admin.lag import GroupLag, QueueLag
    from sparrowmq.admin.limits import DedupWindow, Limit
    from sparrowmq.admin.members import GroupMember, LiveProducer, Subscription
    from sparrowmq.admin.message_traces import MessageTrace
    from sparrowmq.admin.migration import ClusterState, MigrationItem
    from sparrowmq.admin.name_servers import NameServerInfo
    from sparrowmq.admin.offsets import MoveBy, OffsetMove, ResetTo
    from sparrowmq.admin.ranges import MessageRange
    from sparrowmq.admin.rebalance import MemberMove, MemberShare, OwnedQueue, RebalanceInfo
    from sparrowmq.admin.resends import Resend, Resent
    from sparrowmq.admin.reset_journal import ResetJournal, ResetRecord
    from sparrowmq.admin.resets import JournaledReset
    from sparrowmq.admin.roles import RoleChange
    from sparrowmq.admin.server_settings import ServerSettings
    from sparrowmq.admin.slaves import SlaveInfo
    from sparrowmq.admin.spreads import TopicShare
    from sparrowmq.admin.topic_figures import TopicFigures
    from sparrowmq.admin.topic_readers import TopicReader
    from sparrowmq.admin.topics import TopicInfo, TopicQueue, TopicSettings
    from sparrowmq.admin.values import BrokerFailure, Listing, SettingChange
    from sparrowmq.client.client import Client
    from sparrowmq.client.config import ClientConfig
    from sparrowmq.client.consuming.deduplicate import Deduplicate, MemorySeen, SqliteSeen
    from sparrowmq.client.consuming.handler_calls import RetryLater
    from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
    from sparrowmq.client.consuming.pull_consumer import PullConsumer
    from sparrowmq.client.consuming.pull_loop import FlowLimits
    from sparrowmq.client.consuming.push_consumer import PushConsumer
    from sparrowmq.client.consuming.scheduled_pull import ScheduledPull
    from sparrowmq.client.errors import (
        BrokerRefused,
        ClientError,
        LimitReached,
        NoNameServer,
        NoRoute,
        NotDeduplicated,
        NotStarted,
        QueueLost,
        SendFailed,
    )
    from sparrowmq.client.hooks import Handling, Hooks, Sending
    from sparrowmq.client.opentelemetry_hooks import OpenTelemetryHooks
    from sparrowmq.client.prometheus_hooks import PrometheusHooks
    from sparrowmq.client.send_result import SendResult, SendStatus
    from sparrowmq.client.sending.producer import Producer
    from sparrowmq.client.sending.request_reply import RequestTimedOut
    from sparrowmq.client.sending.transactional_producer import (
        HalfMessage,
        TransactionalProducer,
        TransactionListener,
        TransactionResult,
        TransactionState,
    )
    from sparrowmq.client.strategies import Strategy
    from sparrowmq.client.subscriptions import Only, Sql
    from sparrowmq.errors import SparrowMQError
    from sparrowmq.json_lines import JsonLines
    from sparrowmq.net.errors import NetError
    from sparrowmq.protocol.compression import CompressionType
    from sparrowmq.protocol.drain import DrainState
    from sparrowmq.protocol.errors import BodyError
    from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
    from sparrowmq.protocol.message import Message, MessageQueue
    from sparrowmq.protocol.message_ext import MessageExt

__version__ = "0.1.0"

__all__ = [
    "Admin",
    "AdminError",
    "AlreadyExists",
    "BodyError",
    "BrokerDrain",
    "BrokerFailure",
    "BrokerInfo",
    "BrokerRefusal",
    "BrokerRefused",
    "BrokerRuntime",
    "Cleanable",
    "CleanedPart",
    "Client",
    "ClientConfig",
    "ClientError",
    "ClientRole",
    "ClusterState",
    "CompressionType",
    "ConsumeFromWhere",
    "DeadLetterCount",
    "DedupWindow",
    "Deduplicate",
    "Delivered",
    "DrainState",
    "DrainUnfinished",
    "Examination",
    "Finding",
    "FlowLimits",
    "GroupInfo",
    "GroupLag",
    "GroupMember",
    "GroupRow",
    "GroupSettings",
    "GroupSubscription",
    "HalfMessage",
    "Handling",
    "Health",
    "HealthCheck",
    "Hooks",
    "InUse",
    "JournaledReset",
    "JsonLines",
    "Limit",
    "LimitReached",
    "Listing",
    "LitePullConsumer",
    "LiveClient",
    "LiveProducer",
    "MemberMove",
    "MemberShare",
    "MemorySeen",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageRange",
    "MessageTrace",
    "MigrationItem",
    "MoveBy",
    "NameServerInfo",
    "NameServerRefusal",
    "NameServersAway",
    "NetError",
    "NoBrokerAnswers",
    "NoNameServer",
    "NoRoute",
    "NotAllAnswered",
    "NotDeduplicated",
    "NotFound",
    "NotMade",
    "NotReadable",
    "NotStarted",
    "OffsetMove",
    "Only",
    "OpenTelemetryHooks",
    "OwnedQueue",
    "PartlyDone",
    "PartlyReset",
    "Producer",
    "PrometheusHooks",
    "PullConsumer",
    "PushConsumer",
    "QueueLag",
    "QueueLost",
    "RebalanceInfo",
    "RequestTimedOut",
    "Resend",
    "Resent",
    "ResetJournal",
    "ResetRecord",
    "ResetTo",
    "RetryLater",
    "RoleChange",
    "ScheduledPull",
    "SendFailed",
    "SendResult",
    "SendStatus",
    "Sending",
    "ServerSettings",
    "SettingChange",
    "Severity",
    "SlaveInfo",
    "SparrowMQError",
    "Sql",
    "SqliteSeen",
    "Strategy",
    "Subscription",
    "TopicAway",
    "TopicFigures",
    "TopicInfo",
    "TopicQueue",
    "TopicReader",
    "TopicSettings",
    "TopicShare",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "TransactionalProducer",
    "Unread",
    "__version__",
]

_HOMES = {
    "MemberMove": "admin.rebalance",
    "MemberShare": "admin.rebalance",
    "OwnedQueue": "admin.rebalance",
    "RebalanceInfo": "admin.rebalance",
    "ClusterState": "admin.migration",
    "MigrationItem": "admin.migration",
    "Cleanable": "admin.cleaning",
    "CleanedPart": "admin.cleaning",
    "ClientRole": "admin.clients",
    "LiveClient": "admin.clients",
    "Health": "admin.health",
    "HealthCheck": "admin.health",
    "NameServerInfo": "admin.name_servers",
    "ServerSettings": "admin.server_settings",
    "TopicAway": "admin.errors",
    "TopicFigures": "admin.topic_figures",
    "TopicReader": "admin.topic_readers",
    "BodyError": "protocol.errors",
    "Admin": "admin.admin",
    "AdminError": "admin.errors",
    "AlreadyExists": "admin.errors",
    "BrokerFailure": "admin.values",
    "BrokerInfo": "admin.brokers",
    "BrokerRefusal": "admin.errors",
    "BrokerRefused": "client.errors",
    "BrokerRuntime": "admin.brokers",
    "Client": "client.client",
    "ClientConfig": "client.config",
    "ClientError": "client.errors",
    "CompressionType": "protocol.compression",
    "ConsumeFromWhere": "protocol.heartbeat",
    "DeadLetterCount": "admin.dead_letters",
    "DedupWindow": "admin.limits",
    "Deduplicate": "client.consuming.deduplicate",
    "Examination": "admin.doctor.findings",
    "Finding": "admin.doctor.findings",
    "Delivered": "admin.deliveries",
    "FlowLimits": "client.consuming.pull_loop",
    "GroupInfo": "admin.groups",
    "GroupLag": "admin.lag",
    "GroupMember": "admin.members",
    "GroupRow": "admin.group_rows",
    "GroupSettings": "admin.groups",
    "GroupSubscription": "admin.groups",
    "HalfMessage": "client.sending.transactional_producer",
    "Handling": "client.hooks",
    "Hooks": "client.hooks",
    "InUse": "admin.errors",
    "JournaledReset": "admin.resets",
    "JsonLines": "json_lines",
    "Limit": "admin.limits",
    "LimitReached": "client.errors",
    "Listing": "admin.values",
    "LitePullConsumer": "client.consuming.lite_pull_consumer",
    "LiveProducer": "admin.members",
    "MemorySeen": "client.consuming.deduplicate",
    "Message": "protocol.message",
    "MessageExt": "protocol.message_ext",
    "MessageModel": "protocol.heartbeat",
    "MessageQueue": "protocol.message",
    "MessageRange": "admin.ranges",
    "MessageTrace": "admin.message_traces",
    "MoveBy": "admin.offsets",
    "NameServerRefusal": "admin.errors",
    "NameServersAway": "admin.errors",
    "NetError": "net.errors",
    "NoBrokerAnswers": "admin.errors",
    "NoNameServer": "client.errors",
    "NoRoute": "client.errors",
    "NotFound": "admin.errors",
    "NotMade": "admin.doctor.findings",
    "NotAllAnswered": "admin.errors",
    "NotReadable": "admin.errors",
    "NotDeduplicated": "client.errors",
    "NotStarted": "client.errors",
    "OffsetMove": "admin.offsets",
    "Only": "client.subscriptions",
    "OpenTelemetryHooks": "client.opentelemetry_hooks",
    "PartlyDone": "admin.errors",
    "PartlyReset": "admin.errors",
    "Producer": "client.sending.producer",
    "PrometheusHooks": "client.prometheus_hooks",
    "PullConsumer": "client.consuming.pull_consumer",
    "PushConsumer": "client.consuming.push_consumer",
    "QueueLag": "admin.lag",
    "QueueLost": "client.errors",
    "RequestTimedOut": "client.sending.request_reply",
    "Resend": "admin.resends",
    "Resent": "admin.resends",
    "ResetJournal": "admin.reset_journal",
    "ResetRecord": "admin.reset_journal",
    "ResetTo": "admin.offsets",
    "RetryLater": "client.consuming.handler_calls",
    "ScheduledPull": "client.consuming.scheduled_pull",
    "SendFailed": "client.errors",
    "SendResult": "client.send_result",
    "SendStatus": "client.send_result",
    "Sending": "client.hooks",
    "SettingChange": "admin.values",
    "RoleChange": "admin.roles",
    "BrokerDrain": "admin.drain_status",
    "Unread": "admin.drain_status",
    "DrainUnfinished": "admin.drains",
    "DrainState": "protocol.drain",
    "TopicShare": "admin.spreads",
    "Severity": "admin.doctor.catalogue",
    "SlaveInfo": "admin.slaves",
    "SparrowMQError": "errors",
    "Sql": "client.subscriptions",
    "SqliteSeen": "client.consuming.deduplicate",
    "Strategy": "client.strategies",
    "Subscription": "admin.members",
    "TopicInfo": "admin.topics",
    "TopicQueue": "admin.topics",
    "TopicSettings": "admin.topics",
    "TransactionListener": "client.sending.transactional_producer",
    "TransactionResult": "client.sending.transactional_producer",
    "TransactionState": "client.sending.transactional_producer",
    "TransactionalProducer": "client.sending.transactional_producer",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
