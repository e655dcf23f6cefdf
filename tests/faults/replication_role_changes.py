"""Changes of roles in a storm: a master hands over, or an operator promotes a slave of one that is
gone.

A broker notes in a file of its own that its role was changed while it ran, so the storm reads these
files to know which broker is the master. A crash on the way may leave none; then an operator
promotes one of the slaves.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from sparrowmq.broker.config import MASTER_ID, Flush
from sparrowmq.broker.registration import BrokerNameTaken
from sparrowmq.broker.replication.current_role import ROLE, CurrentRole
from sparrowmq.broker.replication.replication import Role
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.replication import HandOver, TakeOver
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.faults.replication_checks import has_started_anew, store_alone

if TYPE_CHECKING:
    from tests.faults.replication_storm import Storm

_CHANGE_S = 5.0
"""A change of roles has ended by then, or failed."""


def id_of(node: BrokerNode) -> int:
    """The broker id that a broker has now, or starts with."""
    return CurrentRole.load(node.disk, node.config.broker_id).broker_id


def configure(node: BrokerNode, broker_id: int) -> None:
    """Give a broker that does not run an id in its settings."""
    node.config = replace(node.config, broker_id=broker_id)
    if id_of(node) != broker_id:  # it had that id in its settings before its role was changed
        node.disk.unlink(ROLE)


def hand_over(storm: "Storm") -> None:
    """A planned change of roles, on whose way one of the two may go."""
    old = storm.master
    if not old.is_running:
        return
    asking = storm.sim.client.call(HandOver(), address=old.address)
    if storm.rng.random() < 0.4:
        storm.sim.advance(storm.rng.random() * 0.3)
        power = storm.plan.flush is Flush.SYNC and storm.rng.random() < 0.5
        storm.lose(storm.rng.choice(storm.nodes), power=power)
    with suppress(NetError):  # unanswered: it may have happened or not
        if storm.sim.wait(asking).code == ResponseCode.SUCCESS:
            storm.handed_over += 1
    storm.note_roles()


def promote(storm: "Storm") -> None:
    """The master is gone; the slave that has most becomes the master, and the old one its slave."""
    old = storm.master
    if not storm.copies or has_started_anew(old):  # of one slave only one old log can be compared
        return
    storm.sim.paths.heal()
    storm.has_promoted = True
    storm.ledger.master_is_lost()
    for node in storm.nodes:
        node.host.resume()
    storm.lose(old, power=storm.plan.flush is Flush.SYNC and storm.rng.random() < 0.5)
    # What the master sent still arrives: only a slave that has noticed its end can be compared.
    storm.reaches(lambda: not any(storm.follows(node) for node in storm.slaves))
    storm.note_roles()
    if storm.master is not old:  # a hand-over whose success was not observed
        storm.start(old)
        return
    new, new_end = _longest(storm, storm.copies)
    new_id, storm.promoted_at = id_of(new), new_end
    # One that was a master before would remember its slaves of then, and wait for them.
    if new not in storm.masters and storm.rng.random() < 0.5:
        _restart_as_master(new)
    else:
        _take_over(storm, new)
    old_end = _end(storm, old)
    storm.sim.advance(storm.rng.random() * 2)
    if storm.rng.random() < 0.5:
        _return_as_second_master(storm, old, new)
    configure(old, new_id)
    storm.note_roles()
    if old_end > new_end:
        storm.part(old, old_end)
    old.start()


def end_a_crashed_change(storm: "Storm") -> None:
    """Where a crash on the way of a hand-over left no master, promote the slave that has most."""
    storm.sim.advance(_CHANGE_S)  # a slave that was paused may accept late
    storm.note_roles()
    if storm.has_master:
        return
    # The two that were on the way have the same id now; one of them becomes the master.
    new, _ = _longest(storm, [storm.master, *storm.copies], id_of(storm.master))
    _take_over(storm, new)
    storm.note_roles()


def _longest(
    storm: "Storm", nodes: Iterable[BrokerNode], best_id: int = MASTER_ID
) -> tuple[BrokerNode, int]:
    """The broker with the longest log, and where that ends; of equal ones that with this id."""
    ends = {node: _end(storm, node) for node in nodes}
    longest = max(ends, key=lambda node: (ends[node], id_of(node) == best_id))
    return longest, ends[longest]


def _take_over(storm: "Storm", new: BrokerNode) -> None:
    """`sparrowmq broker promote --accept-loss`."""
    storm.start(new)
    storm.reaches(lambda: _hears_no_master(storm, new))
    storm.sim.client.disconnect()  # its host may have lost its power since
    taking = TakeOver(accept_loss=new.config.broker_name)
    answer = storm.sim.wait(storm.sim.client.call(taking, address=new.address))
    if answer.code != ResponseCode.SUCCESS:
        storm.problems.append(f"{new.name} does not take over: {answer.remark}")
    storm.reaches(lambda: storm.state(new) == Role.MASTER.value)


def _hears_no_master(storm: "Storm", node: BrokerNode) -> bool:
    if storm.state(node) != Role.SLAVE.value:
        return False
    follower = node.broker.replication.follower
    return follower is not None and not follower.master_address


def _restart_as_master(new: BrokerNode) -> None:
    """A promotion by the settings alone, as of a slave of Apache's master."""
    if new.is_running:
        new.kill()
    configure(new, MASTER_ID)
    new.start()


def _return_as_second_master(storm: "Storm", old: BrokerNode, new: BrokerNode) -> None:
    was_refused = False
    try:
        old.start()
    except* BrokerNameTaken:
        was_refused = True
    if not was_refused:
        if storm.state(old) != Role.WAITING.value:
            storm.problems.append(f"{old.name} serves although {new.name} took over")
        old.kill()


def _end(storm: "Storm", node: BrokerNode) -> int:
    with store_alone(node, storm.sim.clock()) as store:
        return store.max_log_offset
