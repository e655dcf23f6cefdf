"""Counts come from offsets; lag and times are reported per queue."""

import pytest

from sparrowmq.broker.consumer_offsets import ConsumerOffsets
from sparrowmq.broker.handlers import statistics as handlers
from sparrowmq.broker.statistics import (
    BROKER_FROM_DISK,
    BROKER_FROM_DISK_SIZE,
    BROKER_PUT,
    GROUP_FROM_DISK,
    GROUP_FROM_DISK_SIZE,
    GROUP_GET,
    GROUP_GET_LATENCY,
    GROUP_GET_SIZE,
    SENT_BACK,
    TOPIC_PUT,
    TOPIC_PUT_SIZE,
    Statistics,
)
from sparrowmq.protocol.body import GroupList
from sparrowmq.protocol.broker_stats import BrokerStatsData
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.drain import DrainReport, ReadElsewhere
from sparrowmq.protocol.header import RequestHeader
from sparrowmq.protocol.headers.clients import UnregisterClient
from sparrowmq.protocol.headers.connections import GetConsumersOfTopic
from sparrowmq.protocol.headers.consumer_calls import InvokeResetOffset
from sparrowmq.protocol.headers.drain import LookAtDrain
from sparrowmq.protocol.headers.groups import DeleteGroup
from sparrowmq.protocol.headers.offsets import QueryConsumerOffset
from sparrowmq.protocol.headers.send import SendBack
from sparrowmq.protocol.headers.statistics import (
    GetBrokerConsumeStats,
    GetConsumeStats,
    GetConsumeTimeSpan,
    GetTopicStats,
    ViewBrokerStats,
)
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.protocol.heartbeat import ConsumerData
from sparrowmq.protocol.offsets_body import (
    ConsumeStats,
    ConsumeStatsList,
    ConsumeTimeSpan,
    TopicStats,
)
from tests.broker.world import World, queue, subscribes

START = 1_700_000_000_000
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def commit(world: World, at: int, group: str = "billing", topic: str = "orders") -> None:
    world.commit(group, topic, 0, at)


# ---- in flight


def in_flight(world: World) -> tuple[int, int]:
    """Pulled and committed in queue 0."""
    stats = world.read(GetConsumeStats(consumer_group="billing"), ConsumeStats)
    pair = stats.offset_table[queue("orders", 0)]
    return pair.pull_offset, pair.consumer_offset


@pytest.fixture
def pulled(world: World) -> World:
    """Three messages of which a live member pulled two and committed one."""
    world.topic("orders", 1)
    world.send("orders", b"1", b"2", b"3")
    world.client("a").beat(subscribes("billing"))
    commit(world, 1)
    world.pull("orders", queue_offset=1, max_msg_nums=1)
    return world


def test_what_was_pulled_and_not_committed_is_in_flight(pulled: World) -> None:
    assert in_flight(pulled) == (2, 1)


def test_what_a_waiting_pull_is_answered_is_in_flight(pulled: World) -> None:
    pull = pulled.sim.client.pull("orders", offset=3, wait_s=10, group="billing")
    pulled.sim.until_idle()
    pulled.send("orders", b"4")
    pulled.sim.wait(pull)
    assert in_flight(pulled) == (4, 1)


def test_nothing_is_in_flight_if_more_was_committed_than_pulled(pulled: World) -> None:
    commit(pulled, 3)
    assert in_flight(pulled) == (3, 3)


def test_nothing_is_in_flight_in_a_group_without_members(pulled: World) -> None:
    other = pulled.client("b")
    other.beat(subscribes("shipping"))
    commit(pulled, 1, group="shipping")
    pulled.pull("orders", group="shipping")
    other.disconnect()
    stats = pulled.read(GetConsumeStats(consumer_group="shipping"), ConsumeStats)
    pair = stats.offset_table[queue("orders", 0)]
    assert (pair.pull_offset, pair.consumer_offset) == (1, 1)


@pytest.mark.parametrize(
    "header",
    [
        DeleteGroup(group_name="billing"),
        DeleteGroup(group_name="billing", clean_offset=True),
        DeleteTopic(topic="orders"),
        InvokeResetOffset(topic="orders", group="billing", timestamp=0),
    ],
    ids=["group", "group-and-progress", "topic", "reset"],
)
def test_what_was_pulled_is_forgotten_with_its_group_or_topic(
    pulled: World, header: RequestHeader
) -> None:
    assert pulled.broker.offsets.pulled
    pulled.done(header)
    assert not pulled.broker.offsets.pulled


# ---- counting


def look(statistics: Statistics, now_ms: int, put: int, got: int = 0) -> None:
    rows = [("orders", {0: put})], [("orders@billing", {0: got})]
    statistics.sample(now_ms, *rows, today_ms=now_ms)


def sums(data: BrokerStatsData | None) -> tuple[int, int, int]:
    assert data is not None
    return data.stats_minute.sum, data.stats_hour.sum, data.stats_day.sum


def counted(now_ms: int = START) -> Statistics:
    """A broker that starts with 1,000 messages, 900 of which are consumed."""
    statistics = Statistics(now_ms, cluster="c", today_ms=now_ms)
    look(statistics, now_ms, 1_000, 900)
    return statistics


def test_what_was_there_at_the_start_is_not_counted() -> None:
    statistics = counted()
    assert statistics.totals == (0, 0)
    assert statistics.spans(TOPIC_PUT, "orders", START) is None


def test_puts_and_gets_are_how_far_offsets_moved() -> None:
    statistics = counted()
    look(statistics, START + 10_000, 1_030, 910)
    assert statistics.totals == (30, 10)
    assert statistics.tps(TOPIC_PUT, "orders", START + 10_000) == pytest.approx(3)
    assert statistics.tps(GROUP_GET, "orders@billing", START + 10_000) == pytest.approx(1)


def test_a_queue_that_appears_later_is_counted_from_its_first_message() -> None:
    statistics = counted()
    statistics.sample(START + 10_000, [("orders", {0: 1_000, 1: 5})], [])
    assert statistics.totals == (5, 0)


def test_a_group_that_appears_later_is_counted_from_the_first_look_at_it() -> None:
    statistics = counted()
    statistics.sample(START + 10_000, [], [("orders@late", {0: 500})])
    statistics.sample(START + 20_000, [], [("orders@late", {0: 503})])
    assert statistics.totals == (0, 3)


def test_a_group_that_was_sent_to_offset_0_is_counted_from_there(world: World) -> None:
    world.send("orders", b"1", b"2", b"3")
    world.done(QueryConsumerOffset(consumer_group="billing", topic="orders", queue_id=0))
    commit(world, 3)
    world.sim.advance(1)
    header = ViewBrokerStats(stats_name=GROUP_GET, stats_key="orders@billing")
    assert sums(world.read(header, BrokerStatsData)) == (3, 3, 3)


def test_a_reset_to_the_past_counts_nothing_and_what_follows_counts_again() -> None:
    statistics = counted()
    look(statistics, START + 10_000, 1_000, 0)
    look(statistics, START + 20_000, 1_000, 900)
    assert statistics.totals == (0, 900)


def test_minutes_hours_and_days_hold_what_fits_into_them() -> None:
    statistics = counted()
    now = START
    put = 1_000
    for _ in range(3 * 360):  # three hours, one message every ten seconds
        now += 10_000
        put += 1
        look(statistics, now, put)
    minute, hour, day = sums(statistics.spans(TOPIC_PUT, "orders", now))
    assert 5 <= minute <= 7
    assert 350 <= hour <= 430
    assert day == 3 * 360
    later = now + 2 * MINUTE
    for step in range(13):
        look(statistics, now + step * 10_000, put)
    assert sums(statistics.spans(TOPIC_PUT, "orders", later))[0] == 0


def test_the_brokers_own_topics_do_not_count_for_the_broker() -> None:
    statistics = counted()
    statistics.sample(START + 10_000, [("SCHEDULE_TOPIC_XXXX", {0: 50})], [])
    assert statistics.totals == (0, 0)
    assert sums(statistics.spans(TOPIC_PUT, "SCHEDULE_TOPIC_XXXX", START + 10_000))[0] == 50


def test_totals_are_remembered_at_midnight() -> None:
    statistics = counted()
    look(statistics, START + 10_000, 1_030)
    look(statistics, START + DAY, 1_040)
    assert statistics.mornings == ((0, 0), (40, 0))
    look(statistics, START + 2 * DAY, 1_050)
    assert statistics.mornings == ((40, 0), (50, 0))


def test_a_deleted_topic_and_its_groups_are_forgotten() -> None:
    statistics = counted()
    look(statistics, START + 10_000, 1_030, 910)
    statistics.sample(START + 20_000, [], [])
    assert statistics.spans(TOPIC_PUT, "orders", START) is None
    assert statistics.spans(GROUP_GET, "orders@billing", START) is None
    assert statistics.spans(BROKER_PUT, "c", START) is not None


def test_event_counters_are_dropped_after_a_day_without_events() -> None:
    statistics = counted()
    statistics.count(SENT_BACK, "orders@billing", 1, START)
    for hour in range(1, 27):
        look(statistics, START + hour * HOUR, 1_000)
    assert statistics.spans(SENT_BACK, "orders@billing", START) is None
    assert statistics.spans(BROKER_PUT, "c", START) is not None


def test_a_look_may_be_interrupted_at_any_row_and_adds_up_at_its_end() -> None:
    statistics = counted()
    rows = [(f"topic-{number}", {0: number}) for number in range(5)]
    steps = statistics.look(START + 10_000, rows, [], size_of=lambda *at: 100 * (at[3] - at[2]))
    for _ in range(5):
        next(steps)
        assert statistics.totals == (0, 0)
    assert list(steps) is not None
    assert statistics.totals == (10, 0)
    assert statistics.total(TOPIC_PUT, "topic-4") == 4
    assert statistics.total(TOPIC_PUT_SIZE, "topic-4") == 400


# ---- asking


def stats(world: World, name: str, key: str) -> BrokerStatsData:
    return world.read(ViewBrokerStats(stats_name=name, stats_key=key), BrokerStatsData)


def test_sizes_are_those_of_the_records_in_the_log(world: World) -> None:
    world.topic("orders", 1)
    began = world.broker.store.max_log_offset
    world.send("orders", b"1" * 10, b"2" * 1_000, b"3" * 100_000)
    size = world.broker.store.max_log_offset - began
    world.sim.advance(1)
    assert sums(stats(world, TOPIC_PUT_SIZE, "orders")) == (size, size, size)
    commit(world, 0)
    world.sim.advance(11)
    commit(world, 3)
    world.sim.advance(1)
    assert sums(stats(world, GROUP_GET_SIZE, "orders@billing")) == (size, size, size)


def test_messages_sent_back_count_for_the_topic_they_were_sent_to(world: World) -> None:
    world.topic("orders", 1)
    world.group("billing")
    world.send("orders", b"poison")
    for _ in range(2):  # the second time it comes from the retry topic
        at = world.broker.store.last_record_offset
        world.done(SendBack(offset=at, group="billing", delay_level=1))
        world.sim.advance(5)
    found = stats(world, SENT_BACK, "orders@billing").stats_minute
    assert (found.sum, found.avgpt) == (2, 1)


def test_gets_that_wait_for_the_device_are_timed(world: World) -> None:
    world.broker.statistics.read_from_disk(
        "billing", "orders", 3, count=8, size=800, began_ms=0, now_ms=12
    )
    found = stats(world, GROUP_GET_LATENCY, "3@orders@billing").stats_minute
    assert (found.sum, found.avgpt) == (12, 12)
    for name, key, total in (
        (GROUP_FROM_DISK, "orders@billing", 8),
        (GROUP_FROM_DISK_SIZE, "orders@billing", 800),
        (BROKER_FROM_DISK, "DefaultCluster", 8),
        (BROKER_FROM_DISK_SIZE, "DefaultCluster", 800),
    ):
        assert sums(stats(world, name, key)) == (total, total, total)
    assert world.broker.statistics.longest_get_ms == 12


def test_a_counter_is_viewed_by_name_and_key(world: World) -> None:
    world.send("orders", b"1", b"2", b"3")
    world.sim.advance(1)
    found = world.read(ViewBrokerStats(stats_name=TOPIC_PUT, stats_key="orders"), BrokerStatsData)
    assert sums(found) == (3, 3, 3)
    header = ViewBrokerStats(stats_name=BROKER_PUT, stats_key="DefaultCluster")
    assert sums(world.read(header, BrokerStatsData)) == (3, 3, 3)
    commit(world, 1)
    world.sim.advance(10)
    commit(world, 3)
    world.sim.advance(1)
    header = ViewBrokerStats(stats_name=GROUP_GET, stats_key="orders@billing")
    assert sums(world.read(header, BrokerStatsData)) == (2, 2, 2)


def test_repeated_queries_do_not_scan_all_queues_every_time(world: World) -> None:
    world.send("orders", b"1")
    world.sim.advance(1)
    header = ViewBrokerStats(stats_name=TOPIC_PUT, stats_key="orders")
    world.read(header, BrokerStatsData)
    looked_ms = world.broker.statistics.sampled_ms
    world.read(header, BrokerStatsData)
    assert world.broker.statistics.sampled_ms == looked_ms
    world.sim.advance(1)
    world.read(header, BrokerStatsData)
    assert world.broker.statistics.sampled_ms > looked_ms


def test_a_counter_that_does_not_exist_is_refused(world: World) -> None:
    for name, key in ((TOPIC_PUT, "orders"), ("SOMETHING", "orders")):
        answer = world.ask(ViewBrokerStats(stats_name=name, stats_key=key))
        assert answer.code == ResponseCode.SYSTEM_ERROR


def test_a_topic_reports_the_messages_in_its_queues(world: World) -> None:
    world.topic("orders", 2)
    world.send("orders", b"1", b"2")
    world.sim.advance(1)
    stats = world.read(GetTopicStats(topic="orders"), TopicStats)
    first, second = stats.offset_table[queue("orders", 0)], stats.offset_table[queue("orders", 1)]
    assert (first.min_offset, first.max_offset) == (0, 2)
    assert world.sim.clock() - 1500 <= first.last_update_timestamp <= world.sim.clock()
    assert (second.max_offset, second.last_update_timestamp) == (0, 0)
    assert stats.topic_put_tps > 0
    assert world.ask(GetTopicStats(topic="missing")).code == ResponseCode.TOPIC_NOT_EXIST


def test_a_group_reports_its_lag_per_queue(world: World) -> None:
    world.topic("orders", 2)
    world.send("orders", b"1", b"2", b"3")
    world.send("orders", b"4", queue_id=1)
    commit(world, 1)
    stats = world.read(GetConsumeStats(consumer_group="billing"), ConsumeStats)
    first = stats.offset_table[queue("orders", 0)]
    assert (first.broker_offset, first.consumer_offset, first.lag) == (3, 1, 2)
    assert first.last_timestamp > 0
    assert stats.offset_table[queue("orders", 1)].lag == 1
    assert stats.lag == 3


def test_a_question_about_one_group_does_not_copy_the_progress_of_all(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tools ask about a thousand groups, one after the other."""
    world.topic("orders", 1)
    commit(world, 0)

    def copied(_: ConsumerOffsets) -> None:
        raise AssertionError("all rows were copied")

    monkeypatch.setattr(ConsumerOffsets, "rows", copied)
    stats = world.read(GetConsumeStats(consumer_group="billing"), ConsumeStats)
    assert list(stats.offset_table) == [queue("orders", 0)]


def test_a_live_group_tells_only_of_topics_it_subscribes_to(world: World) -> None:
    for topic in ("orders", "refunds"):
        world.topic(topic, 1)
        commit(world, 0, topic=topic)
    world.client("a").beat(subscribes("billing", "orders"))

    def topics(**more: str) -> set[str]:
        header = GetConsumeStats(consumer_group="billing", **more)
        return {one.topic for one in world.read(header, ConsumeStats).offset_table}

    assert topics() == {"orders"}
    assert topics(topic="refunds") == set()
    assert topics(topic_list="orders;refunds;") == {"orders", "refunds"}


def test_topics_of_every_live_member_are_reported_whichever_heartbeat_came_last(
    world: World,
) -> None:
    for topic in ("orders", "refunds", "old"):
        world.topic(topic, 1)
        commit(world, 0, topic=topic)

    def topics() -> set[str]:
        stats = world.read(GetConsumeStats(consumer_group="billing"), ConsumeStats)
        return {one.topic for one in stats.offset_table}

    def groups(topic: str) -> frozenset[str]:
        return world.read(GetConsumersOfTopic(topic=topic), GroupList).group_list

    both = (subscribes("billing", topic) for topic in ("orders", "refunds"))
    wanted = tuple(data for each in both for data in each.subscription_data_set)
    everything = ConsumerData(group_name="billing", subscription_data_set=wanted)
    one, other = world.client("a"), world.client("b")
    for _ in range(2):
        other.beat(everything)
        assert topics() == {"orders", "refunds"}
        one.beat(subscribes("billing", "orders"))
        assert topics() == {"orders", "refunds"}
    world.send("refunds", b"1")
    report = world.read(LookAtDrain(), DrainReport, ReadElsewhere().to_json())
    assert [(each.topic, each.members, each.lacking) for each in report.groups] == [
        ("refunds", 2, 1)
    ]
    other.ask(UnregisterClient(client_id="b", consumer_group="billing"))
    assert topics() == {"orders"}
    one.beat(subscribes("billing", "other"))
    assert groups("other") == {"billing"}


def test_all_groups_of_a_broker_are_listed_with_their_total_lag(world: World) -> None:
    world.topic("orders", 1)
    world.topic("ordered", 1, order=True)
    world.send("orders", b"1", b"2", b"3")
    for group in ("billing", "audit"):
        world.group(group)
        commit(world, 1, group)
        commit(world, 0, group, "ordered")
    found = world.read(GetBrokerConsumeStats(), ConsumeStatsList)
    listed = {name: stats for one in found.consume_stats_list for name, stats in one.items()}
    assert len(listed["billing"]) == len(listed["audit"]) == 2
    assert found.total_diff == 4
    assert found.broker_addr == world.broker.address
    ordered = world.read(GetBrokerConsumeStats(is_order=True), ConsumeStatsList)
    listed = {name: stats for one in ordered.consume_stats_list for name, stats in one.items()}
    assert [set(stats.offset_table) for stats in listed["billing"]] == [{queue("ordered", 0)}]


def test_a_group_reports_the_store_time_of_its_position(world: World) -> None:
    world.topic("orders", 2)
    for body in (b"1", b"2", b"3"):
        world.send("orders", body)
        world.sim.advance(60)
    commit(world, 1)
    found = world.read(GetConsumeTimeSpan(topic="orders", group="billing"), ConsumeTimeSpan)
    first, second = found.consume_time_span_set
    assert 119_000 < first.max_time_stamp - first.min_time_stamp < 121_000
    assert first.consume_time_stamp == first.min_time_stamp
    assert 119_000 < first.delay_time < 121_000, "the next message came two minutes ago"
    assert (second.min_time_stamp, second.max_time_stamp, second.delay_time) == (-1, -1, 0)
    header = GetConsumeTimeSpan(topic="missing", group="billing")
    assert world.ask(header).code == ResponseCode.TOPIC_NOT_EXIST


def test_an_answer_too_large_for_a_frame_is_refused_with_a_narrower_request(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.topic("orders", 2)
    world.group("billing")
    commit(world, 0)
    monkeypatch.setattr(handlers, "MOST_BYTES", 100)
    for header in (GetBrokerConsumeStats(), GetConsumeStats(consumer_group="billing")):
        answer = world.ask(header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "more than 100 bytes" in answer.remark
        assert "GET_CONSUME_STATS, 208" in answer.remark


def test_a_topic_that_is_named_twice_is_reported_once(world: World) -> None:
    world.topic("orders", 1)
    commit(world, 0)
    header = GetConsumeStats(consumer_group="billing", topic_list="orders;orders")
    assert len(world.read(header, ConsumeStats).offset_table) == 1
