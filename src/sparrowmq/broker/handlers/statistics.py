"""Progress, lag and rates of topics and groups."""

from collections.abc import Iterable

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.statistics import GROUP_GET, TOPIC_PUT, refresh, stored_at
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.protocol.codes import ResponseCode
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
)
from sparrowmq.protocol.topic_config import TopicConfig

routes: Routes[Broker] = Routes()


@routes.on(GetTopicStats)
def get_topic_stats(broker: Broker, request: Request[GetTopicStats]) -> Reply:
    """What each queue of a topic holds, and when its last message came."""
    config = _topic(broker, request.header.topic)
    topic = config.topic_name
    table = {}
    for queue_id in range(max(config.read_queue_nums, config.write_queue_nums)):
        low, high = broker.store.queue_range(topic, queue_id)
        last_ms = max(0, stored_at(broker.store, topic, queue_id, high - 1)) if high else 0
        table[_queue(broker, topic, queue_id)] = TopicOffset(
            min_offset=low, max_offset=high, last_update_timestamp=last_ms
        )
    refresh(broker)
    tps = broker.statistics.tps(TOPIC_PUT, topic, broker.monotonic())
    return Reply(body=TopicStats(offset_table=table, topic_put_tps=tps).to_json())


@routes.on(GetConsumeStats)
def get_consume_stats(broker: Broker, request: Request[GetConsumeStats]) -> Reply:
    """How far a group is in each queue, and how far it could be."""
    header = request.header
    group = header.consumer_group
    if header.topic_list and header.topic_list.strip():
        topics: Iterable[str] = [topic for topic in header.topic_list.split(";") if topic]
    else:
        topics = [header.topic] if header.topic else broker.offsets.topics_of(group)
        topics = _subscribed(broker, group, topics)
    refresh(broker)
    table: dict[MessageQueue, OffsetPair] = {}
    tps = 0.0
    for topic in topics:
        config = broker.topics.get(topic)
        if config is not None:
            table |= _progress(broker, group, topic, config.read_queue_nums)
            tps += broker.statistics.tps(GROUP_GET, f"{topic}@{group}", broker.monotonic())
    return Reply(body=ConsumeStats(offset_table=table, consume_tps=tps).to_json())


def _subscribed(broker: Broker, group: str, topics: Iterable[str]) -> list[str]:
    """Without what a live group does not subscribe to any more."""
    live = broker.consumers.group(group)
    if live is None or not live.subscriptions:
        return list(topics)
    return [topic for topic in topics if topic in live.subscriptions]


def _progress(
    broker: Broker, group: str, topic: str, queues: int
) -> dict[MessageQueue, OffsetPair]:
    table = {}
    # What a member had in flight ended with it
    pulled = broker.offsets.pulled if broker.consumers.group(group) is not None else {}
    for queue_id in range(queues):
        offset = max(0, broker.offsets.get(group, topic, queue_id))
        last_ms = stored_at(broker.store, topic, queue_id, offset - 1) if offset else 0
        table[_queue(broker, topic, queue_id)] = OffsetPair(
            broker_offset=broker.store.max_offset(topic, queue_id),
            consumer_offset=offset,
            pull_offset=max(offset, pulled.get((group, topic, queue_id), 0)),
            last_timestamp=max(0, last_ms),
        )
    return table


@routes.on(GetBrokerConsumeStats)
def get_broker_consume_stats(broker: Broker, request: Request[GetBrokerConsumeStats]) -> Reply:
    """How far all groups are."""
    topics_of: dict[str, list[str]] = {}
    for key, _ in broker.offsets.rows():
        topic, _, group = key.partition("@")
        topics_of.setdefault(group, []).append(topic)
    refresh(broker)
    listed, behind = [], 0
    for config in broker.groups:
        group = config.group_name
        topics = _subscribed(broker, group, topics_of.get(group, ()))
        stats = _topics_stats(broker, group, topics, only_ordered=request.header.is_order)
        behind += sum(one.lag for one in stats)
        listed.append({group: stats})
    answer = ConsumeStatsList(
        consume_stats_list=tuple(listed), broker_addr=broker.address, total_diff=behind
    )
    return Reply(body=answer.to_json())


def _topics_stats(
    broker: Broker, group: str, topics: Iterable[str], *, only_ordered: bool
) -> tuple[ConsumeStats, ...]:
    stats = []
    for topic in topics:
        config = broker.topics.get(topic)
        if config is None or (only_ordered and not config.order):
            continue
        table = _progress(broker, group, topic, config.write_queue_nums)
        tps = broker.statistics.tps(GROUP_GET, f"{topic}@{group}", broker.monotonic())
        stats.append(ConsumeStats(offset_table=table, consume_tps=tps))
    return tuple(stats)


@routes.on(GetConsumeTimeSpan)
def get_consume_time_span(broker: Broker, request: Request[GetConsumeTimeSpan]) -> Reply:
    """From when to when each queue's messages are, and at what time the group stands."""
    config = _topic(broker, request.header.topic)
    spans = tuple(
        _time_span(broker, request.header.group, config.topic_name, queue_id)
        for queue_id in range(config.write_queue_nums)
    )
    return Reply(body=ConsumeTimeSpan(consume_time_span_set=spans).to_json())


def _time_span(broker: Broker, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
    store = broker.store
    oldest_ms = store.earliest_store_time(topic, queue_id)
    end = store.max_offset(topic, queue_id)
    offset = broker.offsets.get(group, topic, queue_id)
    consumed_ms = stored_at(store, topic, queue_id, offset - 1) if offset > 0 else oldest_ms
    next_ms = stored_at(store, topic, queue_id, max(0, offset)) if offset < end else -1
    return QueueTimeSpan(
        message_queue=_queue(broker, topic, queue_id),
        min_time_stamp=oldest_ms,
        max_time_stamp=stored_at(store, topic, queue_id, end - 1) if end else -1,
        consume_time_stamp=consumed_ms,
        delay_time=broker.clock() - next_ms if next_ms >= 0 else 0,
    )


@routes.on(ViewBrokerStats)
def view_broker_stats(broker: Broker, request: Request[ViewBrokerStats]) -> Reply:
    """One counter over the last minute, hour and day."""
    header = request.header
    refresh(broker)
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


def _queue(broker: Broker, topic: str, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, broker.config.broker_name, queue_id)
