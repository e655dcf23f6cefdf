"""Headers for operators' requests about a broker itself, and for its housekeeping."""

from typing import ClassVar

from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.header import RequestHeader, ResponseHeader


class GetBrokerConfig(RequestHeader, frozen=True, kw_only=True):
    """The settings in force; the body of the answer holds `name=value` lines."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_CONFIG


class BrokerConfigFound(ResponseHeader, frozen=True, kw_only=True):
    """The version of the settings, which counts changes since the broker's start."""

    version: str
    """A DataVersion as JSON."""
    changeable: str | None = None
    """Names of the settings that may change while the broker runs, separated by commas; only
    SparrowMQ's brokers send it."""
    origins: str | None = None
    """Where settings were given, as a JSON object by their names; one that is missing has its
    default. Only SparrowMQ's brokers send it."""


class UpdateBrokerConfig(RequestHeader, frozen=True, kw_only=True):
    """Change settings of a running broker; the body holds `name=value` lines."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_BROKER_CONFIG


class GetRuntimeInfo(RequestHeader, frozen=True, kw_only=True):
    """How the broker is doing; the body of the answer is a KVTable."""

    CODE: ClassVar[RequestCode] = RequestCode.GET_BROKER_RUNTIME_INFO


class CleanExpiredQueues(RequestHeader, frozen=True, kw_only=True):
    """Delete consume-queue files whose messages are gone."""

    CODE: ClassVar[RequestCode] = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE


class CleanUnusedTopics(RequestHeader, frozen=True, kw_only=True):
    """Delete queues of topics that the broker no longer has."""

    CODE: ClassVar[RequestCode] = RequestCode.CLEAN_UNUSED_TOPIC


class DeleteExpiredLog(RequestHeader, frozen=True, kw_only=True):
    """Delete expired log files now, whatever the hour."""

    CODE: ClassVar[RequestCode] = RequestCode.DELETE_EXPIRED_COMMITLOG


class Cleaned(ResponseHeader, frozen=True, kw_only=True):
    """Answers the three requests above."""

    deleted: int | None = None
    """How many files or topics were deleted; only SparrowMQ's brokers send it."""


class UpdateGroupForbidden(RequestHeader, frozen=True, kw_only=True):
    """Ask whether a group may read a topic, and change that first if `readable` is given."""

    CODE: ClassVar[RequestCode] = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN

    group: str
    topic: str
    readable: bool | None = None
