"""Consumers that start before their topic exists, or before one of its brokers."""

import pytest

from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic, send

WAITING = "no rebalance of orders for group billing: topic orders does not exist and is waited for"


def create_on(sim: RunningCluster, broker_name: str, queues: int) -> None:
    header = CreateTopic(topic=TOPIC, read_queue_nums=queues, write_queue_nums=queues, perm=6)
    sim.wait(sim.client.call(header, address=sim.brokers[broker_name].address))


def two_members_and_a_broker_that_joins(sim: RunningCluster, after_s: float) -> list[Member]:
    """The topic has four queues on the first broker, and after so long four on the second."""
    first, second = sorted(sim.brokers)
    create_on(sim, first, 4)
    sim.advance(1)
    members = [Member(sim, name=f"m{number}") for number in range(2)]
    sim.advance(after_s)
    create_on(sim, second, 4)
    return members


def test_a_consumer_that_starts_before_its_topic_gets_messages_soon_after_it_is_created() -> None:
    with SimCluster(seed=1).run() as sim:
        member = Member(sim)
        sim.advance(2.5)
        create_topic(sim)
        send(sim, b"0")
        sim.advance(4)
        assert member.got == [b"0"]


def test_a_missing_topic_is_logged_once_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    with SimCluster(seed=1).run() as sim:
        Member(sim)
        sim.advance(60)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert [text for text in told if GROUP in text] == [
        f"{WAITING}; send to it, or create it with: sparrowmq topic create {TOPIC}"
    ]


def test_a_topic_that_is_lost_again_is_reported_again(caplog: pytest.LogCaptureFixture) -> None:
    with SimCluster(seed=1).run() as sim:
        member = Member(sim, subscriptions={TOPIC: "*"})
        sim.advance(1)
        create_topic(sim)
        sim.advance(4)
        assert member.consumer.assignment()
        sim.wait(member.host.start(member.consumer.unsubscribe(TOPIC)))
        sim.wait(member.host.start(member.consumer.subscribe("returns")))
        sim.advance(4)
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in told if "does not exist" in text]) == 2


@pytest.mark.slow
def test_a_topic_that_never_appears_does_not_affect_the_other_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """After any number of rounds: 2.0 to the power of that many would overflow."""
    caplog.set_level("DEBUG", "sparrowmq.client")
    with SimCluster(seed=1).run() as sim:
        create_topic(sim)
        member = Member(sim, subscriptions={TOPIC: "*", "returns": "*"})
        for _ in range(1100):
            member.consumer.resume()  # each asks for a round
            sim.advance(1.1)
        send(sim, b"0")
        sim.advance(1)
        assert member.got == [b"0"]
        assert caplog.text.count("topic returns does not exist") >= 1100
        create_topic(sim, topic="returns")
        sim.advance(25)
        assert {queue.topic for queue in member.consumer.assignment()} >= {TOPIC, "returns"}
        member.leave()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_a_broker_that_joins_a_topic_leaves_no_queue_without_an_owner(seed: int) -> None:
    with SimCluster(seed=seed, brokers=2).run() as sim:
        members = two_members_and_a_broker_that_joins(sim, 25)
        first, _ = sorted(sim.brokers)
        queues = {MessageQueue(TOPIC, first, number) for number in range(4)}
        unowned: set[MessageQueue] = set()
        for _ in range(40):
            sim.advance(1)
            held = [queue for member in members for queue in member.consumer.assignment()]
            of_topic = [queue for queue in held if queue.topic == TOPIC]
            without_owner = queues.difference(of_topic)
            assert not without_owner & unowned, "a hand-over takes less than a second"
            unowned = without_owner
        assert len(of_topic) == len(set(of_topic)) == 8


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [25, 61], ids=["young client", "settled client"])
@pytest.mark.parametrize("seed", range(6))
def test_members_are_not_queried_from_a_broker_that_has_just_joined(
    seed: int, after_s: float, caplog: pytest.LogCaptureFixture
) -> None:
    """It knows only members that have discovered it, however young the client that asks."""
    caplog.set_level("DEBUG", "sparrowmq.client.rebalance")
    with SimCluster(seed=seed, brokers=2).run() as sim:
        members = two_members_and_a_broker_that_joins(sim, after_s)
        _, second = sorted(sim.brokers)
        sim.advance(1)
        hears = max(members, key=lambda member: core_of_consumer(member.consumer).client_id)
        table = core_of_consumer(hears.consumer).route_table
        sim.wait(hears.host.start(table.refresh(TOPIC)))
        sim.advance(3)
        held = [queue for queue in hears.consumer.assignment() if queue.topic == TOPIC]
        assert held == [MessageQueue(TOPIC, second, number) for number in range(4)]
    looked = {record.getMessage() for record in caplog.records if "8 queues" in record.getMessage()}
    assert looked == {f"{GROUP}: {TOPIC}: 8 queues, 2 members: 4 for this member"}
