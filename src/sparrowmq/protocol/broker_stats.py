"""Bodies that operators read: counters, raw queue units, subscriptions, request modes."""

from msgspec import field

from sparrowmq.protocol.body import Body
from sparrowmq.protocol.subscription import SubscriptionData


class BrokerStatsItem(Body, frozen=True, kw_only=True):
    """A counter over a span of time."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0
    """Mean amount per addition; 0 if only the sum is known."""


class BrokerStatsData(Body, frozen=True, kw_only=True):
    """A counter over the last minute, hour and day."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class ConsumeQueueUnit(Body, frozen=True, kw_only=True):
    """One unit of a consume queue (Apache's ConsumeQueueData)."""

    physic_offset: int
    physic_size: int
    tags_code: int
    eval: bool = False
    """Whether the group's filter accepts the message, as far as the unit shows."""


class ConsumeQueueUnits(Body, frozen=True, kw_only=True):
    """A part of a consume queue (Apache's QueryConsumeQueueResponseBody)."""

    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: tuple[ConsumeQueueUnit, ...] = ()
    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None


class SubscriptionFound(Body, frozen=True, kw_only=True):
    """What a live group wants of a topic; without data when it wants nothing."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


class CorrectionOffsets(Body, frozen=True, kw_only=True):
    """Queue id to offset."""

    correction_offsets: dict[int, int] = field(default_factory=dict)


class GroupForbidden(Body, frozen=True, kw_only=True):
    """Whether a group may read a topic."""

    group: str
    topic: str
    readable: bool = True


class MessageRequestMode(Body, frozen=True, kw_only=True):
    """How a group consumes a topic."""

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


class MessageRequestModeTable(Body, frozen=True, kw_only=True):
    """Topic to group to mode; also the file messageRequestMode.json."""

    message_request_mode_map: dict[str, dict[str, MessageRequestMode]] = field(default_factory=dict)
