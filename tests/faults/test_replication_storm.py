"""What a storm waits for and compares: it must not blame brokers that behave correctly."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.replication.replication import Role
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.faults.replication_checks import contents, store_alone
from tests.faults.replication_clients import TOPIC
from tests.faults.replication_planted import drop_a_tail_silently, show_all_copies
from tests.faults.replication_role_changes import promote
from tests.faults.replication_storm import Plan, Storm, expire, storm_of

_PLAN = Plan(
    seed=1,  # messages expire after 6 s
    flush=Flush.ASYNC,
    replication=ReplicationMode.SYNC,
    slaves=1,
    copies=2,
    rounds=0,
)


def reset_a_paused_master(storm: Storm) -> None:
    storm.master.host.pause()
    for _ in range(2):  # the slave tries again, and is about to wait for longer
        storm.sim.network.reset_connections(storm.master.host)
        storm.sim.advance(2.0)
    storm.sim.network.reset_connections(storm.master.host)


def reset_while_both_are_paused(storm: Storm) -> None:
    for node in storm.nodes:
        node.host.pause()
    storm.sim.network.reset_connections(storm.master.host)


@pytest.mark.parametrize("lose_the_link", [reset_a_paused_master, reset_while_both_are_paused])
def test_a_storm_is_calm_when_the_slave_really_follows(
    lose_the_link: Callable[[Storm], None],
) -> None:
    with storm_of(_PLAN) as storm:
        storm.sim.advance(1.0)
        lose_the_link(storm)
        storm.calm()
        (slave,) = storm.slaves
        follower = slave.broker.replication.follower
        assert follower is not None
        session = follower.session
        storm.sim.advance(1.0)
        assert (follower.session, storm.follows(slave)) == (session, True)


def test_a_promotion_waits_for_data_the_lost_master_had_sent() -> None:
    with storm_of(replace(_PLAN, slaves=2)) as storm:
        storm.sim.advance(1.0)
        storm.sim.until(lambda: all(_is_on_its_way(storm, slave) for slave in storm.slaves))
        promote(storm)
        result = storm.finish()
    assert result, str(result)


def _is_on_its_way(storm: Storm, slave: BrokerNode) -> bool:
    """Whether something was sent that the slave does not have yet."""
    link = storm.master.broker.replication.feed.links[slave.config.broker_id]
    return link.position > slave.broker.store.max_log_offset


def part(storm: Storm) -> BrokerNode:
    """Promote the slave of a master that has messages only it has; returns the old master."""
    storm.sim.advance(1.0)
    old, (slave,) = storm.master, storm.slaves
    storm.sim.paths.partition([old.host], [slave.host])
    storm.sim.advance(1.0)
    promote(storm)
    assert old in storm.parted
    return old


def test_a_diverged_log_may_be_kept_aside_if_its_master_does_not_continue_it() -> None:
    with storm_of(_PLAN) as storm:
        old = part(storm)
        storm.sim.advance(10.0)
        expire(storm)
        result = storm.finish()
        assert storm.copies == [old]
    assert result, str(result)


def test_planted_a_diverged_log_that_is_dropped_too_early_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drop_a_tail_silently(monkeypatch.setattr)
    with storm_of(_PLAN) as storm:
        part(storm)
        result = storm.finish()
    assert any("lost the end of its parted log" in each for each in result.problems), str(result)


def lose_what_one_slave_has(storm: Storm) -> list[str]:
    """The master loses its power, and the slave that comes back never had its last messages.
    Returns what consumers saw and is another message now."""
    storm.sim.advance(1.0)
    one, other = storm.slaves
    storm.sim.paths.partition([storm.master.host], [other.host])
    storm.master.sync_s = 60.0
    storm.sim.advance(1.5)  # less than a message waits for its copies
    storm.lose(one, power=False)
    storm.lose(storm.master, power=True)
    storm.sim.paths.heal()
    storm.master.sync_s = 0.0
    storm.start(storm.master)
    assert storm.state(storm.master) == Role.MASTER.value
    storm.sim.advance(2.0)
    with store_alone(storm.master, storm.sim.clock()) as store:
        return contents(store, TOPIC).hides(storm.ledger)


_THREE_COPIES = replace(_PLAN, seed=7, slaves=2, copies=3)
"""Messages wait for 2 s, and do not expire."""


def test_what_a_slave_showed_is_there_when_only_the_other_slave_comes_back() -> None:
    with storm_of(_THREE_COPIES) as storm:
        assert lose_what_one_slave_has(storm) == []


def test_planted_a_slave_that_shows_one_copy_too_few_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    show_all_copies(monkeypatch.setattr)
    with storm_of(_THREE_COPIES) as storm:
        assert lose_what_one_slave_has(storm)
