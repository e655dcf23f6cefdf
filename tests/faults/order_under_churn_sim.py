"""Row 11 in virtual time: owners that are frozen for a minute and more cost nothing here."""

from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.client.members import TOPIC
from tests.faults.churn_sim import SimGroup
from tests.faults.feeder_sim import SimFeeder, in_batches
from tests.faults.order_under_churn import FROZEN_S, KILLED_S, Fault, OrderHistory

QUEUES = 8
_SENT, _BATCH = 16, 4
_LONGEST_CALL_S = 0.3
"""Queues are busy most of the time, so that whatever happens meets calls that run."""
_MEMBERS = 4
_FROZEN_S = FROZEN_S + 10


class OrderedGroup(SimGroup):
    """Members whose handlers get one batch of a queue after the other."""

    history: OrderHistory

    def __init__(self, sim: RunningCluster) -> None:
        super().__init__(
            sim, queues=QUEUES, longest_call_s=_LONGEST_CALL_S, orderly=True, batch=_BATCH
        )
        self.history = OrderHistory()

    def kill(self, name: str, *, is_measured: bool = False) -> None:
        """kill -9."""
        self.history.faults.append(self._fault(name, float("inf"), is_measured))
        super().kill(name)

    def freeze(self, name: str, seconds: float) -> None:
        """SIGSTOP, and SIGCONT later."""
        self.history.faults.append(self._fault(name, self.sim.now_s + seconds, True))
        self.members[name].host.pause()
        self.sim.advance(seconds)
        self.members[name].host.resume()
        self.history.changes["freeze"] += 1

    def _fault(self, name: str, until_s: float, is_measured: bool) -> Fault:
        held = tuple(
            queue.queue_id
            for queue in self.members[name].consumer.assignment()
            if queue.topic == TOPIC
        )
        progress = self.progress()
        return Fault(name, self.sim.now_s, until_s, held, progress, is_measured)


def order_in_simulation(seed: int, changes: int, *, freezes: int = 1) -> OrderHistory:
    """Members come, go, crash and freeze while batches flow."""
    with SimCluster(seed, limit_s=24 * 3600.0).run() as sim:
        group = OrderedGroup(sim)
        feeder = SimFeeder(sim, in_batches(_SENT), pause_s=0.1)
        rng = sim.rng("when")
        for _ in range(_MEMBERS):
            group.join()
        for _ in range(changes):
            sim.advance(rng.random() * 2)
            group.change()
        for _ in range(freezes):
            _calm(sim, group)
            group.kill(rng.choice(sorted(group.members)), is_measured=True)
            _calm(sim, group)
            group.freeze(rng.choice(sorted(group.members)), _FROZEN_S)
        _calm(sim, group)
        feeder.stop()
        group.drain()
        return group.history


def _calm(sim: RunningCluster, group: OrderedGroup) -> None:
    """Enough members, and time for all of them to work."""
    while len(group.members) < _MEMBERS:
        group.join()
    sim.advance(2 * KILLED_S)
