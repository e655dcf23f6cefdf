"""A lost connection to a broker: the routes that name the broker are requested at once."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.net.peers import Peers
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.names import retry_topic
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import GROUP, TOPIC, Member, create_topic

OTHER = "refunds"
"""On broker-a only."""


def brokers_of(member: Member) -> set[str]:
    return {queue.broker_name for queue in member.consumer.assignment() if queue.topic == TOPIC}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a route was requested, by topic."""
    found: Counter[str] = Counter()
    call = Peers.call

    async def noting(peers: Peers, address: str, header: Any, *rest: Any, **more: Any) -> Any:
        if isinstance(header, GetTopicRoute):
            found[header.topic] += 1
        return await call(peers, address, header, *rest, **more)

    monkeypatch.setattr(Peers, "call", noting)
    return found


def settled_member(sim: RunningCluster) -> Member:
    """One that has just polled its routes."""
    create_topic(sim)
    header = CreateTopic(topic=OTHER, read_queue_nums=1, write_queue_nums=1, perm=6)
    sim.wait(sim.client.call(header, address=sim.brokers["broker-a"].address))
    member = Member(sim, subscriptions={TOPIC: "*", OTHER: "*"})
    sim.until(lambda: brokers_of(member) == set(sim.brokers))
    sim.advance(32)
    return member


def test_queues_of_a_killed_broker_are_dropped_at_once() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        member = settled_member(sim)
        sim.brokers["broker-b"].kill()
        began_s = sim.now_s
        sim.until(lambda: brokers_of(member) == {"broker-a"})
        assert sim.now_s - began_s < 2


def test_the_loss_of_a_broker_is_noticed_while_another_one_is_away() -> None:
    with SimCluster(seed=1, brokers=3).run() as sim:
        member = settled_member(sim)
        sim.brokers["broker-b"].kill()
        sim.advance(0.45)  # routes are being asked for, or have just been
        sim.brokers["broker-c"].kill()
        began_s = sim.now_s
        sim.until(lambda: brokers_of(member) == {"broker-a"})
        assert sim.now_s - began_s < 2


@pytest.mark.parametrize("away_s", [0.5, 5, 20])
def test_a_broker_that_comes_back_is_found_before_the_next_poll(away_s: float) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        member = settled_member(sim)
        sim.brokers["broker-b"].kill()
        sim.advance(away_s)
        sim.brokers["broker-b"].start()
        began_s = sim.now_s
        sim.until(lambda: brokers_of(member) == {"broker-a", "broker-b"})
        assert sim.now_s - began_s < max(3, away_s)


@pytest.mark.parametrize("away_s", [0.5, 5, 20])
def test_the_only_broker_of_a_topic_is_found_on_another_port_before_the_next_poll(
    away_s: float,
) -> None:
    """Meanwhile its topics have no route, and the client keeps using the old one."""
    with SimCluster(seed=1).run() as sim:
        member = settled_member(sim)
        broker = sim.brokers["broker-a"]
        broker.kill()
        broker.config = replace(broker.config, port=broker.config.port + 4)
        sim.advance(away_s)
        broker.start()
        began_s = sim.now_s
        routes = core_of_consumer(member.consumer).route_table
        sim.until(lambda: routes.master("broker-a") == broker.address)
        assert sim.now_s - began_s < max(3, away_s)


def test_a_broker_lost_again_before_it_was_reached_is_found_too() -> None:
    with SimCluster(seed=1).run() as sim:
        member = settled_member(sim)
        broker = sim.brokers["broker-a"]
        broker.kill()
        sim.advance(1.4)
        broker.start()
        routes = core_of_consumer(member.consumer).route_table
        sim.until(lambda: not any(routes.is_gone(topic) for topic in (TOPIC, OTHER)))
        broker.kill()
        broker.config = replace(broker.config, port=broker.config.port + 4)
        sim.advance(1)
        broker.start()
        began_s = sim.now_s
        sim.until(lambda: routes.master("broker-a") == broker.address)
        assert sim.now_s - began_s < 5


@pytest.mark.parametrize(
    ("names", "topics"),
    [
        (["broker-a", "broker-b"], {TOPIC, OTHER, retry_topic(GROUP)}),
        (["broker-b"], {TOPIC, retry_topic(GROUP)}),
    ],
)
def test_name_servers_are_asked_once_for_each_route_that_names_a_lost_broker(
    asked: Counter[str], names: list[str], topics: set[str]
) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        member = settled_member(sim)
        asked.clear()

        async def lose() -> None:
            for name in names:
                core_of_consumer(member.consumer).peers.drop(sim.brokers[name].address)

        sim.run(lose(), on=member.host)
        sim.advance(5)
        assert asked == dict.fromkeys(topics, 1)


def test_a_broker_that_stays_away_is_looked_up_less_and_less_often(asked: Counter[str]) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        settled_member(sim)
        asked.clear()
        sim.brokers["broker-b"].kill()
        sim.advance(300)
        polls = 300 / 30
        assert polls <= asked[TOPIC] <= polls + 8


def test_a_lost_name_server_triggers_no_route_request(asked: Counter[str]) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        member = settled_member(sim)
        asked.clear()

        async def lose() -> None:
            for address in sim.name_server_addresses:
                core_of_consumer(member.consumer).peers.drop(address)

        sim.run(lose(), on=member.host)
        sim.advance(5)
        assert not asked
