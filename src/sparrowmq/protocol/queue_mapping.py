"""Static topics: logic queues mapped to the queues of brokers.

SparrowMQ's brokers have none; the name server carries what Apache's brokers register.
"""

from msgspec import field

from sparrowmq.protocol.body import Body

GLOBAL_SCOPE = "__global__"


class TopicQueueMappingInfo(Body, frozen=True, kw_only=True):
    """Which logic queues of a static topic one broker name holds."""

    topic: str | None = None
    scope: str = GLOBAL_SCOPE
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(default_factory=dict)
    """Logic queue id to physical queue id."""


class LogicQueueMappingItem(Body, frozen=True, kw_only=True):
    """Where a stretch of a logic queue lies."""

    gen: int = 0
    queue_id: int = 0
    bname: str | None = None
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


class TopicQueueMappingDetail(TopicQueueMappingInfo, frozen=True, kw_only=True):
    """The stretches of all logic queues that one broker name holds."""

    hosted_queues: dict[int, tuple[LogicQueueMappingItem, ...]] = field(default_factory=dict)
