"""Rows reach the right queues, in order, and outlast a broker that is away for a while."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.admin.admin import Admin  # noqa: E402 - after the skip
from sparrowmq.client.sending.queue_choice import queue_for_key  # noqa: E402
from sparrowmq.protocol.message import MessageQueue  # noqa: E402
from sparrowmq.protocol.properties import decode_properties  # noqa: E402
from sparrowmq.protocol.record import Record  # noqa: E402
from sparrowmq.spark.errors import BrokerAway, ServerRefused  # noqa: E402
from sparrowmq.spark.schema import ColumnError  # noqa: E402
from sparrowmq.spark.sink_options import MAX_MESSAGE_BYTES, SinkOptions  # noqa: E402
from sparrowmq.spark.wire.cluster import RemoteCluster  # noqa: E402
from sparrowmq.spark.wire.sender import (  # noqa: E402
    NoWriteQueue,
    RowSender,
    Send,
    UnknownTopic,
    write_queues,
)
from sparrowmq.spark.write_task import WritePace, bounded, write_rows  # noqa: E402
from sparrowmq.store.files import StoreFiles  # noqa: E402
from sparrowmq.testing import Cluster, cluster  # noqa: E402
from tests.spark.topics import SHORT_LOG  # noqa: E402

QUEUES = 4


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    """For tests that stop no server; each has its own topic."""
    with cluster(brokers=2, default_queues=QUEUES, store=SHORT_LOG) as started:
        yield started


@pytest.fixture
def fragile() -> Iterator[Cluster]:
    """For a test that stops brokers."""
    with cluster(brokers=2, default_queues=QUEUES, store=SHORT_LOG) as started:
        create(started, "orders")
        yield started


def create(running: Cluster, topic: str, **settings: Any) -> None:
    async def work() -> None:
        async with Admin(running.name_server) as admin:
            await admin.create_topic(topic, queues=QUEUES, **settings)

    asyncio.run(work())


def stored(running: Cluster, topic: str) -> dict[tuple[str, int], list[Record]]:
    """The records of each queue, in the order of the log."""
    found: dict[tuple[str, int], list[Record]] = {}
    for broker in running.broker_addresses:
        for record in StoreFiles.at(Path(running.data_dir) / broker).records():
            if record.topic == topic:
                found.setdefault((broker, record.queue_id), []).append(record)
    return found


def write(running: Cluster, columns: dict[str, Any], **options: Any) -> Any:
    chosen = SinkOptions(name_server=running.name_server, **options)
    positions = {name: at for at, name in enumerate(columns)}
    return write_rows([pa.record_batch(columns)], chosen, positions, "job 1", 0)


def sender(brokers: RemoteCluster, **settings: Any) -> RowSender:
    return RowSender(brokers, group="test", **({"retry_timeout_s": 60.0} | settings))


def test_rows_without_a_key_fill_all_queues_evenly(running: Cluster) -> None:
    create(running, "even")
    bodies = [b"%d" % at for at in range(81)]
    sent = write(running, {"body": pa.array(bodies)}, topic="even")
    queues = stored(running, "even")
    assert sent.rows == 81
    assert sent.sends == 2 * QUEUES
    assert Counter(map(len, queues.values())) == {10: 7, 11: 1}
    assert sorted(r.body for records in queues.values() for r in records) == sorted(bodies)


def test_rows_of_one_key_are_in_order_in_the_queue_that_producers_choose(
    running: Cluster,
) -> None:
    create(running, "sharded")
    keys = [f"customer-{at % 7}" for at in range(200)]
    bodies = [b"%d" % at for at in range(200)]
    write(running, {"body": pa.array(bodies), "shardingKey": pa.array(keys)}, topic="sharded")
    names = [
        MessageQueue("sharded", broker, at)
        for broker in ("broker-a", "broker-b")
        for at in range(QUEUES)
    ]
    for (broker, queue_id), records in stored(running, "sharded").items():
        numbers = [int(record.body) for record in records]
        assert numbers == sorted(numbers)
        for record in records:
            key = decode_properties(record.properties)["__SHARDINGKEY"]
            assert key == keys[int(record.body)]
            assert queue_for_key(names, key) == MessageQueue("sharded", broker, queue_id)


def bodies_in(running: Cluster, topic: str) -> list[bytes]:
    found = stored(running, topic).values()
    return sorted(record.body for records in found for record in records)


def test_delayed_rows_wait_while_the_others_are_delivered(running: Cluster) -> None:
    create(running, "delayed")
    levels = pa.array([None, 18, 0], pa.int32())
    write(running, {"body": pa.array([b"a", b"b", b"c"]), "delayLevel": levels}, topic="delayed")
    assert bodies_in(running, "delayed") == [b"a", b"c"]
    assert bodies_in(running, "SCHEDULE_TOPIC_XXXX") == [b"b"]


def test_a_row_as_large_as_brokers_take_goes_alone_without_the_weight_of_a_batch(
    running: Cluster,
) -> None:
    create(running, "large")
    bodies = [b"small", bytes([7]) * MAX_MESSAGE_BYTES, b"small too"]
    sent = write(running, {"body": pa.array(bodies)}, topic="large")
    assert sent.sends == 3
    assert bodies_in(running, "large") == sorted(bodies)


def test_a_topic_that_does_not_exist_is_named_with_the_remedy(running: Cluster) -> None:
    columns = {"body": pa.array([b"a"]), "topic": pa.array(["ordres"])}
    with pytest.raises(UnknownTopic, match=r"topic ordres does not exist .* the column topic"):
        write(running, columns)


def test_a_topic_without_write_permission_is_distinguished_from_a_missing_one(
    running: Cluster,
) -> None:
    create(running, "frozen", perm=4)
    with (
        RemoteCluster(running.name_server) as brokers,
        pytest.raises(NoWriteQueue, match="frozen now"),
    ):
        write_queues(brokers, "frozen")


def test_a_refusal_fails_at_once_with_code_remark_topic_and_queue(running: Cluster) -> None:
    create(running, "refused")
    with RemoteCluster(running.name_server) as brokers:
        one = sender(brokers)
        one.queue_count("refused")
        text = r"sending 1 rows to refused queue 0 of broker-a at .* refused with code 13: \S"
        with pytest.raises(ServerRefused, match=text):
            one.send(Send("refused", 0, True, 1, bytes(5 << 20), ""))


def test_a_send_outlasts_a_broker_that_is_away(fragile: Cluster) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            fragile.start_broker("broker-b")

    with RemoteCluster(fragile.name_server) as brokers:
        one = sender(brokers, pause=pause)
        assert one.queue_count("orders") == 2 * QUEUES
        fragile.stop_broker("broker-b")
        one.send(Send("orders", QUEUES, True, 1, b"for b", ""))
    assert len(pauses) >= 3
    assert pauses == sorted(pauses)
    assert [r.body for r in stored(fragile, "orders")["broker-b", 0]] == [b"for b"]


def test_a_task_that_starts_while_every_broker_is_away_waits_for_them(fragile: Cluster) -> None:
    for name in fragile.broker_addresses:
        fragile.stop_broker(name)

    def pause(_: float) -> None:
        for name in stopped:
            fragile.start_broker(name)
        stopped.clear()

    stopped = list(fragile.broker_addresses)
    with RemoteCluster(fragile.name_server) as brokers:
        with pytest.raises(BrokerAway, match="no broker is registered at name server"):
            write_queues(brokers, "orders")
        assert sender(brokers, pause=pause).queue_count("orders") in (QUEUES, 2 * QUEUES)


def test_a_task_waits_for_a_topic_that_was_there_although_other_brokers_are(
    fragile: Cluster,
) -> None:
    create(fragile, "only-b", brokers=["broker-b"])
    fragile.stop_broker("broker-b")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        if not pauses:
            fragile.start_broker("broker-b")
        pauses.append(seconds)

    with RemoteCluster(fragile.name_server) as brokers:
        with pytest.raises(
            UnknownTopic, match=r"topic only-b .* is alive: broker broker-b at .* left"
        ):
            sender(brokers, pause=pause).queue_count("only-b")
        waiting = sender(brokers, pause=pause, waits_for_topics=True)
        assert waiting.queue_count("only-b") == QUEUES
    assert len(pauses) == 1


def test_rows_without_a_key_go_to_another_broker_meanwhile(fragile: Cluster) -> None:
    pauses: list[float] = []
    with RemoteCluster(fragile.name_server) as brokers:
        one = sender(brokers, pause=pauses.append)
        assert one.queue_count("orders") == 2 * QUEUES
        fragile.stop_broker("broker-b")
        one.send(Send("orders", QUEUES, False, 1, b"anywhere", ""))
    assert len(pauses) == 1
    assert [broker for broker, _ in stored(fragile, "orders")] == ["broker-a"]


def test_a_broker_that_stays_away_fails_the_send_and_the_error_names_the_time(
    fragile: Cluster,
) -> None:
    now_s = [0.0]

    def pause(seconds: float) -> None:
        now_s[0] += seconds

    with RemoteCluster(fragile.name_server) as brokers:
        one = sender(brokers, retry_timeout_s=5.0, pause=pause, elapsed_s=lambda: now_s[0])
        assert one.queue_count("orders") == 2 * QUEUES
        fragile.stop_broker("broker-b")
        text = r"sending 1 rows to orders queue 0 of broker-b: given up after .* retryTimeout 5s"
        with pytest.raises(BrokerAway, match=text):
            one.send(Send("orders", QUEUES, True, 1, b"a", ""))
    assert 3.0 <= now_s[0] <= 5.0


@pytest.mark.parametrize("bad", [None, b""], ids=["null", "empty"])
def test_a_bad_row_fails_its_task_and_earlier_rows_stay_sent(
    running: Cluster, bad: bytes | None
) -> None:
    """The promise is per task: no task knows the rows of the others, or its own later ones."""
    topic = "bad-row-null" if bad is None else "bad-row-empty"
    create(running, topic)
    batches = [
        pa.record_batch({"body": pa.array([b"first", b"second"])}),
        pa.record_batch({"body": pa.array([b"third", bad])}),
    ]
    options = SinkOptions(name_server=running.name_server, topic=topic)
    said = "column body: .*; up to 2 rows of this task were sent before, and other tasks may have"
    with pytest.raises(ColumnError, match=said):
        write_rows(batches, options, {"body": 0}, "job 1", 0)
    with pytest.raises(ColumnError, match="; this task sent none"):
        write_rows(batches[1:], options, {"body": 0}, "job 1", 0)
    found = [record.body for records in stored(running, topic).values() for record in records]
    assert b"third" not in found
    assert b"first" in found


def test_a_topic_is_created_on_every_broker_when_that_is_wanted(running: Cluster) -> None:
    columns = {"body": pa.array([b"a", b"b"]), "topic": pa.array(["made-here", "made-too"])}
    with pytest.raises(UnknownTopic, match="createTopic=true"):
        write(running, columns)
    write(running, columns, create_topic=True, create_topic_queues=3)
    for topic in ("made-here", "made-too"):
        [records] = stored(running, topic).values()
        assert len(records) == 1, "sent twice"
        with RemoteCluster(running.name_server) as brokers:
            assert len(write_queues(brokers, topic)) == 2 * 3


def test_a_topic_that_exists_keeps_its_queues(running: Cluster) -> None:
    create(running, "made-before")
    columns = {"body": pa.array([b"a"])}
    write(running, columns, topic="made-before", create_topic=True, create_topic_queues=3)
    with RemoteCluster(running.name_server) as brokers:
        assert len(write_queues(brokers, "made-before")) == 2 * QUEUES


def test_a_topic_is_not_created_while_no_broker_is_there(fragile: Cluster) -> None:
    for name in fragile.broker_addresses:
        fragile.stop_broker(name)
    with (
        RemoteCluster(fragile.name_server) as brokers,
        pytest.raises(BrokerAway, match="no broker is registered at name server"),
    ):
        write_queues(brokers, "orders", new_queues=3)


def test_a_rate_spreads_rows_over_time_without_bursts() -> None:
    now_s = [0.0]
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        now_s[0] += seconds

    pace = WritePace(100.0, lambda: now_s[0], pause)
    for _ in range(3):
        pace.before(10)
    assert pauses == pytest.approx([0.1, 0.1])
    now_s[0] += 60.0
    pace.before(10)
    pace.before(10)
    assert pauses == pytest.approx([0.1, 0.1, 0.1])


def test_large_rows_are_encoded_a_few_at_a_time() -> None:
    batch = pa.record_batch({"body": pa.array([bytes(1 << 20)] * 40)})
    parts = list(bounded([batch, batch.slice(0, 0)]))
    assert sum(part.num_rows for part in parts) == 40
    assert max(part.num_rows for part in parts) <= 16
