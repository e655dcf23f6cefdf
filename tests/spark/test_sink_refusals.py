"""Brokers that take no rows now: rows leave one that drains, and wait for a limit."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="needs the spark extra: pip install sparrowmq[spark]")

from sparrowmq.admin.admin import Admin  # noqa: E402 - after the skip
from sparrowmq.client.sending.queue_choice import queue_for_key  # noqa: E402
from sparrowmq.protocol.codes import RequestCode, ResponseCode  # noqa: E402
from sparrowmq.protocol.message import MessageQueue  # noqa: E402
from sparrowmq.protocol.properties import decode_properties  # noqa: E402
from sparrowmq.protocol.record import Record  # noqa: E402
from sparrowmq.spark.errors import BrokerAway  # noqa: E402
from sparrowmq.spark.sink_options import SinkOptions  # noqa: E402
from sparrowmq.spark.wire.cluster import RemoteCluster  # noqa: E402
from sparrowmq.spark.wire.sender import RowSender, Send  # noqa: E402
from sparrowmq.spark.write_task import write_rows  # noqa: E402
from sparrowmq.store.files import StoreFiles  # noqa: E402
from sparrowmq.testing import Cluster, cluster  # noqa: E402
from tests.spark.scripted_broker import Said, ScriptedBroker  # noqa: E402
from tests.spark.topics import SHORT_LOG  # noqa: E402

QUEUES = 4
KEYS = 7
ROWS = 100
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


@pytest.fixture
def running() -> Iterator[Cluster]:
    with cluster(brokers=2, default_queues=QUEUES, store=SHORT_LOG) as started:
        yield started


def admin(running: Cluster, work: str, *args: object, **named: object) -> None:
    async def run() -> None:
        async with Admin(running.name_server) as one:
            await getattr(one, work)(*args, **named)

    asyncio.run(run())


def in_queues(running: Cluster, topic: str) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {}
    for broker in running.broker_addresses:
        for record in StoreFiles.at(Path(running.data_dir) / broker).records():
            if record.topic == topic:
                found.setdefault((broker, record.queue_id), []).append(record)
    return found


def numbered(first: int, *, keyed: bool) -> Any:
    columns = {"body": pa.array([b"%d" % at for at in range(first, first + ROWS)])}
    if keyed:
        keys = [f"customer-{at % KEYS}" for at in range(ROWS)]
        columns["shardingKey"] = pa.array(keys)
    return pa.record_batch(columns)


@pytest.mark.parametrize("keyed", [True, False], ids=["with keys", "without keys"])
def test_rows_leave_a_broker_that_drains(running: Cluster, keyed: bool) -> None:
    admin(running, "create_topic", "orders", queues=QUEUES)

    def batches() -> Iterator[Any]:
        yield numbered(0, keyed=keyed)
        admin(running, "drain_broker", "broker-b", grace_s=0)
        yield numbered(ROWS, keyed=keyed)
        yield numbered(2 * ROWS, keyed=keyed)

    options = SinkOptions(name_server=running.name_server, topic="orders")
    places = {"body": 0, "shardingKey": 1} if keyed else {"body": 0}
    sent = write_rows(batches(), options, places, "job 1", 0)

    queues = in_queues(running, "orders")
    numbers = [int(record.body) for records in queues.values() for record in records]
    assert sent.rows == 3 * ROWS
    assert Counter(numbers) == Counter(range(3 * ROWS)), "each row is stored once"
    # The send that was under way when it began to drain was not stored by it.
    late = {place for place, records in queues.items() for r in records if int(r.body) >= ROWS}
    assert {broker for broker, _ in late} == {"broker-a"}
    if not keyed:
        assert len(late) == QUEUES
        return
    left = [MessageQueue("orders", "broker-a", at) for at in range(QUEUES)]
    for (broker, queue_id), records in queues.items():
        for record in records:
            if int(record.body) >= ROWS:
                key = decode_properties(record.properties)["__SHARDINGKEY"]
                assert queue_for_key(left, key) == MessageQueue("orders", broker, queue_id)
    for at in range(KEYS):
        for records in queues.values():
            of_key = [int(r.body) for r in records if int(r.body) % ROWS % KEYS == at]
            assert of_key == sorted(of_key)


def test_rows_without_a_key_go_to_another_broker_at_once_while_one_is_over_quota(
    running: Cluster,
) -> None:
    admin(running, "create_topic", "orders", queues=QUEUES)
    admin(running, "set_quota", "topic", "orders", messages=1, brokers=["broker-b"])
    time = Time()
    with RemoteCluster(running.name_server) as brokers:
        one = RowSender(brokers, group="test", retry_timeout_s=60.0, pause=time.pause)
        assert one.queue_count("orders") == 2 * QUEUES
        for number in range(20):
            one.send(Send("orders", QUEUES, False, 1, b"%d" % number, ""))
    assert time.pauses == []
    found = Counter(broker for broker, records in in_queues_of(running) for _ in records)
    assert found.total() == 20
    assert found["broker-a"] > found["broker-b"] > 0


def in_queues_of(running: Cluster) -> list[tuple[str, list[Record]]]:
    return [(broker, records) for (broker, _), records in in_queues(running, "orders").items()]


class Time:
    """Pauses that take none."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def refusing(broker: ScriptedBroker, answers: list[Said]) -> None:
    """Give these answers to sends, the last one for good."""
    for code in SENDS:
        broker.on(code, lambda _: answers.pop(0) if len(answers) > 1 else answers[0])


def send(broker: ScriptedBroker, time: Time, *, keyed: bool, timeout_s: float = 60.0) -> None:
    with RemoteCluster(broker.address) as brokers:
        one = RowSender(
            brokers,
            group="test",
            retry_timeout_s=timeout_s,
            elapsed_s=lambda: time.now_s,
            pause=time.pause,
        )
        one.queue_count("orders")
        one.send(Send("orders", 0, keyed, 1, b"a", ""))


LIMITED = Said(
    code=ResponseCode.FLOW_CONTROL,
    fields={"sparrowRetryAfterMs": "2500"},
    remark="topic orders: 10 messages a second are used up, come back in 2500 ms",
)
DRAINS = Said(code=ResponseCode.NO_PERMISSION, remark="broker broker-a drains")
JAVAS_LIMIT = Said(code=ResponseCode.FLOW_CONTROL, remark="too many")


@pytest.mark.parametrize("keyed", [True, False], ids=["with a key", "without a key"])
@pytest.mark.parametrize(
    ("refusal", "least_s", "most_s"),
    [(LIMITED, 2.5, 2.5), (DRAINS, 0.01, 1.0), (JAVAS_LIMIT, 0.01, 1.0)],
    ids=["a limit that says when", "a broker that drains", "a limit of Apache's"],
)
def test_rows_wait_for_the_only_broker_that_refuses_them(
    keyed: bool, refusal: Said, least_s: float, most_s: float
) -> None:
    time = Time()
    with ScriptedBroker(queues=2) as broker:
        refusing(broker, [refusal, refusal, Said()])
        send(broker, time, keyed=keyed)
        assert sum(map(broker.count, SENDS)) == 3
    assert len(time.pauses) == 2
    assert all(least_s <= pause <= most_s for pause in time.pauses)


@pytest.mark.parametrize(
    ("refusal", "said"),
    [
        (
            LIMITED,
            r"code 215: topic orders: 10 .* with maxRowsPerSecond below the limit",
        ),
        (DRAINS, r"code 16: broker broker-a drains.* when the topic can be written to"),
    ],
    ids=["a limit", "a broker that drains"],
)
def test_a_lasting_refusal_fails_the_task_with_the_remedy(refusal: Said, said: str) -> None:
    time = Time()
    with ScriptedBroker() as broker:
        refusing(broker, [refusal])
        with pytest.raises(BrokerAway, match=f"(?s)given up after .* retryTimeout 9s.*{said}"):
            send(broker, time, keyed=True, timeout_s=9.0)
    assert time.now_s <= 9.0
