"""Settings of running servers, name servers and their keys, cleaning, health."""

from collections.abc import Mapping

import pytest

from sparrowmq import Admin, AdminError, Cleanable, Client, Health, NotFound
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_client, as_operator, consuming, numbered, send


def test_a_setting_changes_until_the_next_start_and_not_in_a_dry_run() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        before = await admin.broker_settings("broker-a")
        assert before.values["deleteWhen"] == "4"
        assert before.changeable is not None
        assert "deleteWhen" in before.changeable
        assert "brokerName" not in before.changeable
        assert not before.is_kept
        wanted = {"deleteWhen": "5", "fileReservedTime": before.values["fileReservedTime"]}
        for dry_run in (True, False):
            (change,) = await admin.change_broker_settings("broker-a", wanted, dry_run=dry_run)
            assert str(change) == "broker-a: deleteWhen 4 → 5"
            now = (await admin.broker_settings("broker-a")).values["deleteWhen"]
            assert now == ("4" if dry_run else "5")
        assert await admin.change_broker_settings("broker-a", wanted) == []

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


@pytest.mark.parametrize(
    ("values", "error", "said"),
    [
        ({}, ValueError, "there is nothing to change"),
        ({"deleteWhen": "5\nbrokerName=x"}, ValueError, "a setting is one line"),
        ({"deletWhen": "5"}, NotFound, r"deletWhen does not exist; did you mean deleteWhen\?"),
        ({"brokerName": "x"}, AdminError, "brokerName cannot be changed while broker-a runs"),
        ({"maxTopics": "9", "deleteWhen": "99"}, AdminError, "cannot be '99', allowed is 0 to 23"),
    ],
)
def test_invalid_settings_are_refused_and_none_is_changed(
    values: Mapping[str, str], error: type[Exception], said: str
) -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        before = (await admin.broker_settings("broker-a")).values
        with pytest.raises(error, match=said):
            await admin.change_broker_settings("broker-a", values)
        assert (await admin.broker_settings("broker-a")).values == before

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_name_servers_are_listed_changed_and_keep_keys() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        (server,) = await admin.name_servers()
        assert (server.answers, server.brokers) == (True, 1)
        assert server.topics
        (settings,) = await admin.name_server_settings()
        assert settings.values["needWaitForService"] == "false"
        (change,) = await admin.change_name_server_settings({"waitSecondsForService": "7"})
        assert (change.broker, change.after) == (server.address, "7")
        with pytest.raises(AdminError, match="kvConfigPath cannot be changed"):
            await admin.change_name_server_settings({"kvConfigPath": "elsewhere.json"})
        with pytest.raises(NotFound, match="namespace SHOP does not exist"):
            await admin.key_values("SHOP")
        await admin.set_key_value("SHOP", "region", "eu")
        assert await admin.key_values("SHOP") == {"region": "eu"}
        assert await admin.key_value("SHOP", "region") == "eu"
        await admin.delete_key_value("SHOP", "region")
        with pytest.raises(NotFound, match="key SHOP/region does not exist"):
            await admin.delete_key_value("SHOP", "region")
        with pytest.raises(ValueError, match="key is '', must not be empty"):
            await admin.set_key_value("SHOP", "", "eu")

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_broker_reports_how_much_it_cleaned() -> None:
    async def work(client: Client) -> None:
        admin = Admin(client=client)
        cleaned = await admin.clean_broker("broker-a", list(Cleanable))
        assert [(each.what, each.deleted) for each in cleaned] == [(each, 0) for each in Cleanable]
        with pytest.raises(ValueError, match="nothing to clean: give log, queues, unused topics"):
            await admin.clean_broker("broker-a", [])
        with pytest.raises(NotFound, match="broker broker-x does not exist"):
            await admin.clean_broker("broker-x", [Cleanable.LOG])

    with SimCluster(seed=1).run() as sim:
        as_client(sim, work)


def test_a_cluster_is_healthy_until_something_is_wrong() -> None:
    async def prepare(client: Client) -> None:
        await Admin(client=client).create_topic("orders", queues=1)
        await send(client, *numbered("orders", 4))
        async with consuming(client, "billing", "orders", 4):
            pass
        await send(client, *numbered("orders", 2))

    def states(admin_max_lag: int | None, max_disk: float) -> dict[str, str]:
        checks = as_operator(
            sim, lambda admin: admin.health(max_lag=admin_max_lag, max_disk=max_disk)
        )
        return {each.check: each.state for each in checks}

    with SimCluster(seed=1, brokers=2).run() as sim:
        as_client(sim, prepare)
        healthy = states(100, 1.0)
        assert set(healthy.values()) == {Health.GOOD}
        assert list(healthy) == [
            "name-servers",
            "brokers",
            "masters",
            "sends",
            "disk",
            "slaves",
            "lag",
        ]
        assert states(1, 1.0)["lag"] == Health.BAD
        assert "lag" not in states(None, 1.0)
        sim.host("broker-b").pause()
        sick = states(100, 1.0)
        assert (sick["brokers"], sick["lag"]) == (Health.BAD, Health.UNKNOWN)
        with pytest.raises(ValueError, match="max_disk is 0, must be more than 0 and at most 1"):
            states(None, 0)
