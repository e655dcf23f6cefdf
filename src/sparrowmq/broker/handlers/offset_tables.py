"""Whole tables of offsets, copies of them, and raw queue units."""

import struct
from collections.abc import Generator, Sequence

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.delivery.delay_properties import slot_ms
from sparrowmq.broker.handlers.table_changes import check_is_master
from sparrowmq.net.audit import audit
from sparrowmq.net.errors import RequestRefused
from sparrowmq.net.routes import Reply, Request, Routes
from sparrowmq.net.slices import in_slices
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.broker_stats import ConsumeQueueUnit, ConsumeQueueUnits, CorrectionOffsets
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.statistics import (
    CloneGroupOffset,
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetTimerCheckpoint,
    GetTimerMetrics,
    QueryConsumeQueue,
    QueryCorrectionOffset,
)
from sparrowmq.protocol.names import TIMER_TOPIC, group_fault
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable, DelayOffsetTable, TimerMetrics

routes: Routes[Broker] = Routes()

_MOST_UNITS = 10_000
_NEVER = 2**63 - 1
_TIMER_CHECKPOINT = struct.Struct(">7q")


@routes.on(GetAllConsumerOffsets)
async def get_all_consumer_offsets(
    broker: Broker, request: Request[GetAllConsumerOffsets]
) -> Reply:
    """Return every group's progress, in the format of consumerOffset.json.

    Apache's slaves need a version, although they compare it with nothing.
    """
    version = DataVersion().next(broker.clock())
    copied = await in_slices(broker.offsets.copying(), broker.slices)
    table = ConsumerOffsetTable(offset_table=copied.offset_table, data_version=version)
    return Reply(body=await broker.workers.run(table.to_json))


@routes.on(GetAllDelayOffsets)
def get_all_delay_offsets(broker: Broker, request: Request[GetAllDelayOffsets]) -> Reply:
    """Return how far each delay level is delivered, in the format of delayOffset.json."""
    offsets = dict(broker.delivery.levels.offsets)
    return Reply(body=DelayOffsetTable(offset_table=offsets).to_json())


@routes.on(CloneGroupOffset)
async def clone_group_offset(broker: Broker, request: Request[CloneGroupOffset]) -> Reply:
    """Give a group the progress of another, in one topic or in all."""
    check_is_master(broker)
    header = request.header
    fault = group_fault(header.dest_group)
    if fault is not None:
        raise RequestRefused(ResponseCode.INVALID_PARAMETER, fault)
    topics = [header.topic] if header.topic else broker.offsets.topics_of(header.src_group)
    await in_slices(_clone(broker, header, topics), broker.slices)
    audit(
        request,
        "cloned offsets of group %s to %s in %s",
        header.src_group,
        header.dest_group,
        topics,
    )
    return await broker.offset_saving.reply_when_saved(Reply())


def _clone(
    broker: Broker, header: CloneGroupOffset, topics: Sequence[str]
) -> Generator[None, None, None]:
    live = broker.consumers.group(header.src_group)
    for topic in topics:
        is_wanted = header.offline or live is None or topic in live.topics
        if topic in broker.topics and is_wanted:
            for queue_id, offset in broker.offsets.queues(header.src_group, topic).items():
                broker.offsets.commit(header.dest_group, topic, queue_id, offset)
        yield


@routes.on(GetTimerCheckpoint)
def get_timer_checkpoint(broker: Broker, request: Request[GetTimerCheckpoint]) -> Reply:
    """Return how far timers are delivered, as Apache's slaves ask for it."""
    timers, end = broker.delivery.timers, broker.store.max_offset(TIMER_TOPIC, 0)
    # A promoted Apache slave begins with this slot. The time of the last delivery would not do:
    # messages due in that second would be redelivered, however long ago that was.
    read_ms = slot_ms(timers.delivered_before(broker.delivery.clock.now_ms()))
    # Time, position in a timer log (there is none), queue offset, the master's; version 0.
    return Reply(body=_TIMER_CHECKPOINT.pack(read_ms, 0, end, end, 0, 0, 0))


@routes.on(GetTimerMetrics)
def get_timer_metrics(broker: Broker, request: Request[GetTimerMetrics]) -> Reply:
    """Return an empty table, as pending timers are not counted by topic here. Apache's slaves treat
    it as unchanged from the second time on."""
    return Reply(body=TimerMetrics().to_json())


@routes.on(QueryCorrectionOffset)
def query_correction_offset(broker: Broker, request: Request[QueryCorrectionOffset]) -> Reply:
    """Return for each queue the lowest offset of all groups, or the highest possible number if the
    compared group is further back than they are."""
    header = request.header
    left_out = set((header.filter_groups or "").split(","))
    lowest: dict[int, int] = {}
    for group in broker.offsets.groups_of(header.topic):
        if group not in left_out:
            for queue_id, offset in broker.offsets.queues(group, header.topic).items():
                lowest[queue_id] = min(offset, lowest.get(queue_id, _NEVER))
    for queue_id, offset in broker.offsets.queues(header.compare_group, header.topic).items():
        if lowest.get(queue_id, _NEVER) > offset:
            lowest[queue_id] = _NEVER
    return Reply(body=CorrectionOffsets(correction_offsets=lowest).to_json())


@routes.on(QueryConsumeQueue)
def query_consume_queue(broker: Broker, request: Request[QueryConsumeQueue]) -> Reply:
    """Return units of a consume queue as they are on disk."""
    header = request.header
    if (header.topic, header.queue_id) not in set(broker.store.queues()):
        text = f"queue {header.queue_id} of topic {header.topic} does not exist"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)
    low, high = broker.store.queue_range(header.topic, header.queue_id)
    group = broker.consumers.group(header.consumer_group or "")
    wanted = None if group is None else group.subscriptions.get(header.topic)
    count = max(0, min(header.count, _MOST_UNITS))
    units = tuple(
        ConsumeQueueUnit(
            physic_offset=log_offset,
            physic_size=size,
            tags_code=tags_code,
            eval=wanted is not None and wanted.takes_code(tags_code),
        )
        for log_offset, size, tags_code in broker.store.units(
            header.topic, header.queue_id, header.index, count
        )
    )
    is_offline = header.consumer_group and wanted is None
    answer = ConsumeQueueUnits(
        max_queue_index=high,
        min_queue_index=low,
        queue_data=units,
        subscription_data=wanted,
        filter_data=f"{header.consumer_group}@{header.topic} is not online" if is_offline else None,
    )
    return Reply(body=answer.to_json())
