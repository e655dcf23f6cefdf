"""Operations on several brokers of which some refuse or are away."""

import pytest

from sparrowmq import AdminError, PartlyDone
from sparrowmq.testing.sim_cluster import SimCluster
from tests.admin.operator import as_operator


@pytest.mark.parametrize("queues", [8, 16])
def test_a_change_is_known_to_the_name_servers_when_the_call_returns(queues: int) -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        as_operator(sim, lambda admin: admin.create_topic("orders", queues=4))
        done = as_operator(sim, lambda admin: admin.create_topic("orders", queues=queues))
        assert done == ["broker-a", "broker-b"]
        route = as_operator(sim, lambda admin: admin.route("orders"))
        assert [data.write_queue_nums for data in route.queue_datas] == [queues] * 2


def test_what_every_broker_refuses_is_not_called_done_anywhere() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        with pytest.raises(AdminError) as raised:
            as_operator(sim, lambda admin: admin.create_topic("orders", queues=5000))
        assert not isinstance(raised.value, PartlyDone)
        text = str(raised.value)
        assert text.count("5000 read queues, allowed are 0 to 4096") == 2
        assert "run it again" not in text


def test_a_broker_that_is_away_is_named_beside_those_that_have_the_change() -> None:
    with SimCluster(seed=1, brokers=2).run() as sim:
        sim.host("broker-b").pause()
        with pytest.raises(PartlyDone, match="when that is mended run it again") as raised:
            as_operator(sim, lambda admin: admin.create_topic("orders"))
        assert raised.value.done == ["broker-a"]
        assert list(raised.value.failed) == ["broker-b"]
