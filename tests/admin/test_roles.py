"""An operator changes roles: which slave is chosen, and the error if none can be."""

import pytest

from sparrowmq import Admin, AdminError, NotFound, RoleChange
from sparrowmq.broker.replication.replication import Role
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.admin.operator import as_operator
from tests.sim.replicated import bodies, follows, has_all, role

SLAVES = ("broker-a.1", "broker-a.2")


def promote(
    sim: RunningCluster, slave_id: int | None = None, *, dry_run: bool = False
) -> RoleChange:
    async def work(admin: Admin) -> RoleChange:
        return await admin.promote("broker-a", slave_id, accept_loss="broker-a", dry_run=dry_run)

    return as_operator(sim, work)


def lose_master(sim: RunningCluster) -> None:
    """Slave 2 gets the last message, slave 1 does not."""
    sim.until(lambda: follows(sim, 1) and follows(sim, 2))
    sim.wait(sim.client.send("orders", b"on all"))
    sim.until(lambda: all(has_all(sim, slave) for slave in SLAVES))
    sim.paths.partition([sim.brokers["broker-a.1"].host], [sim.brokers["broker-a"].host])
    sim.wait(sim.client.send("orders", b"on the master and slave 2"))
    sim.until(lambda: has_all(sim, "broker-a.2"))
    sim.brokers["broker-a"].kill()
    for slave in SLAVES:
        follower = sim.brokers[slave].broker.replication.follower
        assert follower is not None
        sim.until(lambda follower=follower: not follower.master_address)  # type: ignore[misc]


def test_of_several_slaves_the_one_with_the_longest_log_takes_over() -> None:
    with SimCluster(slaves=2).run() as sim:
        lose_master(sim)
        dry = promote(sim, dry_run=True)
        assert (dry.slave_id, dry.old_master) == (2, None)
        assert role(sim.brokers["broker-a.2"]) is Role.SLAVE
        with pytest.raises(AdminError, match=r"slave 2 of broker-a has \d+ bytes that slave 1 lac"):
            promote(sim, 1)
        assert promote(sim) == dry
        new = sim.brokers["broker-a.2"]
        assert role(new) is Role.MASTER
        assert bodies(new) == [b"on all", b"on the master and slave 2"]
        sim.until(lambda: follows(sim, 1, "broker-a.2"))


def test_an_unknown_slave_is_not_found() -> None:
    with SimCluster(slaves=2).run() as sim:
        lose_master(sim)
        with pytest.raises(NotFound, match=r"slave 3 of broker broker-a does not exist; .*: 1, 2"):
            promote(sim, 3)


def test_a_master_that_answers_hands_over_although_the_loss_was_accepted() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        change = promote(sim)
        assert change.old_master == sim.brokers["broker-a"].address
        assert role(sim.brokers["broker-a.1"]) is Role.MASTER
        sim.until(lambda: follows(sim, 1, "broker-a.1"))


def test_a_registered_master_that_hangs_does_not_keep_the_slave_from_taking_over() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        sim.brokers["broker-a"].host.pause()
        follower = sim.brokers["broker-a.1"].broker.replication.follower
        assert follower is not None
        sim.until(lambda: not follower.master_address)
        assert promote(sim).old_master is None


def test_accepting_a_loss_for_another_broker_is_refused_and_the_master_stays() -> None:
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        with pytest.raises(ValueError, match="accepted for 'broker-b', and the broker is 'brok"):
            as_operator(sim, lambda admin: admin.promote("broker-a", accept_loss="broker-b"))
        assert role(sim.brokers["broker-a"]) is Role.MASTER
