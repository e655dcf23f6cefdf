"""What a draining broker still has to finish before nothing depends on it any more.

Counted in slices (`reports`), so that a drain of a thousand topics stops no client. Messages only
move by being stored again, so if the log ended at the same place before and after the count, the
whole count is consistent; otherwise it has no log end, and is shown but not trusted.
"""

from collections.abc import Iterator

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.live_clients import ConsumerGroup
from sparrowmq.net.slices import Slice
from sparrowmq.protocol.delay import schedule_queue_id
from sparrowmq.protocol.drain import DrainReport, GroupLeft, ReadElsewhere
from sparrowmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    is_dlq_topic,
    is_retry_topic,
    is_system_group,
    is_system_topic,
    retry_topic,
)
from sparrowmq.store.store import ColdTime

SETTLED_MS = 40_000
"""Clients send a heartbeat every 30 s."""


def is_settled(broker: Broker) -> bool:
    """Whether every live group is known. After a start, a group that has not committed anything is
    only known once its members come back."""
    running_ms = broker.monotonic() - broker.statistics.started_ms
    return running_ms >= SETTLED_MS or broker.delivery.log_at_start == 0


async def drain_report(broker: Broker, elsewhere: ReadElsewhere) -> DrainReport:
    """Count what is left now, to groups that read a topic only elsewhere as well."""
    drain, store = broker.drain, broker.store
    log_end = store.max_log_offset
    with broker.slices.begin() as turn:
        readers = await _readers(broker, elsewhere, turn)
        groups = await _groups_left(broker, readers, turn)
        dead, claimed, unclaimed = await _left_behind(broker, readers, turn)
    last_due_ms = await _last_due_ms(broker)
    return DrainReport(
        state=drain.state,
        since_ms=drain.since_ms,
        refuses_sends=bool(drain.refusal),
        is_settled=is_settled(broker),
        groups=tuple(groups),
        delayed=_delayed(broker),
        last_due_ms=last_due_ms,
        half=len(broker.delivery.halves),
        dead=dead,
        claimed=tuple(claimed),
        unclaimed=unclaimed,
        broadcasting=tuple(sorted(each.name for each in broker.consumers if each.is_broadcasting)),
        log_end=log_end if log_end == store.max_log_offset else -1,
    )


# ---- groups


async def _readers(broker: Broker, elsewhere: ReadElsewhere, turn: Slice) -> dict[str, set[str]]:
    """Group → topics of this broker that it reads: those in which it has progress, here or
    elsewhere, or to which it subscribes, and its retry topic. Excludes broadcasting groups, whose
    members keep their own progress, and topics to which no live member subscribes any more."""
    readers: dict[str, set[str]] = {}
    for topic, group in _with_progress(broker, elsewhere):
        live = broker.consumers.group(group)
        wanted = frozenset[str]() if live is None else live.topics
        if not wanted or topic in wanted:
            readers.setdefault(group, set()).add(topic)
        if turn.is_over:
            await turn.pause()
    for config in broker.topics:
        if is_retry_topic(config.topic_name):
            readers.setdefault(config.topic_name.removeprefix(RETRY_PREFIX), set())
    for live in broker.consumers:
        readers.setdefault(live.name, set()).update(live.topics)
    for group, topics in readers.items():
        topics.add(retry_topic(group))
    return {
        group: {topic for topic in topics if _counts(broker, topic)}
        for group, topics in readers.items()
        if not is_system_group(group) and not _is_broadcasting(broker.consumers.group(group))
    }


def _with_progress(broker: Broker, elsewhere: ReadElsewhere) -> Iterator[tuple[str, str]]:
    for key, _ in broker.offsets.rows():
        topic, _, group = key.partition("@")
        yield topic, group
    for topic, groups in elsewhere.groups.items():
        for group in groups:
            yield topic, group


def _is_broadcasting(live: ConsumerGroup | None) -> bool:
    return live is not None and live.is_broadcasting


def _counts(broker: Broker, topic: str) -> bool:
    """Whether the topic is on this broker and is a user's."""
    return topic in broker.topics and not is_system_topic(topic) and not is_dlq_topic(topic)


async def _groups_left(
    broker: Broker, readers: dict[str, set[str]], turn: Slice
) -> list[GroupLeft]:
    found = []
    for group in sorted(readers):
        live, config = broker.consumers.group(group), broker.groups.get(group)
        for topic in sorted(readers[group]):
            left = sum(_unread(broker, group, topic))
            if left:
                is_stopped = config is not None and not config.consume_enable
                is_paused = is_stopped or not broker.groups.is_readable(group, topic)
                members = 0 if live is None else len(live.client_ids)
                found.append(
                    GroupLeft(
                        group=group,
                        topic=topic,
                        left=left,
                        members=members,
                        is_paused=is_paused,
                        lacking=0 if live is None else live.without(topic),
                    )
                )
            if turn.is_over:
                await turn.pause()
    return found


def _unread(broker: Broker, group: str, topic: str) -> Iterator[int]:
    """Messages of each queue that the group has not read. One without progress has read nothing:
    members commit their start as soon as their first pull is answered."""
    for queue_id in _queue_ids(broker, topic):
        low, high = broker.store.queue_range(topic, queue_id)
        yield max(0, high - max(low, broker.offsets.get(group, topic, queue_id)))


def _queue_ids(broker: Broker, topic: str) -> range:
    config = broker.topics.get(topic)
    return range(0 if config is None else max(config.read_queue_nums, config.write_queue_nums))


async def _left_behind(
    broker: Broker, readers: dict[str, set[str]], turn: Slice
) -> tuple[dict[str, int], list[str], dict[str, int]]:
    """Dead letters by group, topics with messages that groups read, and messages of topics that no
    group reads."""
    dead: dict[str, int] = {}
    read: list[str] = []
    unclaimed: dict[str, int] = {}
    claimed = {topic for topics in readers.values() for topic in topics}
    claimed |= {topic for live in broker.consumers for topic in live.topics}
    own = {broker.config.cluster_name, broker.config.broker_name}
    for config in broker.topics:
        topic = config.topic_name
        if turn.is_over:
            await turn.pause()
        if is_system_topic(topic) or topic in own or broker.drain.passes(topic):
            continue
        ranges = [broker.store.queue_range(topic, each) for each in _queue_ids(broker, topic)]
        messages = sum(high - low for low, high in ranges)
        if messages and is_dlq_topic(topic):
            dead[topic.removeprefix(DLQ_PREFIX)] = messages
        elif messages and topic in claimed:
            read.append(topic)
        elif messages:
            unclaimed[topic] = messages
    return dead, read, unclaimed


# ---- messages that wait for their time


def _delayed(broker: Broker) -> int:
    levels = broker.delivery.levels
    waiting = 0
    for level, offset in levels.offsets.items():
        low, high = broker.store.queue_range(SCHEDULE_TOPIC, schedule_queue_id(level))
        waiting += max(0, high - max(low, offset))
    return waiting + broker.delivery.timers.undelivered


async def _last_due_ms(broker: Broker) -> int:
    """When the last waiting message is due; 0 if none waits."""
    store, delays_ms = broker.store, broker.store.config.delay_levels_ms
    last_ms = broker.delivery.timers.last_due_ms() or 0
    for level, offset in broker.delivery.levels.offsets.items():
        queue_id = schedule_queue_id(level)
        end = store.max_offset(SCHEDULE_TOPIC, queue_id)
        if offset >= end:
            continue
        stored = store.time_at(SCHEDULE_TOPIC, queue_id, end - 1)
        if isinstance(stored, ColdTime):
            (stored,) = await broker.workers.run(store.load_times, [stored])
        last_ms = max(last_ms, stored + delays_ms[level - 1])
    return last_ms
