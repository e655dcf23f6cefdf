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
