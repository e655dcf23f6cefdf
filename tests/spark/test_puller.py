"""Reading a range of a queue: brokers' answers, and how a task handles them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.blocking import Message  # after the skip
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.spark.errors import BrokerAway, DataLoss, ServerRefused
from sparrowmq.spark.offsets import QueueRange
from sparrowmq.spark.options import Options, parse_options
from sparrowmq.spark.pushdown import RowCondition
from sparrowmq.spark.schema import read_columns
from sparrowmq.spark.wire.cluster import Queue, RemoteCluster
from sparrowmq.spark.wire.puller import read_range
from sparrowmq.testing import Cluster
from sparrowmq.testing.held_port import HeldPort
from tests.spark.records import record
from tests.spark.scripted_broker import HANG_UP, Said, ScriptedBroker
from tests.spark.topics import fill, send

PULL = RequestCode.PULL_MESSAGE
QUEUE = Queue("orders", "broker-a", 0)
OFFSETS = read_columns(["queueOffset"])


def options_for(broker: ScriptedBroker, **more: str) -> Options:
    base = {"nameServer": broker.address, "subscribe": "orders"}
    return parse_options({**base, **more})


def offsets(piece: QueueRange, options: Options, **rest: Any) -> list[int]:
    batches = read_range(piece, options, OFFSETS, **rest)
    return [value for batch in batches for value in batch.column(0).to_pylist()]


def range_of(next_offset: int, low: int = 0, high: int = 100) -> dict[str, str]:
    found = {"nextBeginOffset": next_offset, "minOffset": low, "maxOffset": high}
    return {"suggestWhichBrokerId": "0", **{name: str(value) for name, value in found.items()}}


def messages(count: int) -> Callable[[dict[str, str]], Said]:
    """A queue of 100 that gives so many messages at once."""

    def answer(asked: dict[str, str]) -> Said:
        first = int(asked["queueOffset"])
        last = min(first + count, 100)
        body = b"".join(record(queue_offset=at) for at in range(first, last))
        return Said(fields=range_of(last), body=body)

    return answer


def test_a_piece_is_read_from_its_start_to_below_its_end() -> None:
    with ScriptedBroker() as broker:
        broker.on(PULL, messages(8))  # the last answer has more than what was asked for
        assert offsets(QueueRange(QUEUE, 5, 40), options_for(broker)) == list(range(5, 40))


def test_small_pulls_are_combined_before_they_are_decoded() -> None:
    with ScriptedBroker() as broker:
        broker.on(PULL, messages(2))
        batches = list(read_range(QueueRange(QUEUE, 0, 100), options_for(broker), OFFSETS))
        assert [batch.num_rows for batch in batches] == [100]
        assert broker.count(PULL) == 50


def test_memory_is_bounded_by_the_combined_size() -> None:
    with ScriptedBroker() as broker:
        broker.on(PULL, messages(10))
        options = options_for(broker, pullBytes=str(20 * len(record())))
        batches = list(read_range(QueueRange(QUEUE, 0, 100), options, OFFSETS))
        assert [batch.num_rows for batch in batches] == [20] * 5


def test_no_name_server_is_asked_while_the_known_address_answers() -> None:
    with ScriptedBroker() as broker:
        broker.on(PULL, messages(100))
        piece = QueueRange(QUEUE, 0, 100)
        assert len(offsets(piece, options_for(broker), address=broker.address)) == 100
        assert broker.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 0


def test_a_broker_that_moved_is_found_through_the_name_server() -> None:
    with HeldPort() as gone, ScriptedBroker() as broker:
        broker.on(PULL, messages(100))
        piece = QueueRange(QUEUE, 0, 100)
        assert len(offsets(piece, options_for(broker), address=gone.address)) == 100


def test_a_short_outage_midway_loses_and_repeats_nothing() -> None:
    with ScriptedBroker() as broker:
        answer = messages(10)
        times = iter(range(1000))
        broker.on(PULL, lambda asked: HANG_UP if next(times) % 3 == 1 else answer(asked))
        assert offsets(QueueRange(QUEUE, 0, 100), options_for(broker)) == list(range(100))


def test_a_long_outage_fails_with_queue_broker_and_time() -> None:
    with ScriptedBroker() as broker:
        answer = messages(10)
        broker.on(PULL, lambda asked: HANG_UP if int(asked["queueOffset"]) > 50 else answer(asked))
        with pytest.raises(BrokerAway) as caught:
            offsets(QueueRange(QUEUE, 0, 100), options_for(broker, retryTimeout="300ms"))
        text = str(caught.value)
        assert "reading orders queue 0 of broker-a: given up after" in text
        assert "retryTimeout 0.3s" in text
        assert broker.address in text
        assert "start the query again" in text


def test_a_busy_broker_is_asked_again_and_a_refusing_one_is_not() -> None:
    with ScriptedBroker() as broker:
        answers = iter([Said(ResponseCode.SYSTEM_BUSY), messages(100)({"queueOffset": "0"})])
        broker.on(PULL, lambda _: next(answers))
        assert len(offsets(QueueRange(QUEUE, 0, 100), options_for(broker))) == 100
        broker.on(PULL, lambda _: Said(ResponseCode.NO_PERMISSION, remark="not for you"))
        with pytest.raises(ServerRefused, match="not for you"):
            offsets(QueueRange(QUEUE, 0, 100), options_for(broker))


def deleted_below_60(asked: dict[str, str]) -> Said:
    if int(asked["queueOffset"]) < 60:
        return Said(ResponseCode.PULL_OFFSET_MOVED, range_of(60, low=60))
    return messages(100)(asked)


def test_deleted_messages_fail_the_read_with_queue_wanted_and_oldest_offset() -> None:
    with ScriptedBroker() as broker:
        broker.on(PULL, deleted_below_60)
        with pytest.raises(DataLoss) as caught:
            offsets(QueueRange(QUEUE, 10, 100), options_for(broker))
        text = str(caught.value)
        assert "orders queue 0 of broker-a: offset 10 was wanted" in text
        assert "oldest is 60: 50 messages were deleted" in text
        assert "failOnDataLoss=false" in text


def test_deleted_messages_are_skipped_with_a_warning_if_configured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ScriptedBroker() as broker, caplog.at_level(logging.WARNING):
        broker.on(PULL, deleted_below_60)
        options = options_for(broker, failOnDataLoss="false")
        assert offsets(QueueRange(QUEUE, 10, 100), options) == list(range(60, 100))
        assert offsets(QueueRange(QUEUE, 10, 50), options) == []
    assert "50 messages were deleted" in caplog.text


def test_a_gap_that_the_broker_jumps_over_is_data_loss_too() -> None:
    with ScriptedBroker() as broker:
        jump = Said(ResponseCode.PULL_RETRY_IMMEDIATELY, range_of(30))
        answer = messages(100)
        broker.on(PULL, lambda asked: jump if asked["queueOffset"] == "0" else answer(asked))
        with pytest.raises(DataLoss, match="30 messages"):
            offsets(QueueRange(QUEUE, 0, 100), options_for(broker))
        # with a filter, jumps are expected
        options = options_for(broker, sql="a = 1")
        assert offsets(QueueRange(QUEUE, 0, 100), options) == list(range(30, 100))


def test_a_queue_that_is_shorter_than_planned_is_waited_for_and_never_skipped() -> None:
    with ScriptedBroker() as broker:
        answer = messages(100)
        times = iter(range(1000))
        empty = Said(ResponseCode.PULL_NOT_FOUND, range_of(0, high=0))
        broker.on(PULL, lambda asked: empty if next(times) < 2 else answer(asked))
        assert len(offsets(QueueRange(QUEUE, 0, 100), options_for(broker))) == 100
        broker.on(PULL, lambda _: empty)
        with pytest.raises(BrokerAway, match="to be read up to 100, but ends at 0"):
            offsets(QueueRange(QUEUE, 0, 100), options_for(broker, retryTimeout="300ms"))


def test_an_offset_past_the_end_means_that_the_topic_was_created_again() -> None:
    with ScriptedBroker() as broker:
        past_the_end = Said(ResponseCode.PULL_OFFSET_MOVED, range_of(3, high=3))
        broker.on(PULL, lambda _: past_the_end)
        with pytest.raises(DataLoss, match="deleted and created again"):
            offsets(QueueRange(QUEUE, 50, 100), options_for(broker))
        assert (
            offsets(QueueRange(QUEUE, 50, 100), options_for(broker, failOnDataLoss="false")) == []
        )


def test_a_piece_is_cut_where_its_messages_end_when_the_queue_went_back() -> None:
    """The broker restarts after the second pull: from 15 on, other messages have the offsets."""
    with ScriptedBroker() as broker:
        epochs: set[str] = set()

        def answer(asked: dict[str, str]) -> Said:
            epochs.add(asked["sparrowEpoch"])
            said = messages(8)(asked)
            if int(asked["queueOffset"]) < 12:
                return said
            return replace(
                said, fields=said.fields | {"sparrowEpoch": "9", "sparrowValidEnd": "15"}
            )

        broker.on(PULL, answer)
        piece = QueueRange(QUEUE, 0, 40, 7)
        with pytest.raises(DataLoss, match=r"had reached 40, .* before 15 are left"):
            offsets(piece, options_for(broker))
        loose = options_for(broker, failOnDataLoss="false")
        assert offsets(piece, loose) == list(range(15))
        assert offsets(QueueRange(QUEUE, 20, 40, 7), loose) == []
        assert offsets(QueueRange(QUEUE, 0, 15, 7), options_for(broker)) == list(range(15))
        assert epochs == {"7"}


def test_pulls_carry_the_filter_and_use_no_group_of_the_user() -> None:
    with ScriptedBroker() as broker:
        seen: list[dict[str, str]] = []

        def remember(asked: dict[str, str]) -> Said:
            seen.append(asked)
            return messages(100)(asked)

        broker.on(PULL, remember)
        piece = QueueRange(QUEUE, 0, 100)
        offsets(piece, options_for(broker, group="billing"))
        offsets(piece, options_for(broker, tags="a || b"))
        offsets(piece, options_for(broker, sql="price > 5"))
        offsets(piece, options_for(broker), conditions=[RowCondition("tags", "in", ("a", "b"))])
        filters = [(asked["expressionType"], asked["subscription"]) for asked in seen]
        assert filters == [
            ("TAG", "*"),
            ("TAG", "a || b"),
            ("SQL92", "price > 5"),
            ("TAG", "a || b"),
        ]
        assert {asked["sysFlag"] for asked in seen} == {"4"}
        assert {asked["consumerGroup"] for asked in seen} == {"TOOLS_CONSUMER"}


def test_tags_with_the_same_hash_are_distinguished_after_the_broker(running: Cluster) -> None:
    # "Aa" and "BB" have the same hash in Java, and the broker compares hashes
    bodies = [("Aa", b"1"), ("BB", b"2"), ("C", b"3"), ("Aa", b"4")]
    send(running, [Message("puller-tags", body, tags=tag) for tag, body in bodies])
    base = {"nameServer": running.name_server, "subscribe": "puller-tags"}
    assert read_all(parse_options({**base, "tags": "Aa"})) == [b"1", b"4"]
    assert read_all(parse_options({**base, "tags": "Aa || C"})) == [b"1", b"3", b"4"]


def test_sql_conditions_are_checked_by_the_broker(running: Cluster) -> None:
    send(
        running,
        [Message("puller-sql", b"%d" % n, properties={"price": str(n)}) for n in range(1, 10)],
    )
    base = {"nameServer": running.name_server, "subscribe": "puller-sql"}
    options = parse_options({**base, "sql": "price > 6"})
    assert read_all(options) == [b"7", b"8", b"9"]
    with pytest.raises(ServerRefused, match="SQL"):
        read_all(replace(options, sql="price >"))  # of a driver without our parser


def test_thousands_of_messages_come_in_few_pulls(running: Cluster) -> None:
    sent = fill(running, "puller-many", 600)
    options = parse_options({"nameServer": running.name_server, "subscribe": "puller-many"})
    assert read_all(options) == sent


def read_all(options: Options) -> list[bytes]:
    with RemoteCluster(options.name_server) as routes:
        pieces = [
            QueueRange(queue, routes.min_offset(queue), routes.max_offset(queue))
            for queue in routes.queues(options.subscribe[0])
        ]
    body = read_columns(["body"])
    return sorted(
        value
        for piece in pieces
        for batch in read_range(piece, options, body)
        for value in batch.column(0).to_pylist()
    )
