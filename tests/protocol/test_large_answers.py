"""Answers that are written piece by piece are those that are written as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.offsets_body import (
    ConsumeStats,
    ConsumeStatsList,
    OffsetPair,
    TopicOffset,
    TopicStats,
    group_stats,
    queue_rows,
    with_groups,
    with_rows,
)

QUEUES = st.builds(MessageQueue, st.text(min_size=1), st.just("broker-a"), st.integers(0, 9))
PAIRS = st.builds(OffsetPair, broker_offset=st.integers(0, 2**62), consumer_offset=st.integers(0))
TABLES = st.lists(st.dictionaries(QUEUES, PAIRS, max_size=3), max_size=4)


def whole(tables: list[dict[MessageQueue, OffsetPair]]) -> dict[MessageQueue, OffsetPair]:
    return {queue: pair for table in tables for queue, pair in table.items()}


@given(TABLES)
def test_a_table_in_pieces_is_the_table(tables: list[dict[MessageQueue, OffsetPair]]) -> None:
    rows = [queue_rows(table) for table in tables if table]
    written = b"".join(with_rows(ConsumeStats(consume_tps=1.5), rows))
    assert ConsumeStats.from_json(written) == ConsumeStats(
        offset_table=whole(tables), consume_tps=1.5
    )


@pytest.mark.parametrize("count", [0, 1, 3])
def test_pieces_give_the_same_bytes_as_the_whole(count: int) -> None:
    table = {
        MessageQueue("orders", "broker-a", n): TopicOffset(min_offset=n, max_offset=9)
        for n in range(count)
    }
    rows = [queue_rows({queue: row}) for queue, row in table.items()]
    stats = TopicStats(offset_table=table, topic_put_tps=0.25)
    assert b"".join(with_rows(TopicStats(topic_put_tps=0.25), rows)) == stats.to_json()


@pytest.mark.parametrize("groups", [[], ["billing"], ["billing", 'a"b', "%RETRY%x"]])
def test_a_list_of_groups_in_pieces_is_the_list(groups: list[str]) -> None:
    table = {MessageQueue("orders", "broker-a", 0): OffsetPair(broker_offset=7)}
    stats = (ConsumeStats(offset_table=table), ConsumeStats())
    whole_list = ConsumeStatsList(
        consume_stats_list=tuple({group: stats} for group in groups),
        broker_addr="127.0.0.1:10911",
        total_diff=7,
    )
    pieces = [group_stats(group, [one.to_json() for one in stats]) for group in groups]
    empty = ConsumeStatsList(broker_addr="127.0.0.1:10911", total_diff=7)
    assert b"".join(with_groups(empty, pieces)) == whole_list.to_json()
