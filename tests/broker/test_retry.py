"""Messages that a group fails on come back later, and end among its dead letters."""

from collections.abc import Iterator

import pytest

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.protocol.group_config import (
    CustomizedRetryPolicy,
    ExponentialRetryPolicy,
    GroupRetryPolicy,
    RetryPolicyType,
    SubscriptionGroupConfig,
)
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.perm import PERM_READ_WRITE
from tests.broker.delivery_world import DeliveryWorld
from tests.broker.retry_world import DEAD, RETRY, fail_until_dead, first_message


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        yield world


def test_sixteen_retries_come_after_growing_delays_and_the_17th_failure_is_a_dead_letter(
    world: DeliveryWorld,
) -> None:
    world.pass_time(1)
    message = first_message(world)
    retried: list[int] = []
    for _ in range(16):
        given_back_ms = world.now_ms
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        due_ms = world.deliver()
        assert due_ms is not None
        world.now_ms = due_ms - 1
        world.deliver()
        assert len(world.messages(RETRY)) == len(retried), "never early"
        world.now_ms = due_ms
        world.deliver()
        message = world.messages(RETRY)[-1]
        retried.append(message.store_timestamp - given_back_ms)
    assert retried == list(RETRY_DELAYS_MS[2:])
    assert world.messages(DEAD) == []
    assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
    world.pass_time(3 * 3600)
    (dead,) = world.messages(DEAD)
    assert (dead.body, dead.tags, dead.keys) == (b"an order", "created", ("o-1", "o-2"))
    assert dead.user_properties == {"mine": "yes"}
    assert dead.reconsume_times == 17
    assert dead.flag == 7
    assert len(world.messages(RETRY)) == 16


def test_a_retried_message_carries_its_origin_and_failure_count(
    world: DeliveryWorld,
) -> None:
    original = first_message(world)
    retried = fail_until_dead(world, original)
    assert [message.reconsume_times for message in retried] == list(range(1, 17))
    for message in (*retried, *world.messages(DEAD)):
        assert message.original_topic == "orders"
        assert message.properties["ORIGIN_MESSAGE_ID"] == original.offset_msg_id
        assert message.properties["WAIT"] == "false"
        assert message.msg_id == "U1"
        assert message.born_timestamp == original.born_timestamp


def test_a_message_sent_back_waits_in_the_queue_of_its_level_as_in_apaches_store(
    world: DeliveryWorld,
) -> None:
    world.give_back(first_message(world), "billing")
    (waiting,) = world.messages(SCHEDULE_TOPIC, 2)
    assert waiting.properties["DELAY"] == "3"
    assert waiting.properties["REAL_TOPIC"] == RETRY
    assert waiting.properties["REAL_QID"] == "0"
    ((_, _, due_ms),) = world.broker.store.units(SCHEDULE_TOPIC, 2, 0, 10)
    assert due_ms == waiting.store_timestamp + 10_000


def test_the_consumer_may_choose_the_level(world: DeliveryWorld) -> None:
    world.give_back(first_message(world), "billing", level=1)
    world.pass_time(0.999)
    world.deliver()
    assert world.messages(RETRY) == []
    world.pass_time(0.001)
    world.deliver()
    assert len(world.messages(RETRY)) == 1


def test_a_negative_level_means_the_dead_letters_at_once(world: DeliveryWorld) -> None:
    assert world.give_back(first_message(world), "billing", level=-1).code == 0
    (dead,) = world.messages(DEAD)
    assert dead.properties["DELAY"] == "0"
    assert dead.reconsume_times == 1


def test_the_groups_limit_decides_unless_the_consumer_names_its_own(world: DeliveryWorld) -> None:
    world.broker.groups.put(SubscriptionGroupConfig(group_name="billing", retry_max_times=2))
    assert len(fail_until_dead(world, first_message(world))) == 2
    world.give_back(world.messages("orders")[0], "billing", max_reconsume_times=0)
    assert len(world.messages(DEAD)) == 2


def test_retry_and_dead_letter_topics_are_made_with_one_queue_each(world: DeliveryWorld) -> None:
    message = first_message(world)
    world.give_back(message, "billing")
    world.give_back(message, "billing", level=-1)
    for topic in (RETRY, DEAD):
        config = world.broker.topics.get(topic)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums) == (1, 1)
        assert config.perm == PERM_READ_WRITE


def test_a_group_without_retry_queues_keeps_nothing(world: DeliveryWorld) -> None:
    world.broker.groups.put(SubscriptionGroupConfig(group_name="billing", retry_queue_nums=0))
    message = first_message(world)
    end = world.broker.store.max_log_offset
    assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
    assert world.broker.store.max_log_offset == end


def test_the_delays_of_an_exponential_policy_that_are_levels_use_them(
    world: DeliveryWorld,
) -> None:
    policy = GroupRetryPolicy(
        type=RetryPolicyType.EXPONENTIAL,
        exponential_retry_policy=ExponentialRetryPolicy(initial=5_000, max=10_000),
    )
    group = SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
    world.broker.groups.put(group)
    retried = fail_until_dead(world, first_message(world))
    assert [message.properties["DELAY"] for message in retried[:3]] == ["2", "3", "3"]


def test_a_level_that_the_consumer_chose_counts_before_its_groups_policy(
    world: DeliveryWorld,
) -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy(next=(7_000,)))
    group = SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
    world.broker.groups.put(group)
    assert world.give_back(first_message(world), "billing", level=2).code == ResponseCode.SUCCESS
    world.pass_time(5)
    world.deliver()
    assert [message.properties["DELAY"] for message in world.messages(RETRY)] == ["2"]


def test_a_customised_policy_begins_with_its_third_delay(world: DeliveryWorld) -> None:
    policy = GroupRetryPolicy(
        customized_retry_policy=CustomizedRetryPolicy(next=(1_000, 1_000, 60_000, 120_000))
    )
    group = SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
    world.broker.groups.put(group)
    retried = fail_until_dead(world, first_message(world))
    assert [message.properties["DELAY"] for message in retried[:3]] == ["5", "6", "6"]


@pytest.mark.parametrize("step_ms", [0, 3_600_000], ids=["running on", "set forward"])
@pytest.mark.parametrize("asked", ["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"])
def test_a_policy_decides_the_retry_delay_of_a_message_sent_with_its_own_delay(
    world: DeliveryWorld, asked: str, step_ms: int
) -> None:
    policy = GroupRetryPolicy(
        type=RetryPolicyType.CUSTOMIZED,
        customized_retry_policy=CustomizedRetryPolicy(next=(7_000, 7_000, 7_000)),
    )
    world.broker.groups.put(
        SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
    )
    due_ms = {"TIMER_DELAY_SEC": 40, "TIMER_DELAY_MS": 40_000}.get(asked, world.now_ms + 40_000)
    world.post("orders", b"body", {asked: str(due_ms)})
    world.pass_time(40)
    world.deliver()
    (message,) = world.messages("orders")
    assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
    world.now_ms += 1_000
    world.set_clock(step_ms)
    world.pass_time(5.999)
    world.deliver()
    assert world.messages(RETRY) == []
    world.pass_time(0.001)
    world.deliver()
    assert len(world.messages(RETRY)) == 1
