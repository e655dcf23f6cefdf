"""A vanished host is detected within 5 s, and its messages are consumed by others."""

from sparrowmq.testing.sim_cluster import SimCluster
from tests.client.members import owned, send
from tests.client.two_members import both_ways, two_members


@both_ways
def test_queues_of_a_vanished_host_have_a_new_owner_within_5_s(orderly: bool) -> None:
    assert all(taken_over_after_s(moment / 7, orderly=orderly) < 5 for moment in range(8))


def taken_over_after_s(after_s: float, *, orderly: bool) -> float:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=orderly)
        sim.advance(after_s)
        second.host.power_off()
        vanished_s = sim.now_s
        sim.until(lambda: owned(first) == 4)
        return sim.now_s - vanished_s


@both_ways
def test_the_messages_of_a_vanished_host_are_consumed_by_the_others(orderly: bool) -> None:
    with SimCluster(seed=1).run() as sim:
        first, second = two_members(sim, orderly=orderly)
        second.host.power_off()
        for queue_id in range(4):
            send(sim, b"%d" % queue_id, queue_id=queue_id)
        sim.advance(6)
        assert sorted(first.got) == [b"0", b"1", b"2", b"3"]
