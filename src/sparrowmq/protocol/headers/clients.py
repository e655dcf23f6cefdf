"""Headers for clients that announce themselves, and for a broker's calls back to them."""

from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader

NEW_SESSION = "new"
"""The session field of a heartbeat that asks for a new session."""


class Heartbeat(RequestHeader, frozen=True, kw_only=True):
    """The body is HeartbeatData, or empty if the heartbeat only keeps a session alive.

    Sessions are ours: other brokers ignore the field.
    """

    CODE: ClassVar[RequestCode] = RequestCode.HEART_BEAT

    session: str | None = msgspec.field(name="sparrowSession", default=None)
    """NEW_SESSION, or the name of the session to keep alive."""


class HeartbeatAnswer(ResponseHeader, frozen=True, kw_only=True):
    """What heartbeat V2 adds: whether the next one may leave out the subscriptions."""

    supports_v2: bool = msgspec.field(name="IS_SUPPORT_HEART_BEAT_V2", default=True)
    is_sub_change: bool = msgspec.field(name="IS_SUB_CHANGE", default=True)
    session: str | None = msgspec.field(name="sparrowSession", default=None)
    """The session of this connection, if one was requested."""
    session_ms: int | None = msgspec.field(name="sparrowSessionMillis", default=None)
    """A session ends after this long without a heartbeat."""


class UnregisterClient(RequestHeader, frozen=True, kw_only=True):
    """A client unregisters one of its groups."""

    CODE: ClassVar[RequestCode] = RequestCode.UNREGISTER_CLIENT

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerList(RequestHeader, frozen=True, kw_only=True):
    """Client ids of a group's live members; the body of the answer lists them."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str
    owners_of: str | None = msgspec.field(name="sparrowOwnersOf", default=None)
    """Ours: a topic, to learn which member holds which queue as well; other brokers ignore it."""


class NotifyConsumerIdsChanged(RequestHeader, frozen=True, kw_only=True):
    """Broker to member, one-way: a member joined or left, rebalance now."""

    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str
    is_freed: bool | None = msgspec.field(name="sparrowFreed", default=None)
    """Ours: no member came or went, but a queue that this member was refused is free now."""


class CheckClientConfig(RequestHeader, frozen=True, kw_only=True):
    """Asks whether a subscription would be accepted; the body is CheckClientRequestBody."""

    CODE: ClassVar[RequestCode] = RequestCode.CHECK_CLIENT_CONFIG


class LockBatch(RequestHeader, frozen=True, kw_only=True):
    """Take or renew locks of ordered queues; the body is LockBatchRequest."""

    CODE: ClassVar[RequestCode] = RequestCode.LOCK_BATCH_MQ

    tells_freed: bool | None = msgspec.field(name="sparrowTellsFreed", default=None)
    """Ours: whether the member wants to be notified when a refused queue becomes free."""


class UnlockBatch(RequestHeader, frozen=True, kw_only=True):
    """Release locks of ordered queues; the body is UnlockBatchRequest."""

    CODE: ClassVar[RequestCode] = RequestCode.UNLOCK_BATCH_MQ
