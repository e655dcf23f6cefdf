"""A master and its slaves in virtual time, under load, while faults of all kinds meet them.

A seed decides everything: flush and replication, how many slaves, which faults and when. After
every loss of the master the stores of its slaves are opened alone, and at the end all of them.

```
synchronous replication   an acknowledged message is on so many brokers as the setting says; with
                          synchronous flush it survives any number of power cuts, with
                          asynchronous flush one at a time
asynchronous replication  an acknowledged message is on the master; with asynchronous flush a power
                          cut may take it
```
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from random import Random

from sparrowmq.broker import housekeeping
from sparrowmq.broker.config import MASTER_ID, Flush, ReplicationMode
from sparrowmq.broker.replication.replication import Role
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.headers.topics import DeleteTopic
from sparrowmq.store.config import StoreConfig
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.faults.replication_checks import (
    Contents,
    contents,
    differences,
    has_started_anew,
    store_alone,
    store_kept_aside,
)
from tests.faults.replication_clients import SHORT_LIVED, TOPIC, Ledger, Reader, Sender, SlaveReader
from tests.faults.replication_role_changes import (
    end_a_crashed_change,
    hand_over,
    id_of,
    promote,
)

SENDERS = 3
_SETTLE_S = 90.0
"""A peer that vanished is noticed after 20 s, and its name at the name server after some more."""
_NOTICE_S = 0.1
"""A host that was paused learns now that it lost connections meanwhile."""


@dataclass(frozen=True)
class Plan:
    """What one seed runs."""

    seed: int
    flush: Flush
    replication: ReplicationMode
    slaves: int
    copies: int
    rounds: int

    @staticmethod
    def of(seed: int, rounds: int = 10) -> "Plan":
        rng = Random(f"plan {seed}")
        slaves = rng.choice((1, 1, 2))
        return Plan(
            seed=seed,
            flush=(Flush.ASYNC, Flush.SYNC)[seed % 2],
            # Asynchronous replication promises little: a quarter of the seeds is enough.
            replication=ReplicationMode.ASYNC if seed // 2 % 4 == 3 else ReplicationMode.SYNC,
            slaves=slaves,
            copies=rng.randint(2, slaves + 1),
            rounds=rounds,
        )

    @property
    def waits_for_copies(self) -> bool:
        return self.replication is ReplicationMode.SYNC

    def cluster(self) -> SimCluster:
        rng = Random(f"settings {self.seed}")
        store = StoreConfig(
            log_file_size=16 * 1024,
            queue_file_units=50,
            index_slots=50,
            index_entries=500,
            timer_log_size=16 * 1024,
            reserve_bytes=4 * 1024,
            retention_ms=rng.choice((6_000, 3_600_000)),
        )
        return SimCluster(
            self.seed,
            slaves=self.slaves,
            flush=self.flush,
            replication=self.replication,
            in_sync_replicas=self.copies if self.waits_for_copies else 0,
            ha_chunk_bytes=rng.choice((1024, 1500, 4096, 32 * 1024)),
            slave_timeout_s=rng.choice((0.5, 2.0)),
            store=store,
        )


@dataclass
class StormResult:
    """What a storm came to."""

    plan: Plan
    acknowledged: int = 0
    short: int = 0
    seen: int = 0
    handed_over: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        plan = self.plan
        mode = f"{plan.flush.name} flush, {plan.replication.name} replication, {plan.slaves} slaves"
        return f"seed {plan.seed}, {mode}: {'; '.join(self.problems[:5]) or 'nothing wrong'}"


class Storm:
    """A running cluster, and the faults that can happen to it."""

    def __init__(self, sim: RunningCluster, plan: Plan) -> None:
        self.sim = sim
        self.plan = plan
        self.rng = sim.rng("faults")
        self.ledger = Ledger()
        self.master = sim.brokers["broker-a"]
        self.slaves = [node for node in sim.brokers.values() if node is not self.master]
        self.masters = {self.master}
        """Those that are or were one."""
        self.parted: dict[BrokerNode, int] = {}
        """Brokers whose log became another one than the master's, and where it ended then."""
        self.faults: dict[str, int] = {}
        self.problems: list[str] = []
        self.expired: dict[BrokerNode, int] = {}
        """What lies before has expired there; a power cut may bring back the log files of it, but
        not their queues."""
        self._reached: dict[BrokerNode, int] = {}
        self.has_promoted = False
        self.promoted_at = 0
        """Where the log ended at the last promotion. An old message may have no other copy left."""
        self.handed_over = 0
        self._power_was_lost = False

    @property
    def nodes(self) -> list[BrokerNode]:
        return [self.master, *self.slaves]

    @property
    def copies(self) -> list[BrokerNode]:
        """Slaves whose log is the master's. One that parted is among them again when the master no
        longer has what comes after its end: then it starts over, and keeps its old log aside."""
        return [n for n in self.slaves if n not in self.parted or has_started_anew(n)]

    @property
    def has_master(self) -> bool:
        """Whether a broker is the master by its settings, or by its last change of roles."""
        return any(id_of(node) == MASTER_ID for node in self.nodes)

    def note_roles(self) -> None:
        """Know which broker is the master now. Without one it is still the last."""
        masters = [node for node in self.nodes if id_of(node) == MASTER_ID]
        if len(masters) > 1:
            self.problems.append(f"{' and '.join(node.name for node in masters)} are masters")
        elif masters and masters != [self.master]:
            self.slaves = [node for node in self.nodes if node not in masters]
            (self.master,) = masters
            self.masters.add(self.master)

    def part(self, node: BrokerNode, end: int) -> None:
        """This broker's log is not the master's from now on."""
        self.parted[node] = end
        self._reached.pop(node, None)

    # ---- what holds at any time

    def acknowledged(self, name: str, log_offset: int) -> None:
        """SEND_OK was answered: so many slaves must have it by now."""
        if not self.plan.waits_for_copies:
            return
        self.note_ends()
        having = sum(end > log_offset for end in self._reached.values())
        if having < self.plan.copies - 1:
            self.problems.append(
                f"{name}: SEND_OK with {having + 1} of {self.plan.copies} copies"
                f" at {self.sim.now_s:.3f} s"
            )

    def note_ends(self) -> None:
        """How much of the log each slave has had: one that loses power may have less later."""
        for node in self.copies:
            if hasattr(node.server, "broker"):
                end = node.broker.store.max_log_offset
                self._reached[node] = max(end, self._reached.get(node, 0))

    def check_alive(self) -> None:
        """No fault of a peer may end a broker."""
        for node in self.nodes:
            if node.has_ended:
                try:
                    node.wait_for_end()
                except BaseExceptionGroup as error:
                    self.problems.append(f"{node.name} ended by itself: {error.exceptions!r}")
                node.start()

    def check_copies(self) -> None:
        """The master is lost: what it acknowledged is on the slaves' own disks."""
        if not self.plan.waits_for_copies:
            return
        # With synchronous flush a slave acknowledges what survives its own power cut too.
        rng = self.rng if self.plan.flush is Flush.SYNC else None
        found = [self._contents(node, rng) for node in self.copies]
        if found:
            lost = set.intersection(*(set(each.lacks(self.ledger)) for each in found))
            lost = {name for name in lost if self.ledger.ok[name] >= self.promoted_at}
            self.problems += [f"{name}: acknowledged, and on no slave" for name in sorted(lost)[:3]]

    def check_new_starts(self) -> None:
        """A slave drops its parted log only if its master no longer has what comes after it."""
        for node, end in self.parted.items():
            if has_started_anew(node):
                with store_alone(node, self.sim.clock()) as store:
                    begin, is_empty = store.min_log_offset, not store.max_log_offset
                if begin <= end and not is_empty:
                    self.problems.append(f"{node.name} lost the end of its parted log")

    def _contents(self, node: BrokerNode, rng: Random | None = None) -> Contents:
        with store_alone(node, self.sim.clock()) as store:
            found = contents(store, TOPIC)
        if rng is None:
            return found
        with store_alone(node, self.sim.clock(), rng) as store:
            # A power cut may bring back log files that had expired, without their queues.
            return replace(contents(store, TOPIC), begin=max(found.begin, store.min_log_offset))

    # ---- faults

    def fault(self) -> None:
        """Let one happen."""
        kinds = [kind for kind, weight in FAULTS.items() for _ in range(weight)]
        kind = self.rng.choice(kinds)
        self.note_roles()
        self.note_ends()
        self.check_new_starts()
        self.faults[kind.__name__] = self.faults.get(kind.__name__, 0) + 1
        kind(self)

    def lose(self, node: BrokerNode, *, power: bool) -> None:
        """A broker goes, with its power or without."""
        if not node.is_running:
            return
        node.host.resume()
        if power:
            self._power_was_lost = True
            node.lose_power()
        else:
            node.kill()
        if node is self.master:
            self.check_copies()

    def start(self, node: BrokerNode) -> None:
        """Start a broker that does not run, also on a host that was paused meanwhile."""
        if not node.is_running:
            node.host.resume()
            node.start()

    def calm(self) -> None:
        """End every fault, and wait until all brokers have what the master has now."""
        self.sim.paths.heal()
        for node in self.nodes:
            node.host.resume()
            node.sync_s = 0.0  # behind a slow disk a slave lags for as long as clients send
        for node in self.nodes:
            self.start(node)
        self.sim.advance(_NOTICE_S)
        self.note_roles()
        if not self.has_master:
            end_a_crashed_change(self)
        if not self.reaches(self._is_settled):
            states = [f"{node.name} {self.state(node)}" for node in self.nodes]
            self.problems.append(f"not settled after {_SETTLE_S:.0f} s: {', '.join(states)}")

    def reaches(self, state: Callable[[], bool]) -> bool:
        """Wait for that, for a while; whether it came."""
        limit_s = self.sim.now_s + _SETTLE_S
        self.sim.until(lambda: state() or self.sim.now_s > limit_s)
        return state()

    def _is_settled(self) -> bool:
        """All slaves follow, and have most of what the master has."""
        if self.state(self.master) != Role.MASTER.value:
            return False
        end = self.master.broker.store.max_log_offset
        links = self.master.broker.replication.feed.links
        return all(
            id_of(node) in links
            and links[id_of(node)].acknowledged >= end - 32 * 1024
            and self.follows(node)
            for node in self.copies
        )

    def follows(self, node: BrokerNode) -> bool:
        """What the slave says. Its master may not have noticed yet that their connection is lost,
        and the slave may wait for some seconds before it connects again."""
        if self.state(node) != Role.SLAVE.value:
            return False
        follower = node.broker.replication.follower
        return follower is not None and follower.master_address == self.master.address

    def _is_equal(self) -> bool:
        """All slaves have everything that the master has."""
        return self._is_settled() and all(
            node.broker.store.max_log_offset == self.master.broker.store.max_log_offset
            for node in self.copies
        )

    def state(self, node: BrokerNode) -> str:
        if not node.is_running or not hasattr(node.server, "broker"):
            return "does not run"
        return str(node.broker.replication.role.value)

    # ---- the end

    def finish(self) -> StormResult:
        """Calm down, stop the clients, and look at every store alone."""
        self.calm()
        for number in range(SENDERS):
            self.sim.host(f"sender-{number}").kill()
        for reader in (Reader, SlaveReader):
            self.sim.host(reader.name).kill()
        self.sim.advance(4.0)  # delayed messages and what is on its way
        self.reaches(self._is_equal)  # if they do not, their stores show where they differ
        self.check_alive()
        for node in self.nodes:
            if node.is_running:
                node.kill()
        self._check_stores()
        return StormResult(
            self.plan,
            acknowledged=len(self.ledger.ok),
            short=self.ledger.short,
            seen=len(self.ledger.seen),
            handed_over=self.handed_over,
            faults=self.faults,
            problems=self.problems,
        )

    def _check_stores(self) -> None:
        plan = self.plan
        is_cut = self._power_was_lost and plan.flush is Flush.ASYNC
        may_lose = not plan.waits_for_copies and (is_cut or self.has_promoted)
        if plan.waits_for_copies:
            self.problems += self.ledger.reused[:3]
        with ExitStack() as stack:
            stores = {
                node: stack.enter_context(store_alone(node, self.sim.clock()))
                for node in self.nodes
            }
            master = stores[self.master]
            self._check_parted()
            for node in (self.master, *self.copies):
                store = stores[node]
                if store.max_log_offset != master.max_log_offset:
                    ends = f"{store.max_log_offset}, master {master.max_log_offset}"
                    self.problems.append(f"{node.name} ends at {ends}")
                expired = max(self.expired.get(each, 0) for each in (node, self.master))
                found = contents(store, TOPIC)
                found = replace(found, begin=max(found.begin, expired))
                unknown = {each for each in found.ids.values() if each not in self.ledger.attempted}
                self.problems += [f"{node.name} invented {name}" for name in sorted(unknown)[:3]]
                self.problems += [
                    f"{node.name}: {each}" for each in differences(master, store, expired)[:3]
                ]
                if not may_lose:
                    lost = found.lacks(self.ledger)
                    self.problems += [f"{node.name} lacks {name}" for name in lost[:3]]
                if plan.waits_for_copies:
                    hidden = found.hides(self.ledger)
                    self.problems += [f"{node.name} has not what was seen: {e}" for e in hidden[:3]]

    def _check_parted(self) -> None:
        for node, end in self.parted.items():
            look = store_kept_aside if has_started_anew(node) else store_alone
            with look(node, self.sim.clock()) as store:
                if store.max_log_offset != end:
                    self.problems.append(f"{node.name} lost the end of its parted log")
        self.check_new_starts()


def kill_master(storm: Storm) -> None:
    storm.lose(storm.master, power=False)
    if storm.rng.random() < 0.7:
        storm.start(storm.master)


def cut_masters_power(storm: Storm) -> None:
    _cut_power(storm, storm.master)


def kill_slave(storm: Storm) -> None:
    slave = storm.rng.choice(storm.slaves)
    storm.lose(slave, power=False)
    if storm.rng.random() < 0.5:
        storm.start(slave)


def cut_slaves_power(storm: Storm) -> None:
    _cut_power(storm, storm.rng.choice(storm.slaves))


def _cut_power(storm: Storm, node: BrokerNode) -> None:
    """With asynchronous flush there is one power cut at a time: the other copy has to be there."""
    if storm.plan.flush is Flush.ASYNC:
        if node is not storm.master:
            # Nothing may be on this slave alone, and the master may not be in doubt either.
            storm.calm()
        storm.lose(node, power=True)
        storm.sim.advance(storm.rng.random() * 3)
        storm.calm()
        return
    storm.lose(node, power=True)
    if storm.rng.random() < 0.6:
        storm.start(node)


def stop_in_order(storm: Storm) -> None:
    node = storm.rng.choice(storm.nodes)
    if node.is_running:
        node.host.resume()
        node.stop()
    if storm.rng.random() < 0.7:
        storm.start(node)


def start_what_is_off(storm: Storm) -> None:
    for node in storm.nodes:
        storm.start(node)


def cut_paths(storm: Storm) -> None:
    one, other = storm.rng.sample([node.host for node in storm.nodes], 2)
    if storm.rng.random() < 0.5:
        storm.sim.paths.partition([one], [other])
    else:
        storm.sim.paths.cut(one, other)


def part_from_name_server(storm: Storm) -> None:
    node = storm.rng.choice(storm.nodes)
    (server,) = storm.sim.name_servers.values()
    storm.sim.paths.partition([node.host], [server.host])


def heal(storm: Storm) -> None:
    storm.sim.paths.heal()


def pause(storm: Storm) -> None:
    storm.rng.choice(storm.nodes).host.pause()


def resume(storm: Storm) -> None:
    for node in storm.nodes:
        node.host.resume()


def reset(storm: Storm) -> None:
    storm.sim.network.reset_connections(storm.rng.choice(storm.nodes).host)


def slow_disk(storm: Storm) -> None:
    storm.rng.choice(storm.nodes).sync_s = storm.rng.choice((0.0, 0.002, 0.02, 0.2))


def delete_topic(storm: Storm) -> None:
    header = DeleteTopic(topic=SHORT_LIVED)
    deleting = storm.sim.client.call(header, address=storm.master.address)
    with suppress(NetError):
        storm.sim.wait(deleting)


def expire(storm: Storm) -> None:
    for node in storm.nodes:
        has_begun = node.is_running and hasattr(node.server, "broker")
        if has_begun and node.host.process.is_running:
            cleaning = housekeeping.clean(node.broker, any_hour=True)
            storm.sim.wait(node.host.start(cleaning))
            storm.expired[node] = node.broker.store.min_log_offset


FAULTS: dict[Callable[[Storm], None], int] = {
    kill_master: 3,
    cut_masters_power: 3,
    kill_slave: 3,
    cut_slaves_power: 2,
    stop_in_order: 1,
    start_what_is_off: 3,
    cut_paths: 3,
    part_from_name_server: 1,
    heal: 2,
    pause: 2,
    resume: 2,
    reset: 2,
    slow_disk: 1,
    delete_topic: 1,
    expire: 2,
    hand_over: 2,
    promote: 1,
}


@contextmanager
def storm_of(plan: Plan) -> Iterator[Storm]:
    """A cluster with its clients, to which nothing has happened yet."""
    with plan.cluster().run() as sim:
        storm = Storm(sim, plan)
        for number in range(SENDERS):
            sender = Sender(
                sim,
                f"sender-{number}",
                storm.ledger,
                lambda: storm.master,
                lambda name, at: storm.acknowledged(name, at),
            )
            sim.host(sender.name).start(sender.send_forever())
        for reader in (
            Reader(sim, storm.ledger, lambda: storm.master),
            SlaveReader(sim, storm.ledger, lambda: storm.master, lambda: storm.copies),
        ):
            sim.host(reader.name).start(reader.read_forever())
        yield storm


def run_storm(seed: int, *, rounds: int = 10) -> StormResult:
    """Run one seed. What it found is in `problems`."""
    plan = Plan.of(seed, rounds)
    with storm_of(plan) as storm:
        for _ in range(plan.rounds):
            storm.sim.advance(storm.rng.random() * 2.5)
            storm.check_alive()
            storm.fault()
        return storm.finish()
