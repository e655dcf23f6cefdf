"""Bodies with offsets: stored progress, resets, and statistics for operators."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from msgspec import field

from sparrowmq.protocol.body import Body, DataVersion
from sparrowmq.protocol.lenient_json import write_json
from sparrowmq.protocol.message import MessageQueue

MAX_TABLE_BYTES = 16 * 1024 * 1024
"""Tables keyed by queues need the slow reader if names in them hold escapes or a text looks like a
key. Members and tools read them, servers do not."""


class ConsumerOffsetTable(Body, frozen=True, kw_only=True):
    """`topic@group` to queue id to offset; also the file consumerOffset.json."""

    offset_table: dict[str, dict[int, int]] = field(default_factory=dict)
    data_version: DataVersion | None = None
    written_by: str | None = None
    """Ours, in files that SparrowMQ wrote; Apache ignores it and omits it when it writes."""
    pending_resets: dict[str, list[int]] | None = None
    """Ours, in files only: queues that a member must first take from the stored offset."""
    rewinds: dict[str, dict[int, int]] | None = None
    """Ours, in files only: number of the last rewind, including those of removed offsets."""
    forgotten_rewind: int | None = None
    """Ours, in files only: rewinds of removed offsets up to this number may be missing."""


class DelayOffsetTable(Body, frozen=True, kw_only=True):
    """Delay level to offset in its queue; also the file delayOffset.json."""

    offset_table: dict[int, int] = field(default_factory=dict)
    data_version: DataVersion | None = None


class TimerMetrics(Body, frozen=True, kw_only=True):
    """How many messages are waiting for their delivery time, by topic."""

    timing_count: dict[str, dict[str, int]] = field(default_factory=dict)
    """Topic to `count` and `timeStamp`."""
    data_version: DataVersion = DataVersion()


class ResetOffset(Body, frozen=True, kw_only=True):
    """Where a member must continue after an operator's reset."""

    SLOW_LIMIT_BYTES: ClassVar[int] = MAX_TABLE_BYTES

    offset_table: dict[MessageQueue, int] = field(default_factory=dict)


class LocalProgress(ResetOffset, frozen=True, kw_only=True):
    """What a member of a broadcasting group keeps in its file: Java's table of offsets, and the
    epochs of the brokers' logs in which they were learned."""

    epoch_table: dict[MessageQueue, int] = field(default_factory=dict)


class ConsumerStatus(Body, frozen=True, kw_only=True):
    """Offsets of one member (`message_queue_table`) or of several by client id."""

    SLOW_LIMIT_BYTES: ClassVar[int] = MAX_TABLE_BYTES

    message_queue_table: dict[MessageQueue, int] = field(default_factory=dict)
    consumer_table: dict[str, dict[MessageQueue, int]] = field(default_factory=dict)


class OffsetPair(Body, frozen=True, kw_only=True):
    """How far a queue has been written and consumed (Apache's OffsetWrapper)."""

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet."""
        return self.broker_offset - self.consumer_offset


class ConsumeStats(Body, frozen=True, kw_only=True):
    """Progress of a group, queue by queue."""

    SLOW_LIMIT_BYTES: ClassVar[int] = MAX_TABLE_BYTES

    offset_table: dict[MessageQueue, OffsetPair] = field(default_factory=dict)
    consume_tps: float = 0.0

    @property
    def lag(self) -> int:
        """How many messages are not consumed yet, in all queues."""
        return sum(pair.lag for pair in self.offset_table.values())


class TopicOffset(Body, frozen=True, kw_only=True):
    """What one queue holds."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(Body, frozen=True, kw_only=True):
    """What the queues of a topic hold (Apache's TopicStatsTable)."""

    SLOW_LIMIT_BYTES: ClassVar[int] = MAX_TABLE_BYTES

    offset_table: dict[MessageQueue, TopicOffset] = field(default_factory=dict)
    topic_put_tps: float = 0.0


class ConsumeStatsList(Body, frozen=True, kw_only=True):
    """Progress of every group on a broker."""

    SLOW_LIMIT_BYTES: ClassVar[int] = MAX_TABLE_BYTES

    consume_stats_list: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = ()
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


class QueueTimeSpan(Body, frozen=True, kw_only=True):
    """Times of a queue's oldest, newest and last consumed message."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class ConsumeTimeSpan(Body, frozen=True, kw_only=True):
    """Time spans of a group's queues."""

    consume_time_span_set: tuple[QueueTimeSpan, ...] = ()


# ---- large answers, encoded piece by piece, so that a server's loop is not blocked meanwhile


def queue_rows(rows: Mapping[MessageQueue, Body]) -> bytes:
    """Some rows of an `offset_table` as JSON."""
    return write_json(rows)[1:-1]


def with_rows(empty: ConsumeStats | TopicStats, rows: Sequence[bytes]) -> list[bytes]:
    """The JSON of statistics built without rows, with the rows from `queue_rows`."""
    assert not empty.offset_table
    return _with_items(empty, b'"offsetTable":{', rows)


def group_stats(group: str, stats: Sequence[bytes]) -> bytes:
    """The JSON of one group; `stats` are its statistics for each topic as JSON."""
    return b"".join((b"{", write_json(group), b":[", b",".join(stats), b"]}"))


def with_groups(empty: ConsumeStatsList, groups: Sequence[bytes]) -> list[bytes]:
    """The JSON of a list built without groups, with the groups from `group_stats`."""
    assert not empty.consume_stats_list
    return _with_items(empty, b'"consumeStatsList":[', groups)


def _with_items(empty: Body, start: bytes, items: Sequence[bytes]) -> list[bytes]:
    before, found, after = empty.to_json().partition(start)
    assert found
    pieces = [before + found]
    for item in items:
        pieces += (item, b",")
    pieces[-1] = after if items else before + found + after
    return pieces
