"""Scorecard row 8, simulated: a master under load loses its power again and again.

Processes cannot lose what they wrote, so this runs on recording disks. After every cut the slave's
disk is opened alone; with synchronous flush as a power cut of its own would leave it.
"""

from dataclasses import dataclass, field

from sparrowmq.broker.config import Flush, ReplicationMode
from sparrowmq.broker.replication.replication import Role
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.faults.replication_checks import contents, differences, store_alone
from tests.faults.replication_clients import TOPIC, Ledger, Sender

_SETTLE_S = 60.0


@dataclass
class PowerResult:
    """What a series of power cuts came to."""

    seed: int
    flush: Flush
    cuts: int = 0
    acknowledged: int = 0
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        found = "; ".join(self.problems[:5]) or "nothing wrong"
        return f"seed {self.seed}, {self.flush.name} flush, {self.cuts} cuts: {found}"


def cut_masters_power(seed: int, *, flush: Flush, cuts: int = 10, senders: int = 64) -> PowerResult:
    """Cut the power of a master with 64 senders and synchronous replication, `cuts` times."""
    result, ledger = PowerResult(seed, flush), Ledger()
    cluster = SimCluster(
        seed, slaves=1, flush=flush, replication=ReplicationMode.SYNC, flush_interval_s=5.0
    )
    with cluster.run() as sim:
        master, slave = sim.brokers["broker-a"], sim.brokers["broker-a.1"]
        for number in range(senders):
            sender = Sender(
                sim, f"sender-{number}", ledger, lambda: master, lambda name, log_offset: None
            )
            sim.host(sender.name).start(sender.send_forever())
        rng = sim.rng("cuts")
        for _ in range(cuts):
            sim.advance(0.2 + rng.random() / 2)
            master.lose_power()
            result.cuts += 1
            power = rng if flush is Flush.SYNC else None
            with store_alone(slave, sim.clock(), power) as store:
                lost = contents(store, TOPIC).lacks(ledger)
            result.problems += [f"cut {result.cuts}: the slave lacks {name}" for name in lost[:3]]
            master.start()
            _until_fed(sim, master, result)
        for number in range(senders):
            sim.host(f"sender-{number}").kill()
        sim.advance(3.0)
        result.acknowledged = len(ledger.ok)
        with (
            store_alone(master, sim.clock()) as ours,
            store_alone(slave, sim.clock()) as theirs,
        ):
            result.problems += [
                f"the master lacks {name}" for name in contents(ours, TOPIC).lacks(ledger)[:3]
            ]
            result.problems += differences(ours, theirs)[:3]
    return result


def _until_fed(sim: RunningCluster, master: BrokerNode, result: PowerResult) -> None:
    limit_s = sim.now_s + _SETTLE_S

    def is_fed() -> bool:
        if not hasattr(master.server, "broker"):
            return False
        replication = master.broker.replication
        return replication.role is Role.MASTER and bool(replication.feed.links)

    sim.until(lambda: is_fed() or sim.now_s > limit_s)
    if not is_fed():
        result.problems.append(f"no slave follows {_SETTLE_S:.0f} s after cut {result.cuts}")
