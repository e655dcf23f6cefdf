"""Bodies about live clients: connections, and what a member is doing."""

from typing import ClassVar

from msgspec import field

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import MAX_TABLE_BYTES
from sparrowmq.protocol.subscription import SubscriptionData


class ConsumerIdList(Body, frozen=True, kw_only=True):
    """Client ids of a group's live members."""

    consumer_id_list: tuple[str, ...] = ()
    owners: dict[int, str] | None = None
    """Ours: queue id to the client that holds it, if the request asks for it."""


class ClientConnection(Body, frozen=True, kw_only=True):
    """One connected client."""

    client_id: str
    client_addr: str
    language: str = "JAVA"
    version: int = 0


class ConsumerConnection(Body, frozen=True, kw_only=True):
    """A consumer group's live members and their subscriptions."""

    connection_set: tuple[ClientConnection, ...] = ()
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType = ConsumeType.PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET


class ProducerConnection(Body, frozen=True, kw_only=True):
    """A producer group's live members."""

    connection_set: tuple[ClientConnection, ...] = ()


class ProducerInfo(Body, frozen=True, kw_only=True):
    """One connected producer."""

    client_id: str
    remote_ip: str = field(name="remoteIP", default="")
    """Address and port, whatever its name says; Apache's brokers put a slash in front."""
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTable(Body, frozen=True, kw_only=True):
    """All producers of a broker, by group."""

    data: dict[str, tuple[ProducerInfo, ...]] = field(default_factory=dict)


class ProcessQueueInfo(Body, frozen=True, kw_only=True):
    """The state of one queue at a member."""

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_mib: int = field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = field(name="droped", default=False)  # Apache's spelling
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0
    running_since: int | None = field(name="sparrowRunningSince", default=None)
    """When the oldest call of the handler that has not returned began; None if none runs, or the
    member does not report it: Apache's clients do not."""

    @property
    def busy_since_ms(self) -> int:
        """Since when its handler has finished nothing; earlier than that if the member was idle and
        does not report when a call began."""
        return max(self.last_consume_timestamp, self.running_since or 0)


class ConsumeStatus(Body, frozen=True, kw_only=True):
    """A member's rates for one topic; times in milliseconds, rates per second."""

    pull_rt: float = field(name="pullRT", default=0.0)
    pull_tps: float = field(name="pullTPS", default=0.0)
    consume_rt: float = field(name="consumeRT", default=0.0)
    consume_ok_tps: float = field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body, frozen=True, kw_only=True):
    """What a member reports to an operator about itself."""

    SLOW_LIMIT_BYTES: ClassVar[int] = MAX_TABLE_BYTES

    properties: dict[str, str] = field(default_factory=dict)
    subscription_set: tuple[SubscriptionData, ...] = ()
    mq_table: dict[MessageQueue, ProcessQueueInfo] = field(default_factory=dict)
    mq_pop_table: dict[MessageQueue, dict[str, int | bool]] = field(default_factory=dict)
    status_table: dict[str, ConsumeStatus] = field(default_factory=dict)
    user_consumer_info: dict[str, str] = field(default_factory=dict)
    jstack: str | None = None


class ConsumeDirectlyResult(Body, frozen=True, kw_only=True):
    """The result of a member consuming a message that an operator sent to it."""

    order: bool = False
    auto_commit: bool = True
    consume_result: str | None = None
    """CR_SUCCESS, CR_LATER, CR_ROLLBACK, CR_COMMIT, CR_THROW_EXCEPTION or CR_RETURN_NULL."""
    remark: str | None = None
    spent_time_mills: int = 0


class CheckClientRequest(Body, frozen=True, kw_only=True):
    """A subscription that the broker should check before the consumer starts."""

    client_id: str | None = None
    group: str | None = None
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


class QueryAssignmentRequest(Body, frozen=True, kw_only=True):
    """Asks the broker to allocate the queues of a topic (server-side rebalance of 5.x)."""

    topic: str
    consumer_group: str
    client_id: str
    strategy_name: str | None = None
    message_model: MessageModel = MessageModel.CLUSTERING


class MessageQueueAssignment(Body, frozen=True, kw_only=True):
    """One queue for the asking member, and how to consume it."""

    message_queue: MessageQueue
    mode: str = "PULL"
    attachments: dict[str, str] | None = None


class QueryAssignmentResponse(Body, frozen=True, kw_only=True):
    """The queues of the asking member."""

    message_queue_assignments: tuple[MessageQueueAssignment, ...] = ()
