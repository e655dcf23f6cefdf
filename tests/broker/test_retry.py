"""Messages that a group fails on come back later, and end among its dead letters."""

import random
from collections.abc import Iterator
from dataclasses import replace

import msgspec
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
from sparrowmq.protocol.headers.clients import Heartbeat
from sparrowmq.protocol.headers.send import MessageSent
from sparrowmq.protocol.heartbeat import ConsumerData, HeartbeatData
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import SCHEDULE_TOPIC
from sparrowmq.protocol.perm import PERM_READ_WRITE
from sparrowmq.protocol.subscription import SubscriptionData
from sparrowmq.store.recorded_calls import PowerCut
from tests.broker.delivery_world import DeliveryWorld

RETRY, DEAD = "%RETRY%billing", "%DLQ%billing"


@pytest.fixture
def world() -> Iterator[DeliveryWorld]:
    with DeliveryWorld() as world:
        yield world


def first_message(world: DeliveryWorld) -> MessageExt:
    world.send("orders", b"an order", TAGS="created", KEYS="o-1 o-2", UNIQ_KEY="U1", mine="yes")
    (message,) = world.messages("orders")
    return message


def fail_until_dead(world: DeliveryWorld, message: MessageExt) -> list[MessageExt]:
    """Give back every delivery; all messages that came through the retry topic."""
    seen = 0
    while True:
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        world.pass_time(2 * 3600)
        retried = world.messages(RETRY)
        if len(retried) == seen:
            return retried
        seen += 1
        message = retried[-1]


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


def test_a_retried_message_says_where_it_came_from_and_how_often_it_failed(
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


def test_a_message_given_back_waits_in_the_queue_of_its_level_as_in_apaches_store(
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


def test_a_customised_policy_begins_with_its_third_delay(world: DeliveryWorld) -> None:
    policy = GroupRetryPolicy(
        customized_retry_policy=CustomizedRetryPolicy(next=(1_000, 1_000, 60_000, 120_000))
    )
    group = SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
    world.broker.groups.put(group)
    retried = fail_until_dead(world, first_message(world))
    assert [message.properties["DELAY"] for message in retried[:3]] == ["5", "6", "6"]


@pytest.mark.parametrize("offset", [-1, 1, 10**15])
def test_a_place_without_a_message_is_refused(world: DeliveryWorld, offset: int) -> None:
    message = first_message(world)
    message.record = msgspec.structs.replace(message.record, log_offset=offset)
    reply = world.give_back(message, "billing")
    assert reply.code == ResponseCode.SYSTEM_ERROR
    assert f"no message at log offset {offset}" in reply.remark


def test_a_group_that_does_not_exist_and_is_not_created_is_refused() -> None:
    with DeliveryWorld(auto_create_group=False) as world:
        reply = world.give_back(first_message(world), "billing")
        assert reply.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        assert "billing" in reply.remark
        assert RETRY not in world.broker.topics


def test_a_message_that_still_waits_cannot_be_given_back(world: DeliveryWorld) -> None:
    world.send("orders", DELAY="3")
    (waiting,) = world.messages(SCHEDULE_TOPIC, 2)
    reply = world.give_back(waiting, "billing")
    assert reply.code == ResponseCode.MESSAGE_ILLEGAL
    assert SCHEDULE_TOPIC in reply.remark


@pytest.mark.parametrize("too_large", ["properties", "body"])
def test_a_message_that_is_too_large_to_be_retried_becomes_a_dead_letter(too_large: str) -> None:
    with DeliveryWorld() as world:
        room = world.config.max_properties_bytes - 200
        more = {"mine": "x" * room} if too_large == "properties" else {}
        world.post("orders", b"x" * 2_000, {"UNIQ_KEY": "U1", "TAGS": "created"} | more)
        (message,) = world.messages("orders")
        if too_large == "body":
            world.broker.config = replace(world.broker.config, max_message_bytes=1_000)
        assert world.give_back(message, "billing").code == ResponseCode.SUCCESS
        (letter,) = world.messages(DEAD)
        assert (letter.body, letter.tags) == (message.body, "created")
        assert letter.properties["UNIQ_KEY"] == "U1"
        assert letter.reconsume_times == 1
        world.pass_time(3 * 3600)
        assert world.messages(RETRY) == []


def test_a_read_only_retry_topic_takes_nothing_back(world: DeliveryWorld) -> None:
    message = first_message(world)
    world.give_back(message, "billing")
    config = world.broker.topics.get(RETRY)
    assert config is not None
    world.broker.topics.put(type(config)(topic_name=RETRY, perm=4))
    assert world.give_back(message, "billing").code == ResponseCode.NO_PERMISSION


# ---- what clients send to the retry topic themselves


def test_a_client_may_send_to_the_retry_topic_until_the_limit(world: DeliveryWorld) -> None:
    world.broker.groups.find("billing")
    for times in (1, 16):
        reply = world.try_again(RETRY, b"again", times, DELAY=str(3 + times))
        assert isinstance(reply.header, MessageSent)
    world.pass_time(2 * 3600)
    assert [message.reconsume_times for message in world.messages(RETRY)] == [1, 16]
    world.try_again(RETRY, b"dead", 17, DELAY="20", RETRY_TOPIC="orders")
    (dead,) = world.messages(DEAD)
    assert dead.body == b"dead"
    assert dead.properties["DELAY"] == "-1"
    assert dead.original_topic == "orders"


def test_the_clients_own_limit_replaces_the_groups(world: DeliveryWorld) -> None:
    world.try_again(RETRY, b"dead", 4, 3, DELAY="7")
    assert [message.body for message in world.messages(DEAD)] == [b"dead"]


def test_an_ordered_consumer_that_gives_up_sends_to_the_dead_letters(
    world: DeliveryWorld,
) -> None:
    first_message(world)
    data = ConsumerData(
        group_name="billing",
        subscription_data_set=(SubscriptionData(topic="orders", sub_string="*"),),
    )
    beat = HeartbeatData(client_id="c1", consumer_data_set=(data,))
    world.call(Heartbeat(), beat.to_json())
    queue = MessageQueue("orders", world.config.broker_name, 1)
    world.broker.locks.lock("billing", "c1", [queue])
    world.try_again(RETRY, b"given up", 1, DELAY="4", RETRY_TOPIC="orders")
    assert [message.body for message in world.messages(DEAD)] == [b"given up"]
    world.now_ms += 61_000
    world.try_again(RETRY, b"not ordered", 1, DELAY="4", RETRY_TOPIC="orders")
    assert len(world.messages(DEAD)) == 1


def test_retries_survive_a_kill_at_every_step(world: DeliveryWorld) -> None:
    message = first_message(world)
    world.kill()
    world.give_back(message, "billing")
    world.kill()
    world.pass_time(9.999)
    world.kill()
    assert world.messages(RETRY) == []
    world.pass_time(0.001)
    world.deliver()
    world.save()
    world.kill()
    world.deliver()
    (retried,) = world.messages(RETRY)
    assert retried.reconsume_times == 1


def _fail_until_cut(world: DeliveryWorld, due_ms: dict[int, int], timed: bool) -> None:
    """Give a message back again and again; when each retry is due, noted as it is acknowledged.

    With `timed` the group's policy asks for delays that are no levels.
    """
    if timed:
        policy = GroupRetryPolicy(
            type=RetryPolicyType.CUSTOMIZED,
            customized_retry_policy=CustomizedRetryPolicy(next=(0, 0, 700, 1_100, 1_300)),
        )
        config = SubscriptionGroupConfig(group_name="billing", group_retry_policy=policy)
        world.broker.groups.put(config)
    delays_ms = (700, 1_100, 1_300) if timed else (1_000, 5_000, 1_000)
    message = first_message(world)
    for number, delay_ms in enumerate(delays_ms):
        level = 0 if timed else RETRY_DELAYS_MS.index(delay_ms) + 1
        given_ms = world.now_ms
        reply = world.give_back(message, "billing", level=level, max_reconsume_times=3)
        assert reply.code == ResponseCode.SUCCESS
        due_ms[number + 1] = given_ms + delay_ms
        world.flush()
        world.pass_time(delay_ms / 1000)
        world.deliver()
        world.save()
        (message,) = [one for one in world.messages(RETRY) if one.reconsume_times == number + 1]
    assert world.give_back(message, "billing", max_reconsume_times=3).code == ResponseCode.SUCCESS
    due_ms[4] = 0
    world.flush()
    world.save()


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_a_retry_is_neither_lost_nor_early_whichever_call_a_crash_meets(
    power: bool, timed: bool
) -> None:
    for call in range(1, 400):
        with DeliveryWorld() as world:
            due_ms: dict[int, int] = {}
            world.disk.cut_at(call)
            try:
                _fail_until_cut(world, due_ms, timed)
            except PowerCut:
                pass
            else:
                assert call > 50
                return
            if power:
                # With asynchronous flush only what was flushed is promised.
                due_ms.pop(next(reversed(due_ms), 0), None)
                world.lose_power(random.Random(call))
            else:
                world.kill()
            world.pass_time(20)
            world.deliver()
            came = {one.reconsume_times: one for one in world.messages(RETRY)}
            came |= {one.reconsume_times: one for one in world.messages(DEAD)}
            assert due_ms.keys() <= came.keys(), call
            for times, message in came.items():
                assert message.store_timestamp >= due_ms.get(times, 0), call
                assert (message.body, message.tags, message.keys) == _FIRST, call


_FIRST = (b"an order", "created", ("o-1", "o-2"))
