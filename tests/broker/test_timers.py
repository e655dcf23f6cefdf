"""Delivery times: on the millisecond, in their order, and never early."""

import random
from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.group_config import (
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    RetryPolicyType,
    SubscriptionGroupConfig,
)
from sparrowmq.protocol.headers.transactions import EndTransaction
from sparrowmq.protocol.ids import OffsetId
from sparrowmq.protocol.names import TIMER_TOPIC
from sparrowmq.protocol.sys_flag import TRANSACTION_COMMIT
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.delivery_world import (
    EPOCH_MS,
    DeliveryWorld,
    bodies,
    comes_in,
    find_no_space,
    orders_world,
)
from tests.broker.timer_world import DAY_MS, send_at

HEIRLESS = "%DLQ%SCHEDULE_CONSUMER"


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with orders_world() as world:
        yield world


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": str(EPOCH_MS + 7_500)},
        {"TIMER_DELAY_MS": "7500"},
        {"TIMER_DELAY_MS": "7500", "TIMER_DELIVER_MS": "1"},
    ],
)
def test_a_delivery_time_is_met_to_the_millisecond(
    world: DeliveryWorld, properties: dict[str, str]
) -> None:
    world.post("orders", b"body", properties)
    comes_in(world, 7_500)


def test_a_delay_in_seconds_wins_over_the_others(world: DeliveryWorld) -> None:
    world.send("orders", TIMER_DELAY_SEC="2", TIMER_DELAY_MS="9000")
    assert world.deliver() == world.now_ms + 2_000


def test_a_message_is_stored_in_the_timer_queue_as_in_apaches_store(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 7_500, TIMER_OUT_MS="1")
    send_at(world, EPOCH_MS + 8_000)
    first, second = world.messages(TIMER_TOPIC)
    assert first.properties["TIMER_OUT_MS"] == str(EPOCH_MS + 7_000)
    assert second.properties["TIMER_OUT_MS"] == str(EPOCH_MS + 7_000), "the slot before"
    assert first.properties["REAL_TOPIC"] == "orders"
    assert first.properties["REAL_QID"] == "0"


def test_a_delivered_message_is_as_it_was_sent(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 100, b"an order", TAGS="t", KEYS="k", mine="yes")
    world.pass_time(1)
    (message,) = world.messages("orders")
    assert (message.body, message.tags, message.keys) == (b"an order", "t", ("k",))
    assert message.user_properties == {"mine": "yes"}
    assert message.properties["TIMER_DEQUEUE_MS"] == str(EPOCH_MS + 100)


@pytest.mark.parametrize("time_ms", [EPOCH_MS, EPOCH_MS - 1, 1, -5])
def test_a_time_that_is_over_is_now(world: DeliveryWorld, time_ms: int) -> None:
    send_at(world, time_ms)
    assert bodies(world) == [b"body"]


def test_three_days_are_allowed_and_not_a_millisecond_more(world: DeliveryWorld) -> None:
    world.send("orders", TIMER_DELAY_MS=str(3 * DAY_MS))
    end = world.broker.store.max_log_offset
    reply = world.try_send("orders", TIMER_DELAY_MS=str(3 * DAY_MS + 1))
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "at most 259200 s" in reply.remark
    assert world.broker.store.max_log_offset == end


@pytest.mark.parametrize("text", ["soon", "1e3", "9" * 20, "\u0661"])
def test_a_time_that_is_not_a_number_is_refused(world: DeliveryWorld, text: str) -> None:
    reply = world.try_send("orders", TIMER_DELIVER_MS=text)
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert "TIMER_DELIVER_MS" in reply.remark
    assert world.broker.store.max_offset(TIMER_TOPIC, 0) == 0


def test_messages_come_in_the_order_of_their_times(world: DeliveryWorld) -> None:
    times = list(range(1, 301))
    random.Random(1).shuffle(times)
    for time in times:
        send_at(world, EPOCH_MS + time * 37, b"%d" % time)
    world.pass_time(60)
    assert bodies(world) == [b"%d" % time for time in range(1, 301)]


def test_retries_of_an_exponential_policy_come_to_the_millisecond(world: DeliveryWorld) -> None:
    policy = GroupRetryPolicy(
        type=RetryPolicyType.EXPONENTIAL,
        exponential_retry_policy=ExponentialRetryPolicy(initial=7_000, multiplier=3),
    )
    world.broker.groups.put(
        SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
    )
    world.send("orders", b"an order")
    message = world.messages("orders")[0]
    waits, told = [], []
    for _ in range(3):
        began_ms = world.now_ms
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        world.pass_time(100)
        message = world.messages("%RETRY%billing")[-1]
        waits.append(message.store_timestamp - began_ms)
        told.append(int(message.properties["TIMER_DELAY_MS"]))
    assert waits == [7_000, 21_000, 63_000]
    assert told == waits  # a consumer can tell how long it had to wait, however late it is


def test_a_committed_message_waits_for_its_time(world: DeliveryWorld) -> None:
    sent = send_at(world, EPOCH_MS + 60_000, TRAN_MSG="true", PGROUP="g")
    header = EndTransaction(
        producer_group="g",
        tran_state_table_offset=sent.queue_offset,
        commit_log_offset=OffsetId.parse(sent.msg_id).log_offset,
        commit_or_rollback=TRANSACTION_COMMIT,
    )
    assert world.call(header).code == ResponseCode.SUCCESS
    assert bodies(world) == []
    world.pass_time(61)
    assert bodies(world) == [b"body"]


def test_a_message_whose_topic_is_gone_becomes_a_dead_letter(world: DeliveryWorld) -> None:
    world.send("doomed", TIMER_DELAY_MS="1000")
    send_at(world, EPOCH_MS + 1_000)
    world.broker.topics.remove("doomed")
    world.pass_time(2)
    assert bodies(world) == [b"body"]
    assert len(bodies(world, HEIRLESS)) == 1


def test_a_full_disk_delays_and_loses_nothing(world: DeliveryWorld) -> None:
    for number in range(3):
        send_at(world, EPOCH_MS + 1_000, b"%d" % number)
    world.now_ms += 1_000
    find_no_space(world)
    world.deliver()
    assert bodies(world) == [b"0", b"1", b"2"]


def test_a_stale_entry_makes_no_message_early(world: DeliveryWorld) -> None:
    send_at(world, EPOCH_MS + 60_000)
    timers = world.broker.delivery.timers
    assert len(timers.take_due(EPOCH_MS + 60_000, 1)) == 1
    timers.add(EPOCH_MS + 1, 0, is_recall=False)
    timers.batch_done(1, world.broker.store.max_log_offset)
    world.pass_time(59)
    assert bodies(world) == []
    world.pass_time(2)
    assert bodies(world) == [b"body"]
    assert len(world.messages(TIMER_TOPIC)) == 1  # and it was not stored again to wait


def test_a_running_broker_delivers_and_recalls() -> None:
    with SimCluster(seed=1).run() as sim:
        sim.wait(sim.client.send("orders", b"first"))
        pull = sim.client.pull("orders", offset=1, wait_s=15)
        at_ms = sim.clock() + 7_321
        sim.wait(sim.client.send("orders", b"later", TIMER_DELIVER_MS=str(at_ms)))
        assert sim.wait(pull).bodies == [b"later"]
        assert at_ms <= sim.clock() < at_ms + 100
        sim.brokers["broker-a"].kill()
        sim.brokers["broker-a"].start()
