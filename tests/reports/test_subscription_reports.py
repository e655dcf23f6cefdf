"""Groups of RocketMQ users whose members did not subscribe alike, by number."""

import random

import pytest

from sparrowmq.broker.handlers.connections import CheckedConsumerConnection
from sparrowmq.client.client import client_around
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.session_keepalive import KeepaliveInLoop
from sparrowmq.protocol.headers.connections import GetConsumerConnections
from sparrowmq.testing.sim_cluster import SimCluster
from tests.broker.world import World, subscribes, world_with


def told(world: World) -> CheckedConsumerConnection:
    """What an operator sees of the group."""
    return world.read(GetConsumerConnections(consumer_group="billing"), CheckedConsumerConnection)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("orders", "a"), ("orders", "*")),
        (("orders", "tag1"), ("orders", "tag2")),
        (("orders", "*"), ("invoices", "*")),
    ],
    ids=["2836", "2954", "5473"],
)
def test_report_2836_2954_5473_members_that_subscribe_differently_are_listed(
    one: tuple[str, str], other: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with world_with() as world:
        world.client("first").beat(subscribes("billing", *one))
        assert told(world).unequal_subscriptions == {}
        world.client("second").beat(subscribes("billing", *other))
        assert told(world).unequal_subscriptions == {
            "first": [f"{one[0]} TAG {one[1]}"],
            "second": [f"{other[0]} TAG {other[1]}"],
        }
        assert "members subscribe differently" in caplog.text


def test_report_1589_a_client_id_that_two_members_use_is_reported() -> None:
    with world_with() as world:
        world.client("first").beat(subscribes("billing"), client_id="10.0.0.9@DEFAULT")
        assert told(world).doubled_client_ids == []
        world.client("second").beat(subscribes("billing"), client_id="10.0.0.9@DEFAULT")
        assert told(world).doubled_client_ids == ["10.0.0.9@DEFAULT"]


def test_report_1589_clients_with_one_address_and_pid_choose_different_ids() -> None:
    with SimCluster(seed=1).run() as sim:

        async def chosen(seed: int) -> str:
            config = ClientConfig(name_servers=sim.name_server_addresses, client_ip="172.17.0.1")
            rng = random.Random(seed)
            client = client_around(
                ClientCore(
                    config, clock=sim.clock, rng=rng, pid=1, keepalive_from=KeepaliveInLoop()
                )
            )
            await client.start()
            await client.stop()
            return client.client_id

        assert len({sim.run(chosen(seed), on=sim.host("docker")) for seed in range(10)}) == 10
