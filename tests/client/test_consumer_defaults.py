"""Defaults of consumers: how much, how often, how many times."""

import inspect

import pytest

from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.protocol.group_config import SubscriptionGroupConfig
from sparrowmq.protocol.headers.groups import CreateGroup
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import dlq_topic
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send


def stored(sim: RunningCluster) -> int:
    """What the broker keeps now, without asking it over the wire."""
    return sim.brokers["broker-a"].broker.offsets.get(GROUP, TOPIC, 0)


def stored_at_s(sim: RunningCluster, offset: int) -> float:
    sim.until(lambda: stored(sim) == offset)
    return sim.now_s


def until_dead_letter(sim: RunningCluster) -> None:
    """Nothing is delivered after it: there was one message."""
    sim.until(lambda: sim.broker.store.max_offset(dlq_topic(GROUP), 0) == 1)


def test_progress_is_stored_every_5_s() -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim)
        send(sim, b"0")
        first_s = stored_at_s(sim, 1)
        send(sim, b"1")
        assert stored_at_s(sim, 2) - first_s == pytest.approx(5, abs=0.1)


def test_a_push_consumer_pulls_32_for_20_workers_and_hands_out_one_by_one() -> None:
    defaults = inspect.signature(PushConsumer.__init__).parameters
    names = ("pull_batch", "workers", "batch", "max_reconsume_times", "consume_timeout_s")
    assert [defaults[name].default for name in names] == [32, 20, 1, -1, 15 * 60]


def test_a_message_that_may_be_retried_once_is_a_dead_letter_after_two_failures() -> None:
    tried: list[bytes] = []

    async def fail(message: MessageExt) -> None:
        tried.append(message.body)
        raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        Member(sim, fail, max_reconsume_times=1)
        send(sim, b"bad")
        until_dead_letter(sim)
        assert tried == [b"bad", b"bad"]
        assert sim.wait(sim.client.pull(dlq_topic(GROUP))).bodies == [b"bad"]


@pytest.mark.parametrize(
    ("groups", "own", "attempts"),
    [(1, -1, 2), (3, -1, 4), (1, 2, 3), (3, 0, 1)],
    ids=["the group's", "a larger one of the group", "its own is larger", "its own is smaller"],
)
def test_the_retries_of_the_group_count_unless_the_consumer_has_a_limit(
    groups: int, own: int, attempts: int
) -> None:
    async def fail(message: MessageExt) -> None:
        raise ValueError("not today")

    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        config = SubscriptionGroupConfig(group_name=GROUP, retry_max_times=groups)
        sim.wait(sim.client.call(CreateGroup(), config.to_json()))
        member = Member(sim, fail, max_reconsume_times=own)
        send(sim, b"bad")
        until_dead_letter(sim)
        assert member.got == [b"bad"] * attempts
        assert sim.wait(sim.client.pull(dlq_topic(GROUP))).bodies == [b"bad"]
