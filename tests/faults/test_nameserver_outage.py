"""Clusters keep working without name servers; with very many registrations they stay small."""

import pytest

from sparrowmq.broker.registration import BrokerRegistration
from sparrowmq.client.route_table import RouteTable
from sparrowmq.client.sending.queue_choice import SendQueues
from sparrowmq.protocol.route import TopicRoute
from tests.faults.nameserver_outage import Outage, Registrations
from tests.faults.nameserver_outage_processes import outage_in_processes
from tests.faults.nameserver_outage_sim import outage_in_simulation
from tests.faults.scorecard_clients import nameserver_outage


def test_messages_flow_without_name_servers() -> None:
    assert outage_in_simulation(0).problems() == []


@pytest.mark.slow
def test_messages_flow_without_name_servers_and_routes_are_whole_soon_after() -> None:
    scored = nameserver_outage(seed=0, small=True)
    print(scored.counts)
    assert scored.failures == []


@pytest.mark.slow
def test_processes_keep_working_while_name_servers_are_killed_and_restarted() -> None:
    outage = outage_in_processes(down_s=3.0)
    outage.whole_s = 0.0  # how busy this machine is decides, the simulation measures it
    assert outage.problems() == []


@pytest.mark.slow
def test_planted_asking_for_routes_every_time_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(table: RouteTable, topic: str) -> TopicRoute | None:
        return await table.refresh(topic)

    monkeypatch.setattr(RouteTable, "fetch", ask)
    monkeypatch.setattr(SendQueues, "known", lambda queues, topic: None)
    problems = outage_in_simulation(0).problems()
    assert any("sends failed" in problem for problem in problems), problems


@pytest.mark.slow
def test_planted_registering_only_every_30_s_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait(registration: BrokerRegistration) -> None:
        await registration.topics.changed.wait()

    monkeypatch.setattr(BrokerRegistration, "watch", wait)
    slowest = [outage_in_simulation(seed).problems() for seed in range(2)]
    assert any("whole only" in problem for problems in slowest for problem in problems), slowest


def test_problems_of_an_outage_are_listed() -> None:
    outage = Outage(failed=["x"], lost=2, whole_s=6.0)
    assert outage.problems() == [
        "1 sends failed: x",
        "2 messages were not consumed",
        "nothing flowed while no name server was there",
        "routes were whole only 6.0 s after the restart",
    ]
    registrations = Registrations(2, 1, memory_bytes=600 * 1024 * 1024, incomplete=["t"])
    assert registrations.problems() == [
        "the name server took 629 MB",
        "1 routes are not whole: t",
    ]
