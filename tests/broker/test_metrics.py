"""The page /metrics of a broker: values against a load that is known."""

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse

from sparrowmq.broker.monitoring.monitoring import BrokerMonitoring
from sparrowmq.broker.monitoring.traffic_figures import TrafficMetrics
from sparrowmq.broker.server import BrokerServer
from sparrowmq.metrics.families import BROKER_FAMILIES
from sparrowmq.metrics.text import LoopSlices
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT, TRANSACTION_ROLLBACK
from sparrowmq.testing.loop_watchdog import LoopWatchdog
from tests.broker import transaction_world
from tests.broker.delivery_world import orders_world
from tests.broker.scraping import MonitoredWorld, get, monitor, monitored_world
from tests.broker.traffic.limits_world import BACKLOG, MESSAGES, admitted, limit_topic
from tests.broker.world import subscribes, world_with
from tests.metrics.slices import A_SLICE, Slices, counted_slices
from tests.store.stores import message

COMMON = {"cluster": "DefaultCluster", "node_id": "broker-a", "node_type": "broker"}
Samples = dict[str, list[tuple[dict[str, str], float]]]


def scraped(world: MonitoredWorld) -> Samples:
    """Samples by name, with the labels that not all of them have."""
    status, text = world.get("/metrics")
    assert status == 200
    found: Samples = {}
    for family in parse(text):
        for sample in family.samples:
            assert {name: sample.labels[name] for name in COMMON} == COMMON
            own = {name: value for name, value in sample.labels.items() if name not in COMMON}
            found.setdefault(sample.name, []).append((own, sample.value))
    return found


def value(samples: Samples, name: str, **labels: str) -> float:
    """The one sample that has these labels."""
    found = [each for own, each in samples[name] if labels.items() <= own.items()]
    assert len(found) == 1, (name, labels, samples.get(name))
    return found[0]


@pytest.fixture
def world() -> Iterator[MonitoredWorld]:
    with monitored_world() as world:
        world.topic("orders")
        world.group("billing")
        yield world


def test_every_name_on_the_page_is_a_declared_one_with_its_labels(world: MonitoredWorld) -> None:
    world.send("orders", b"one")
    world.commit("billing", "orders", 0, 1)
    world.sim.advance(20)
    _, text = world.get("/metrics")
    declared = {name: family for family in BROKER_FAMILIES for name in family.names}
    for family in parse(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        for sample in family.samples:
            labels = sample.labels.keys() - COMMON.keys() - {"le"}
            assert labels == set(declared[name].labels)


def test_messages_and_bytes_that_came_in_are_exact(world: MonitoredWorld) -> None:
    before = scraped(world)
    bodies = [b"x" * 100, b"y" * 2_000, b"z" * 600_000]
    world.send("orders", *bodies)
    world.send("orders", b"other queue", queue_id=1)
    samples = scraped(world)
    store = world.broker.store
    sizes = [size for queue in (0, 1) for _, size, _ in store.units("orders", queue, 0, 10)]
    topic = {"topic": "orders", "message_type": "normal", "is_system": "false"}
    assert "rocketmq_messages_in_total" not in before
    assert value(samples, "rocketmq_messages_in_total", **topic) == 4
    assert value(samples, "rocketmq_throughput_in_total", **topic) == sum(sizes)
    assert value(samples, "rocketmq_message_size_sum", **topic) == sum(sizes)
    buckets = "rocketmq_message_size_bucket"
    counts = [value(samples, buckets, le=le, **topic) for le in ("1024.0", "4096.0", "1048576.0")]
    assert counts == [2, 3, 4]


def test_what_was_stored_before_the_start_does_not_count_as_coming_in() -> None:
    with world_with() as plain:
        world = MonitoredWorld(plain.sim)
        world.topic("orders")
        world.send("orders", b"one", b"two")
        world.node.host.start(monitor(world.node), name="monitoring")
        world.sim.until(lambda: world.node.server.metrics_port != 0)
        assert "rocketmq_messages_in_total" not in scraped(world)
        world.send("orders", b"three")
        assert value(scraped(world), "rocketmq_messages_in_total", topic="orders") == 1


def test_looks_at_the_same_time_count_every_message_once(world: MonitoredWorld) -> None:
    broker = world.broker

    class Disturbed(LoopSlices):
        """Lets another message come, and another look run, at every chance."""

        left = 10

        async def rest(self) -> None:
            if self.left:
                self.left -= 1
                broker.store.append(message(self.left), broker.clock())
                await traffic.look(LoopSlices())

    async def look() -> None:
        await traffic.look(Disturbed())

    async def start() -> TrafficMetrics:
        return TrafficMetrics(broker)

    traffic = world.sim.run(start())
    world.send("orders", b"one", b"two")
    world.sim.run(look())
    stored = broker.store.max_offset("orders", 0)
    assert stored > 2, "nothing disturbed the look"
    assert traffic.topics["orders"].messages == stored


def test_the_lag_is_split_into_pulled_and_ready(world: MonitoredWorld) -> None:
    world.send("orders", *(b"%d" % number for number in range(10)))
    world.commit("billing", "orders", 0, 2)
    world.client("member").beat(subscribes("billing"))
    world.pull("orders", queue_offset=2, max_msg_nums=3)
    world.sim.advance(1)
    samples = scraped(world)
    group = {"consumer_group": "billing", "topic": "orders", "is_retry": "false"}
    assert value(samples, "rocketmq_consumer_lag_messages", **group) == 8
    assert value(samples, "rocketmq_consumer_inflight_messages", **group) == 3
    assert value(samples, "rocketmq_consumer_ready_messages", **group) == 5


def test_consumed_messages_are_counted_also_where_a_group_is_set_back(
    world: MonitoredWorld,
) -> None:
    world.send("orders", *(b"%d" % number for number in range(10)))
    world.commit("billing", "orders", 0, 0)
    world.sim.advance(11)
    group = {"consumer_group": "billing", "topic": "orders", "is_system": "false"}
    for offset, consumed in ((4, 4), (10, 10), (3, 10), (5, 12)):
        world.commit("billing", "orders", 0, offset)
        world.sim.advance(11)
        assert value(scraped(world), "rocketmq_messages_out_total", **group) == consumed
    sizes = [size for _, size, _ in world.broker.store.units("orders", 0, 0, 10)]
    out = value(scraped(world), "rocketmq_throughput_out_total", **group)
    assert out == round(12 * sum(sizes) / 10)


def test_latencies_come_from_the_sample_and_grow_with_time(world: MonitoredWorld) -> None:
    world.send("orders", b"old")
    world.sim.advance(100)
    world.send("orders", b"young")
    world.commit("billing", "orders", 0, 0)
    world.sim.advance(20)
    group = {"consumer_group": "billing", "topic": "orders"}
    name = "rocketmq_consumer_lag_latency_milliseconds"
    first = value(scraped(world), name, **group)
    assert 119_000 <= first <= 121_000
    world.sim.advance(60)
    assert value(scraped(world), name, **group) == pytest.approx(first + 60_000, abs=100)
    world.commit("billing", "orders", 0, 1)
    world.sim.advance(16)
    assert value(scraped(world), name, **group) == pytest.approx(96_000, abs=1_100)
    world.commit("billing", "orders", 0, 2)
    assert value(scraped(world), name, **group) == 0  # at once, by the offset


def test_the_latency_of_a_group_that_was_not_sampled_yet_is_left_out(
    world: MonitoredWorld,
) -> None:
    world.sim.advance(1)
    world.send("orders", b"one")
    world.commit("billing", "orders", 0, 0)
    samples = scraped(world)
    assert value(samples, "rocketmq_consumer_lag_messages", consumer_group="billing") == 1
    sampled = samples["rocketmq_consumer_lag_latency_milliseconds"]
    assert "billing" not in {own["consumer_group"] for own, _ in sampled}


def test_the_lag_of_a_filtering_group_counts_only_matching_messages(world: MonitoredWorld) -> None:
    member = world.client("member")
    member.beat(subscribes("billing", "orders", "paid || late"))
    for number in range(9):
        world.send("orders", b"%d" % number, TAGS=("paid", "open", "late")[number % 3])
    world.commit("billing", "orders", 0, 0)
    world.sim.advance(16)
    assert value(scraped(world), "rocketmq_consumer_lag_messages", topic="orders") == 6
    world.commit("billing", "orders", 0, 9)
    assert value(scraped(world), "rocketmq_consumer_lag_messages", topic="orders") == 0


def test_lag_by_queue_is_there_on_request_only() -> None:
    for is_wanted in (False, True):
        with monitored_world(metrics_per_queue=is_wanted) as world:
            world.topic("orders")
            world.send("orders", b"one", queue_id=1)
            world.commit("billing", "orders", 1, 0)
            samples = scraped(world)
            name = "sparrowmq_consumer_queue_lag_messages"
            assert (name in samples) is is_wanted
            if is_wanted:
                assert value(samples, name, queue_id="1", topic="orders") == 1


def test_connections_are_counted_by_language_and_version(world: MonitoredWorld) -> None:
    world.client("one").beat(subscribes("billing"))
    world.client("two").beat(subscribes("billing"))
    samples = scraped(world)
    labels = {"consumer_group": "billing", "consume_mode": "push", "protocol_type": "remoting"}
    assert value(samples, "rocketmq_consumer_connections", **labels) == 2


def test_answered_requests_are_timed_with_their_codes(world: MonitoredWorld) -> None:
    world.sim.advance(2)
    world.send("orders", b"one", b"two")
    refused = world.pull("nowhere")
    assert refused.code == ResponseCode.TOPIC_NOT_EXIST
    samples = scraped(world)
    name = "rocketmq_rpc_latency_milliseconds_count"
    codes = {(own["request_code"], own["response_code"]): count for own, count in samples[name]}
    assert codes["send_message_v2", "success"] == 2
    assert codes["pull_message", "topic_not_exist"] == 1
    assert samples[name] == samples["rocketmq_rpc_latency_count"]


def test_no_more_than_a_hundred_requests_a_second_are_timed(world: MonitoredWorld) -> None:
    world.sim.advance(2)
    endpoint = world.node.server.endpoint
    timing = endpoint.handlers
    for _ in range(30):
        world.send("orders", *[b"x"] * 10)
    timed = sum(count for _, count in scraped(world)["rocketmq_rpc_latency_milliseconds_count"])
    assert endpoint.handlers is not timing
    assert 100 <= timed < 200
    world.sim.advance(2)
    assert endpoint.handlers is timing


def test_the_storage_and_the_build_are_described(world: MonitoredWorld) -> None:
    world.send("orders", b"one")
    samples = scraped(world)
    assert value(samples, "sparrowmq_ready") == 1
    assert value(samples, "sparrowmq_build_info", role="master") == 1
    assert value(samples, "rocketmq_broker_permission") == 6
    log_bytes = world.broker.store.max_log_offset
    assert value(samples, "sparrowmq_commit_log_bytes") == log_bytes
    assert value(samples, "rocketmq_topic_number") == len(world.broker.topics)
    assert value(samples, "rocketmq_storage_size_bytes", storage_type="local") >= 0
    assert {own["processor"] for own, _ in samples["rocketmq_processor_watermark"]} >= {"send"}


def test_transactions_are_counted_by_how_producers_end_them() -> None:
    with orders_world() as world:
        for kind in (TRANSACTION_COMMIT, TRANSACTION_COMMIT, TRANSACTION_ROLLBACK):
            transaction_world.end(world, transaction_world.half(world), kind)
        delivery = world.broker.delivery
        assert (delivery.committed, delivery.rolled_back) == ({"orders": 2}, {"orders": 1})


def test_a_slave_leaves_topics_and_groups_to_its_master() -> None:
    with monitored_world(slaves=1) as world:
        world.topic("orders")
        world.send("orders", b"one")
        slave = world.sim.brokers["broker-a.1"]
        slave.host.start(monitor(slave), name="monitoring")
        world.sim.until(lambda: slave.server.metrics_port != 0)
        status, text = world.sim.run(get("/metrics"), on=slave.host)
        assert status == 200
        assert "rocketmq_messages_in_total" not in text
        assert 'role="slave"' in text


def test_master_and_slave_both_report_the_lag() -> None:
    with monitored_world(slaves=1) as world:
        world.topic("orders")
        world.send("orders", b"one")
        sim, slave = world.sim, world.sim.brokers["broker-a.1"]
        end = world.broker.store.max_log_offset
        sim.until(lambda: world.broker.replication.replicas.last_acknowledged(1) == end)
        of_slave = {"broker_id": "1"}
        samples = scraped(world)
        assert value(samples, "sparrowmq_copies_in_sync") == 2
        assert value(samples, "sparrowmq_slave_follows", **of_slave) == 1
        assert value(samples, "sparrowmq_slave_behind_bytes", **of_slave) == 0
        slave.host.start(monitor(slave), name="monitoring")
        sim.until(lambda: slave.server.metrics_port != 0)
        _, text = sim.run(get("/metrics"), on=slave.host)
        own = [line.rpartition(" ") for line in text.splitlines() if "behind_master" in line]
        assert [figure for name, _, figure in own if not name.startswith("#")] == ["0", "0"]
        slave.kill()
        sim.until(lambda: not world.broker.replication.feed.links)
        world.send("orders", b"two")
        samples = scraped(world)
        grown = world.broker.store.max_log_offset - end
        assert value(samples, "sparrowmq_copies_in_sync") == 1
        assert value(samples, "sparrowmq_slave_follows", **of_slave) == 0
        assert value(samples, "sparrowmq_slave_behind_bytes", **of_slave) == grown > 0


@contextmanager
def with_groups(count: int) -> Iterator[BrokerServer]:
    """A broker with `count` groups, of which every other one has a message to consume."""
    with world_with() as world:
        world.topic("orders")
        world.send("orders", b"one")
        for number in range(count):
            world.broker.offsets.commit(f"group-{number}", "orders", 0, number % 2)
        (node,) = world.sim.brokers.values()
        yield node.server


def test_samples_and_pages_of_many_groups_are_made_in_slices() -> None:
    with with_groups(2_000) as server:

        async def scrape() -> Slices:
            monitoring = BrokerMonitoring(server)
            with counted_slices() as slices:
                await monitoring.lag.sample()
                await monitoring.metrics()
            return slices

        slices = asyncio.run(scrape())
        assert slices.longest < A_SLICE
        assert slices.count > 4_000


@pytest.mark.slow  # by the clock, which a machine that does other things disturbs
def test_a_page_of_sixty_thousand_samples_blocks_the_loop_for_one_slice_at_most() -> None:
    with with_groups(8_600) as server:

        async def scrape() -> int:
            monitoring = BrokerMonitoring(server)
            # A slice is 5 ms; the rest leaves room for a slow machine.
            with LoopWatchdog():
                await monitoring.lag.sample()
                answer = await monitoring.metrics()
            assert not isinstance(answer.body, str)
            return sum(part.count(b"\n") for part in answer.body)

        gc.disable()  # all that other tests left behind would be looked through in here
        try:
            assert asyncio.run(scrape()) > 60_000
        finally:
            gc.enable()


def test_what_limits_refused_and_dropped_is_counted(world: MonitoredWorld) -> None:
    assert limit_topic(world, {MESSAGES: 3, BACKLOG: "100:refuse:billing"}).code == 0
    assert admitted(world, 10) == 3
    samples = scraped(world)
    refused = "sparrowmq_refused_sends_total"
    assert value(samples, refused, limit="quota", scope="topic") == 7
    assert value(samples, refused, limit="backlog", scope="topic") == 0
    assert value(samples, "sparrowmq_dropped_sends_total", limit="quota") == 0
    assert value(samples, "sparrowmq_backlog_reached", topic="orders") == 0
