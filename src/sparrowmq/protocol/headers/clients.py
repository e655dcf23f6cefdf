"""Clients announcing themselves, and the calls a broker makes back to them."""

from typing import ClassVar

import msgspec

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader

NEW_SESSION = "new"
"""What a heartbeat says that asks for a session."""


class Heartbeat(RequestHeader, frozen=True, kw_only=True):
    """The body is HeartbeatData; empty when it is only a beat of a session.

    Sessions are ours: other brokers do not look at the field.
    """

    CODE: ClassVar[RequestCode] = RequestCode.HEART_BEAT

    session: str | None = msgspec.field(name="sparrowSession", default=None)
    """NEW_SESSION, or the name of the session whose beat this is."""


class HeartbeatAnswer(ResponseHeader, frozen=True, kw_only=True):
    """What heartbeat V2 adds: whether the next one may leave out the subscriptions."""

    supports_v2: bool = msgspec.field(name="IS_SUPPORT_HEART_BEAT_V2", default=True)
    is_sub_change: bool = msgspec.field(name="IS_SUB_CHANGE", default=True)
    session: str | None = msgspec.field(name="sparrowSession", default=None)
    """The session of this connection, when one was asked for."""
    session_ms: int | None = msgspec.field(name="sparrowSessionMillis", default=None)
    """A session without a beat for this long ends."""


class UnregisterClient(RequestHeader, frozen=True, kw_only=True):
    """A client says goodbye for one of its groups."""

    CODE: ClassVar[RequestCode] = RequestCode.UNREGISTER_CLIENT

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerList(RequestHeader, frozen=True, kw_only=True):
    """Client ids of a group's live members; the body of the answer lists them."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_CONSUMER_LIST_BY_GROUP

    consumer_group: str
    owners_of: str | None = msgspec.field(name="sparrowOwnersOf", default=None)
    """Ours: a topic, to learn as well which member holds which queue; other brokers ignore it."""


class NotifyConsumerIdsChanged(RequestHeader, frozen=True, kw_only=True):
    """Broker to member, one-way: a member joined or left, rebalance now."""

    CODE: ClassVar[RequestCode] = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED

    consumer_group: str
    is_freed: bool | None = msgspec.field(name="sparrowFreed", default=None)
    """Ours: no member came or went, but a queue is free that this member was refused."""


class CheckClientConfig(RequestHeader, frozen=True, kw_only=True):
    """Asks whether a subscription would be accepted; the body is CheckClientRequestBody."""

    CODE: ClassVar[RequestCode] = RequestCode.CHECK_CLIENT_CONFIG


class LockBatch(RequestHeader, frozen=True, kw_only=True):
    """Take or renew locks of ordered queues; the body is LockBatchRequest."""

    CODE: ClassVar[RequestCode] = RequestCode.LOCK_BATCH_MQ

    tells_freed: bool | None = msgspec.field(name="sparrowTellsFreed", default=None)
    """Ours: whether the member wants to be notified when what it is refused becomes free."""


class UnlockBatch(RequestHeader, frozen=True, kw_only=True):
    """Give locks of ordered queues back; the body is UnlockBatchRequest."""

    CODE: ClassVar[RequestCode] = RequestCode.UNLOCK_BATCH_MQ
