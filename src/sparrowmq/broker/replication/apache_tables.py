"""The tables of an Apache master, converted to a state like those that SparrowMQ's masters send.

They are requested one after the other, between two requests for the end of the master's log:

```
28 log ─▶ 21 topics ─▶ 201 groups ─▶ 43 offsets ─▶ 45 delays ─▶ 402 modes ─▶ 60 timers ─▶ 28 log
   └ a missing topic has lost what lies before this     the state counts when this is reached ┘
```

So everything that a table refers to lies before the second end. A topic that was there last time
and is now missing has been deleted with everything before the first end; what was stored past that
end may belong to a topic that was recreated after the table was read.

Apache's offsets have no rewinds. An offset that is lower than the one here was moved back there,
and gets the next rewind: Apache's slaves, too, take over whatever their master says.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from sparrowmq.broker.broker import Broker
from sparrowmq.broker.consumer_offsets import changes_in
from sparrowmq.broker.replication.apache_master import ApacheMaster
from sparrowmq.broker.replication.follower import NotFollowing
from sparrowmq.broker.replication.table_copy import life_of
from sparrowmq.broker.replication.table_rules import OffsetChange
from sparrowmq.broker.replication.table_state import (
    DeletionsCopied,
    DeliveryCopied,
    GroupsCopied,
    TableCounts,
    TableState,
    TopicsCopied,
)
from sparrowmq.net.calls import Response
from sparrowmq.net.slices import in_slices
from sparrowmq.protocol.body import DataVersion
from sparrowmq.protocol.broker_stats import MessageRequestModeTable
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import SubscriptionGroupConfig, SubscriptionGroupTable
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.groups import GetAllGroupConfig, GetAllMessageRequestModes
from sparrowmq.protocol.headers.statistics import (
    GetAllConsumerOffsets,
    GetAllDelayOffsets,
    GetTimerCheckpoint,
)
from sparrowmq.protocol.headers.topics import GetAllTopicConfig
from sparrowmq.protocol.names import is_system_topic
from sparrowmq.protocol.offsets_body import ConsumerOffsetTable, DelayOffsetTable
from sparrowmq.protocol.topic_config import TopicConfig, TopicConfigTable

ASK_EVERY_S = 5.0
"""Apache's master saves its table of offsets this often, so a promotion redelivers no more than a
restart of the master would. Each round costs the master whole tables."""
PAGE_ROWS = 2_000
"""The page size that Apache's slaves use."""
_MOST_PAGES = 1_000
_TIMERS = struct.Struct(">qqqq")

Row = TypeVar("Row")


async def ask_tables(broker: Broker, master: ApacheMaster) -> TableState:
    """Every table of a master, for a slave. Raises NotFollowing, NetError, BodyError."""
    _, end_before = await master.log_range()
    topics = await _topics(master)
    groups = await _groups(master)
    offsets = await master.ask(GetAllConsumerOffsets())
    delays = await master.ask(GetAllDelayOffsets())
    modes = await _if_known(master, GetAllMessageRequestModes())
    timers = await _if_known(master, GetTimerCheckpoint())
    _, log_end = await master.log_range()
    # Offsets of 100,000 queues are megabytes.
    own = await in_slices(broker.offsets.copying(), broker.slices)
    progress = await broker.workers.run(_changes, own, offsets.body)
    return TableState(
        counts=TableCounts(life=life_of(broker.store)),
        log_end=log_end,
        topics=TopicsCopied(
            list(topics.topic_config_table.values()), (), True, topics.data_version
        ),
        groups=groups,
        modes=MessageRequestModeTable.from_json(modes or b"{}"),
        progress=progress,
        deletions=DeletionsCopied(None, dict.fromkeys(_deleted(broker, topics), end_before)),
        delivery=DeliveryCopied(
            dict(DelayOffsetTable.from_json(delays.body).offset_table), _marks(timers), 0
        ),
    )


def _deleted(broker: Broker, topics: TopicConfigTable) -> list[str]:
    """Topics that the master had when its tables were last copied, and no longer has."""
    known = (topic.topic_name for topic in broker.topics)
    return [
        name
        for name in known
        if name not in topics.topic_config_table and not is_system_topic(name)
    ]


def _changes(own: ConsumerOffsetTable, body: bytes) -> list[OffsetChange]:
    return numbered(list(changes_in(own)), ConsumerOffsetTable.from_json(body).offset_table)


def numbered(
    own: list[OffsetChange], progress: Mapping[str, Mapping[int, int]]
) -> list[OffsetChange]:
    """The changes that turn `own` offsets into those of a master that has no rewinds."""
    here = {(change.key, change.queue_id): change for change in own}
    rewind = max((change.rewind for change in own), default=0) + 1
    changes = []
    for key, row in progress.items():
        for queue_id, offset in row.items():
            known = here.pop((key, queue_id), OffsetChange(key, queue_id, -1))
            if offset < known.offset:
                changes.append(OffsetChange(key, queue_id, offset, rewind=rewind))
            elif offset > known.offset:
                changes.append(OffsetChange(key, queue_id, offset, rewind=known.rewind))
    removed = (change for change in here.values() if change.offset >= 0)
    changes += [OffsetChange(each.key, each.queue_id, -1, rewind=rewind) for each in removed]
    return changes


# ---- topics and groups, which come in pages since 5.4; earlier releases answer the whole table


class _Page(NamedTuple, Generic[Row]):
    rows: Mapping[str, Row]
    version: DataVersion


async def _topics(master: ApacheMaster) -> TopicConfigTable:
    def ask(first: int, version: str) -> RequestHeader:
        return GetAllTopicConfig(topic_seq=first, max_topic_num=PAGE_ROWS, data_version=version)

    def read(body: bytes) -> _Page[TopicConfig]:
        table = TopicConfigTable.from_json(body)
        return _Page(table.topic_config_table, table.data_version)

    rows, version = await _all_pages(master, ask, read, "totalTopicNum")
    return TopicConfigTable(topic_config_table=rows, data_version=version)


async def _groups(master: ApacheMaster) -> GroupsCopied:
    forbidden: dict[str, dict[str, int]] = {}

    def ask(first: int, version: str) -> RequestHeader:
        return GetAllGroupConfig(group_seq=first, max_group_num=PAGE_ROWS, data_version=version)

    def read(body: bytes) -> _Page[SubscriptionGroupConfig]:
        table = SubscriptionGroupTable.from_json(body)
        forbidden.update(table.forbidden_table)
        return _Page(table.subscription_group_table, table.data_version)

    rows, version = await _all_pages(master, ask, read, "totalGroupNum")
    return GroupsCopied(list(rows.values()), (), True, forbidden, version)


async def _all_pages(
    master: ApacheMaster,
    ask: Callable[[int, str], RequestHeader],
    read: Callable[[bytes], _Page[Row]],
    total_field: str,
) -> tuple[dict[str, Row], DataVersion]:
    """All rows of one version of a table: if it changes in between, the master starts over."""
    rows: dict[str, Row] = {}
    version: DataVersion | None = None
    for _ in range(_MOST_PAGES):
        asked = "" if version is None else version.to_json().decode()
        answer = await master.ask(ask(len(rows), asked))
        page = read(answer.body)
        if page.version != version:
            rows, version = {}, page.version
        rows.update(page.rows)
        if not page.rows or len(rows) >= _total(answer, total_field):
            return rows, version
    raise NotFollowing(f"a table of {master.address} changes faster than it can be read")


def _total(answer: Response, field: str) -> int:
    text = (answer.ext_fields or {}).get(field, "")
    return int(text) if text.isdecimal() else 0


# ---- requests that release 4.9 does not know


async def _if_known(master: ApacheMaster, header: RequestHeader) -> bytes | None:
    """The body of an answer; None if the release does not know the request."""
    answer = await master.call(header)
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return None
    return master.checked(header, answer).body


def _marks(checkpoint: bytes | None) -> list[tuple[int, int]]:
    """How far timers are delivered: time and queue offset, as in config/timercheck."""
    if checkpoint is None or len(checkpoint) < _TIMERS.size:
        return []
    read_ms, _, queue_offset, _ = _TIMERS.unpack_from(checkpoint)
    return [(read_ms, queue_offset)]
