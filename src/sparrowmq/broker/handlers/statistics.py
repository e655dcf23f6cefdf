"""Progress, lag and rates of topics and groups.

Every request here reads many queues, and works in slices (`net/slices.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.statistics import GROUP_GET, TOPIC_PUT
from sparrowmq.broker.stored_times import stored_times
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.slices import Slice
from sparrowmq.protocol.body import Body
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import MAX_FRAME_BYTES
from sparrowmq.protocol.headers.statistics import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetConsumeTimeSpan,
    GetTopicStats,
    ViewBrokerStats,
)
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpan,
    OffsetPair,
    QueueTimeSpan,
    TopicOffset,
    TopicStats,
    group_stats,
    queue_rows,
    with_groups,
    with_rows,
)
from sparrowmq.protocol.topic_config import TopicConfig

routes: Routes[Broker] = Routes()
_ROWS_AT_ONCE = 64
"""Rows of a table encoded to JSON in one step: about 0.3 ms."""
_QUEUES_AT_ONCE = 512
"""Queues whose store times are looked up together, so that a worker reads many at once."""
MOST_BYTES = MAX_FRAME_BYTES - 64 * 1024
"""Clients close the connection when they get a larger frame."""


@routes.on(GetTopicStats)
async def get_topic_stats(broker: Broker, request: Request[GetTopicStats]) -> Reply:
    """Report what each queue of a topic holds, and when its last message came."""
    config = _topic(broker, request.header.topic)
    topic = config.topic_name
    await broker.sampling.refresh(broker)
    with broker.slices.begin() as turn:
        queues = range(max(config.read_queue_nums, config.write_queue_nums))
        ranges = [broker.store.queue_range(topic, queue_id) for queue_id in queues]
        places = [(topic, queue_id, high - 1) for queue_id, (_, high) in enumerate(ranges)]
        times = await stored_times(broker, places, turn)
        table = {
            broker.queue(topic, queue_id): TopicOffset(
                min_offset=low, max_offset=high, last_update_timestamp=max(0, last_ms)
            )
            for queue_id, (low, high), last_ms in zip(queues, ranges, times, strict=True)
        }
        rows = await _rows(table, turn)
    tps = broker.statistics.tps(TOPIC_PUT, topic, broker.monotonic())
    return _reply(with_rows(TopicStats(topic_put_tps=tps), rows))


@routes.on(GetConsumeStats)
async def get_consume_stats(broker: Broker, request: Request[GetConsumeStats]) -> Reply:
    """Report how far a group is in each queue, and how far it could be."""
    header = request.header
    group = header.consumer_group
    await broker.sampling.refresh(broker)
    with broker.slices.begin() as turn:
        topics = await _topics_asked_for(broker, header, turn)
        configs = filter(None, map(broker.topics.get, topics))
        asked = [(config.topic_name, config.read_queue_nums) for config in configs]
        answer, tps = _Answer(), 0.0
        for part in _parts(asked):
            for (topic, _), table in zip(
                part, await _progress(broker, group, part, turn), strict=True
            ):
                answer.add(*await _rows(table, turn))
                tps += broker.statistics.tps(GROUP_GET, f"{topic}@{group}", broker.monotonic())
        await turn.pause()  # copying megabytes into a frame is a slice of its own
    return _reply(with_rows(ConsumeStats(consume_tps=tps), answer.pieces))


async def _topics_asked_for(broker: Broker, header: GetConsumeStats, turn: Slice) -> list[str]:
    group = header.consumer_group
    if header.topic_list and header.topic_list.strip():
        return list(dict.fromkeys(filter(None, header.topic_list.split(";"))))
    if header.topic:
        return _subscribed(broker, group, [header.topic])
    topics: list[str] = []
    # Tools ask about every group, one after the other: copying the rows of all of them each time
    # would take minutes where there are 1,000
    for part in broker.offsets.topics_in_parts(group):
        topics += part
        if turn.is_over:
            await turn.pause()
    return _subscribed(broker, group, topics)


async def _topics_by_group(broker: Broker, turn: Slice) -> dict[str, list[str]]:
    """The topics for which each group has offsets."""
    topics_of: dict[str, list[str]] = {}
    for key, _ in broker.offsets.rows():
        topic, _, group = key.partition("@")
        topics_of.setdefault(group, []).append(topic)
        if turn.is_over:
            await turn.pause()
    return topics_of


def _subscribed(broker: Broker, group: str, topics: Iterable[str]) -> list[str]:
    """These topics without those to which no member of a live group subscribes any more."""
    live = broker.consumers.group(group)
    wanted = frozenset[str]() if live is None else live.topics
    return [topic for topic in topics if not wanted or topic in wanted]


def _parts(asked: Iterable[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    """Topics with their numbers of queues, in parts that are looked up together."""
    part: list[tuple[str, int]] = []
    size = 0
    for topic, queues in asked:
        if part and size + queues > _QUEUES_AT_ONCE:
            yield part
            part, size = [], 0
        part.append((topic, queues))
        size += queues
    if part:
        yield part


async def _progress(
    broker: Broker, group: str, topics: Iterable[tuple[str, int]], turn: Slice
) -> list[dict[MessageQueue, OffsetPair]]:
    """A group's progress in this many queues of each topic."""
    queues = [(topic, queue_id) for topic, number in topics for queue_id in range(number)]
    offsets = [max(0, broker.offsets.get(group, *queue)) for queue in queues]
    places = [(*queue, offset - 1) for queue, offset in zip(queues, offsets, strict=True)]
    times = await stored_times(broker, places, turn)
    # What a member had in flight ended with it
    pulled = broker.offsets.pulled if broker.consumers.group(group) is not None else {}
    tables: dict[str, dict[MessageQueue, OffsetPair]] = {topic: {} for topic, _ in topics}
    for (topic, queue_id), offset, last_ms in zip(queues, offsets, times, strict=True):
        tables[topic][broker.queue(topic, queue_id)] = OffsetPair(
            broker_offset=broker.store.max_offset(topic, queue_id),
            consumer_offset=offset,
            pull_offset=max(offset, pulled.get((group, topic, queue_id), 0)),
            last_timestamp=max(0, last_ms),
        )
        if turn.is_over:
            await turn.pause()
    return list(tables.values())


@routes.on(GetBrokerConsumeStats)
async def get_broker_consume_stats(
    broker: Broker, request: Request[GetBrokerConsumeStats]
) -> Reply:
    """Report how far all groups are."""
    await broker.sampling.refresh(broker)
    with broker.slices.begin() as turn:
        topics_of = await _topics_by_group(broker, turn)
        answer, behind = _Answer(), 0
        for config in list(broker.groups):
            group = config.group_name
            topics = _subscribed(broker, group, topics_of.get(group, ()))
            asked = _write_queues(broker, topics, only_ordered=request.header.is_order)
            stats, group_behind = await _group_stats(broker, group, asked, turn)
            answer.add(group_stats(group, stats))
            behind += group_behind
        await turn.pause()  # copying megabytes into a frame is a slice of its own
    whole = ConsumeStatsList(broker_addr=broker.address, total_diff=behind)
    return _reply(with_groups(whole, answer.pieces))


def _write_queues(
    broker: Broker, topics: Iterable[str], *, only_ordered: bool
) -> list[tuple[str, int]]:
    configs = filter(None, map(broker.topics.get, topics))
    return [
        (config.topic_name, config.write_queue_nums)
        for config in configs
        if config.order or not only_ordered
    ]


async def _group_stats(
    broker: Broker, group: str, topics: Iterable[tuple[str, int]], turn: Slice
) -> tuple[list[bytes], int]:
    """A group's statistics for each topic as JSON, and its lag."""
    stats, behind = [], 0
    for part in _parts(topics):
        tables = await _progress(broker, group, part, turn)
        for (topic, _), table in zip(part, tables, strict=True):
            rows = await _rows(table, turn)
            tps = broker.statistics.tps(GROUP_GET, f"{topic}@{group}", broker.monotonic())
            stats.append(b"".join(with_rows(ConsumeStats(consume_tps=tps), rows)))
            behind += sum(pair.lag for pair in table.values())
    return stats, behind


def _reply(pieces: list[bytes]) -> Reply:
    return Reply(chunks=pieces, body_bytes=sum(map(len, pieces)))


class _Answer:
    """The pieces of a body, up to what a frame can carry."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._size = 0

    def add(self, *pieces: bytes) -> None:
        self.pieces += pieces
        self._size += sum(map(len, pieces)) + len(pieces)
        if self._size > MOST_BYTES:
            text = (
                f"the answer has more than {MOST_BYTES} bytes, which no client reads;"
                " ask for less at a time (GET_CONSUME_STATS, 208, with a group and a topic)"
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)


async def _rows(table: Mapping[MessageQueue, Body], turn: Slice) -> list[bytes]:
    """A table as pieces of JSON."""
    rows, left = [], iter(table.items())
    while part := dict(islice(left, _ROWS_AT_ONCE)):
        if turn.is_over:
            await turn.pause()
        rows.append(queue_rows(part))
    return rows


@routes.on(GetConsumeTimeSpan)
async def get_consume_time_span(broker: Broker, request: Request[GetConsumeTimeSpan]) -> Reply:
    """Report store times of each queue's first and last message and the group's position."""
    config = _topic(broker, request.header.topic)
    topic, group, spans = config.topic_name, request.header.group, []
    with broker.slices.begin() as turn:
        for queue_id in range(config.write_queue_nums):
            spans.append(await _time_span(broker, group, topic, queue_id, turn))
    return Reply(body=ConsumeTimeSpan(consume_time_span_set=tuple(spans)).to_json())


async def _time_span(
    broker: Broker, group: str, topic: str, queue_id: int, turn: Slice
) -> QueueTimeSpan:
    first, end = broker.store.queue_range(topic, queue_id)
    offset = broker.offsets.get(group, topic, queue_id)
    offsets = (first, end - 1, offset - 1, max(0, offset))
    places = [(topic, queue_id, one) for one in offsets]
    oldest_ms, newest_ms, consumed_ms, next_ms = await stored_times(broker, places, turn)
    return QueueTimeSpan(
        message_queue=broker.queue(topic, queue_id),
        min_time_stamp=oldest_ms,
        max_time_stamp=newest_ms,
        consume_time_stamp=consumed_ms if offset > 0 else oldest_ms,
        delay_time=broker.clock() - next_ms if next_ms >= 0 else 0,
    )


@routes.on(ViewBrokerStats)
async def view_broker_stats(broker: Broker, request: Request[ViewBrokerStats]) -> Reply:
    """Return one counter over the last minute, hour and day."""
    header = request.header
    await broker.sampling.refresh(broker)
    spans = broker.statistics.spans(header.stats_name, header.stats_key, broker.monotonic())
    if spans is None:
        text = f"nothing is counted under {header.stats_name} for {header.stats_key}"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    return Reply(body=spans.to_json())


def _topic(broker: Broker, topic: str) -> TopicConfig:
    config = broker.topics.get(topic)
    if config is None:
        text = f"topic {topic} does not exist on broker {broker.config.broker_name}"
        raise RequestRefused(ResponseCode.TOPIC_NOT_EXIST, text)
    return config
