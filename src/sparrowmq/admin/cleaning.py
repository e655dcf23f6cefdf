"""Making a broker delete what it no longer needs, without waiting for its regular hour."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from sparrowmq.admin.brokers import address_of_broker
from sparrowmq.admin.cluster_calls import ClusterCalls, answered
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.admin import (
    Cleaned,
    CleanExpiredQueues,
    CleanUnusedTopics,
    DeleteExpiredLog,
)
from sparrowmq.protocol.route import MASTER_ID


class Cleanable(StrEnum):
    """What can be cleaned."""

    LOG = "log"
    """Log files whose messages have been kept for long enough."""
    QUEUES = "queues"
    """Queue files whose messages are gone."""
    UNUSED_TOPICS = "unused topics"
    """Queues of topics that the broker no longer has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedPart:
    """What a broker has cleaned."""

    what: Cleanable
    deleted: int | None
    """How many files or topics; None if the broker does not report it, like Apache's."""


_REQUESTS: Mapping[Cleanable, type[RequestHeader]] = {
    Cleanable.LOG: DeleteExpiredLog,
    Cleanable.QUEUES: CleanExpiredQueues,
    Cleanable.UNUSED_TOPICS: CleanUnusedTopics,
}


async def clean_broker(
    cluster: ClusterCalls, broker: str, what: Collection[Cleanable]
) -> list[CleanedPart]:
    """Clean one after the other. Raises ValueError, NotFound, AdminError."""
    wanted = [each for each in Cleanable if each in what]
    if not wanted:
        raise ValueError(f"there is nothing to clean: give {', '.join(Cleanable)}")
    address = await address_of_broker(cluster, broker, MASTER_ID)

    async def clean(part: Cleanable) -> CleanedPart:
        response = await cluster.call(address, _REQUESTS[part]())
        return CleanedPart(what=part, deleted=response.header(Cleaned).deleted)

    return [await answered(partial(clean, part)) for part in wanted]
