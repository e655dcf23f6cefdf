"""Every metric of a broker is on a page, with the value that a known load gives it."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from sparrowmq.metrics.families import BROKER_FAMILIES, MetricKind
from sparrowmq.protocol.headers.pull import PullMessage
from sparrowmq.protocol.headers.send import MessageSent, SendBack
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from tests.broker.scraping import MonitoredWorld, get, monitor, monitored_world
from tests.broker.test_metrics import Samples, scraped, value
from tests.broker.traffic.limits_world import BACKLOG, MESSAGES, limit_topic
from tests.broker.world import subscribes

CAPACITY = 1 << 30
SUSPENDS = 2
"""In the flags of a pull: it waits for messages."""


class Loaded(NamedTuple):
    """What was read of a broker that has a bit of everything."""

    world: MonitoredWorld
    before: Samples
    samples: Samples
    of_slave: str


@pytest.fixture(scope="module")
def loaded() -> Iterator[Loaded]:
    with monitored_world(slaves=1, metrics_per_queue=True) as world:
        world.node.disk.capacity_bytes = CAPACITY
        world.sim.advance(2)
        before = scraped(world)
        limits = {MESSAGES: 1000, BACKLOG: "100:refuse:billing"}
        assert limit_topic(world, limits).code == 0
        assert limit_topic(world, {"sparrowmq.dedup": "10m/3"}, topic="payments").code == 0
        world.group("billing", retry_max_times=1)
        world.client("shop").beat(producers=("orders-svc",))
        member = world.client("member")
        member.beat(subscribes("billing"))
        transactions(world)
        deduplicated(world)
        sent(world, "orders", TIMER_DELAY_MS="60000")
        first = sent(world, "orders")
        back = SendBack(offset=log_offset(first), group="billing", delay_level=-1)
        world.done(back)
        world.send("orders", b"two", b"three")
        world.sim.advance(20)
        world.commit("billing", "orders", 0, 1)
        world.pull("orders", queue_offset=1, max_msg_nums=1)
        world.sim.advance(20)
        member.asking(waiting_pull())
        world.sim.advance(1)
        world.send("payments", b"not synced yet", queue_id=1)
        yield Loaded(world, before, scraped(world), page_of_slave(world))


def sent(world: MonitoredWorld, topic: str, *, queue_id: int = 0, **properties: str) -> MessageSent:
    client = world.sim.client
    return world.sim.wait(client.send(topic, b"one", queue_id=queue_id, **properties))


def log_offset(message: MessageSent) -> int:
    return OffsetId.parse(message.msg_id).log_offset


def transactions(world: MonitoredWorld) -> None:
    """Two that were committed, one that was rolled back, one that is open."""
    for kind in (TRANSACTION_COMMIT, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK, None):
        half = sent(world, "orders", queue_id=1, TRAN_MSG="true", PGROUP="test")
        if kind is None:
            continue
        ended = EndTransaction(
            producer_group="test",
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=log_offset(half),
            commit_or_rollback=kind,
            from_transaction_check=False,
        )
        world.done(ended)


def deduplicated(world: MonitoredWorld) -> None:
    """Five messages of which the topic remembers three, and one of these again."""
    for number in (1, 2, 3, 4, 5, 5):
        sent(world, "payments", UNIQ_KEY=f"{number:032X}")


def waiting_pull() -> PullMessage:
    return PullMessage(
        consumer_group="billing",
        topic="orders",
        queue_id=0,
        queue_offset=3,
        max_msg_nums=1,
        sys_flag=SUSPENDS,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
    )


def page_of_slave(world: MonitoredWorld) -> str:
    slave = world.sim.brokers["broker-a.1"]
    slave.host.start(monitor(slave), name="monitoring")
    world.sim.until(lambda: slave.server.metrics_port != 0)
    status, text = world.sim.run(get("/metrics"), on=slave.host)
    assert status == 200
    return text


def test_every_declared_metric_has_a_sample_on_a_page(loaded: Loaded) -> None:
    of_slave = {each.name for family in parse(loaded.of_slave) for each in family.samples}
    found = loaded.samples.keys() | of_slave
    declared = {
        f"{name}_count" if family.kind is MetricKind.HISTOGRAM else name
        for family in BROKER_FAMILIES
        for name in family.names
    }
    assert declared <= found, declared - found


TOPIC = {"topic": "orders"}
GROUP = {"consumer_group": "billing", "topic": "orders"}
LOCAL = {"storage_medium": "disk", "storage_type": "local"}
LAG = {**GROUP, "is_retry": "false", "is_system": "false"}
CLIENT = {"language": "python", "protocol_type": "remoting"}
CREATED = {"invocation_status": "success"}
TIMER = {**LOCAL, "topic": "rmq_sys_wheel_timer"}
PAYMENTS = {"topic": "payments"}


@pytest.mark.parametrize(
    ("name", "labels", "expected"),
    [
        ("rocketmq_commit_messages_total", TOPIC, 2),
        ("rocketmq_rollback_messages_total", TOPIC, 1),
        ("rocketmq_half_messages", {"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, 1),
        ("rocketmq_timing_messages", TIMER, 1),
        ("rocketmq_timer_enqueue_lag", LOCAL, 0),
        ("rocketmq_timer_enqueue_latency_milliseconds", LOCAL, 0),
        ("rocketmq_timer_dequeue_latency_milliseconds", LOCAL, 0),
        ("rocketmq_storage_dispatch_behind_bytes", LOCAL, 0),
        ("rocketmq_send_to_dlq_messages_total", {**GROUP, "is_system": "false"}, 1),
        ("rocketmq_consumer_lag_messages", LAG, 2),
        ("rocketmq_consumer_ready_messages", LAG, 1),
        ("rocketmq_consumer_inflight_messages", LAG, 1),
        ("rocketmq_producer_connections", CLIENT, 1),
        ("rocketmq_consumer_connections", {**CLIENT, "consumer_group": "billing"}, 1),
        ("rocketmq_topic_create_execution_time_milliseconds_count", CREATED, 2),
        ("rocketmq_consumer_group_create_execution_time_milliseconds_count", CREATED, 1),
        ("rocketmq_broker_permission", {}, 6),
        ("sparrowmq_broker_busy", {}, 0),
        ("sparrowmq_waiting_pulls", {}, 1),
        ("sparrowmq_copies_in_sync", {}, 2),
        ("sparrowmq_dedup_ids", PAYMENTS, 3),
        ("sparrowmq_dedup_duplicates_total", PAYMENTS, 1),
        ("sparrowmq_dedup_cut_total", PAYMENTS, 2),
        ("sparrowmq_consumer_queue_lag_messages", {**GROUP, "queue_id": "0"}, 2),
    ],
)
def test_a_metric_has_the_value_of_the_load(
    name: str, labels: dict[str, str], expected: float, loaded: Loaded
) -> None:
    assert value(loaded.samples, name, **labels) == expected
    earlier = name.replace("_milliseconds", "")
    if earlier != name:
        assert loaded.samples[earlier] == loaded.samples[name]


def test_times_are_those_since_the_messages_were_stored(loaded: Loaded) -> None:
    """Two messages wait for 41 s; one of them was pulled 21 s ago."""
    for name in ("lag_latency", "queueing_latency"):
        waited_ms = value(loaded.samples, f"rocketmq_consumer_{name}_milliseconds", **LAG)
        assert 40_000 <= waited_ms <= 42_000
    kept_ms = value(loaded.samples, "rocketmq_storage_message_reserve_time_milliseconds", **LOCAL)
    assert 41_000 <= kept_ms <= 60_000


def test_figures_of_the_disk_and_the_tables_are_those_of_the_broker(loaded: Loaded) -> None:
    samples, broker = loaded.samples, loaded.world.broker
    store, usage = broker.store, broker.disk.usage()
    behind = value(samples, "rocketmq_storage_flush_behind_bytes", **LOCAL)
    assert 0 < behind < store.max_log_offset
    assert value(samples, "sparrowmq_commit_log_bytes") == store.max_log_offset
    assert value(samples, "sparrowmq_disk_total_bytes") == CAPACITY
    assert value(samples, "sparrowmq_disk_free_bytes") == usage.free_bytes < CAPACITY
    used = value(samples, "rocketmq_storage_size_bytes", **LOCAL)
    assert used == CAPACITY - usage.free_bytes > store.max_log_offset
    groups = "rocketmq_consumer_group_number"
    assert value(samples, groups) == value(loaded.before, groups) + 1 == len(broker.groups)


def test_open_connections_are_counted(loaded: Loaded) -> None:
    """Those of the producer, the member and the client that sent, besides those of before."""
    name = "sparrowmq_connections"
    assert value(loaded.samples, name) == value(loaded.before, name) + 3
