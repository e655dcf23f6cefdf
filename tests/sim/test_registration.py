"""Brokers register with name servers, which drop those that stop."""

from itertools import pairwise

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.nameserver import GetTopicRoute
from sparrowmq.protocol.route import TopicRoute
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster


def live_brokers(sim: RunningCluster, name: str = "name-server-1") -> list[str]:
    table = sim.name_servers[name].server.table
    return sorted(broker.broker_name for broker in table.live.values())


def test_brokers_are_registered_everywhere_when_the_cluster_is_up() -> None:
    with SimCluster(seed=1, name_servers=2, brokers=3).run() as sim:
        for name in sim.name_servers:
            assert live_brokers(sim, name) == ["broker-a", "broker-b", "broker-c"]


def test_a_name_server_drops_a_broker_that_is_silent_for_120_s() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        sim.advance(1)
        sim.network.isolate(sim.host("broker-a"))
        sim.advance(90)
        assert live_brokers(sim) == ["broker-a", "broker-b"]
        sim.advance(60)
        assert live_brokers(sim) == ["broker-b"]


def test_a_name_server_that_is_less_patient_drops_a_silent_broker_sooner() -> None:
    settings = {"broker_timeout_s": 45.0}
    with SimCluster(seed=1, brokers=2, name_server_settings=settings).run() as sim:
        sim.advance(1)
        sim.network.isolate(sim.host("broker-a"))
        sim.advance(40)
        assert live_brokers(sim) == ["broker-a", "broker-b"]
        sim.advance(15)
        assert live_brokers(sim) == ["broker-b"]


def test_a_broker_that_comes_back_is_known_within_30_s() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        sim.network.isolate(sim.host("broker-a"))
        sim.advance(300)
        assert live_brokers(sim) == ["broker-b"]
        sim.paths.heal()
        sim.advance(35)
        assert live_brokers(sim) == ["broker-a", "broker-b"]


def test_brokers_register_again_every_30_s() -> None:
    with SimCluster(seed=1).run() as sim:
        seen_ms: list[int] = []
        for _ in range(10):
            sim.advance(30)
            (live,) = sim.name_servers["name-server-1"].server.table.live.values()
            seen_ms.append(live.last_seen_ms)
        gaps_ms = [later - earlier for earlier, later in pairwise(seen_ms)]
        assert all(29_900 <= gap <= 30_100 for gap in gaps_ms), gaps_ms


def test_a_killed_broker_is_dropped_at_once_and_a_stopped_one_too() -> None:
    with SimCluster(seed=1, brokers=3).run() as sim:
        sim.brokers["broker-a"].kill()
        sim.until_idle()
        assert live_brokers(sim) == ["broker-b", "broker-c"]
        sim.brokers["broker-b"].stop()
        sim.until_idle()
        assert live_brokers(sim) == ["broker-c"]
        sim.brokers["broker-a"].start()
        assert live_brokers(sim) == ["broker-a", "broker-c"]


def test_a_name_server_that_starts_empty_knows_everything_within_30_s() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        sim.name_servers["name-server-1"].restart()
        assert live_brokers(sim) == []
        sim.advance(31)
        assert live_brokers(sim) == ["broker-a", "broker-b"]


def test_a_paused_name_server_forgives_the_silence_it_could_not_hear() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        sim.host("name-server-1").pause()
        sim.advance(600)
        sim.host("name-server-1").resume()
        sim.advance(0.1)
        assert live_brokers(sim) == ["broker-a", "broker-b"]
        sim.advance(60)
        assert live_brokers(sim) == ["broker-a", "broker-b"]


def test_a_new_topic_has_a_route_a_moment_after_its_first_message() -> None:
    with SimCluster(seed=1).run() as sim:
        (name_server,) = sim.name_server_addresses
        sim.wait(sim.client.send("orders", b"hello"))
        sim.advance(1)
        response = sim.wait(sim.client.call(GetTopicRoute(topic="orders"), address=name_server))
        assert response.code == ResponseCode.SUCCESS
        (broker,) = TopicRoute.from_json(response.body).broker_datas
        assert broker.master_addr == sim.brokers["broker-a"].address
