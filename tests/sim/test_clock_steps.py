"""A running broker whose clock is set over and over, between kills, while messages wait."""

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparrowmq.broker.delivery import timer_delivery
from sparrowmq.broker.delivery.clock_steps import ClockSteps
from sparrowmq.broker.delivery.half_messages import records
from sparrowmq.protocol.delay import RETRY_DELAYS_MS
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.sim.consumers import Feeder, Member, create_topic
from tests.sim.test_consumer_groups import QUEUES

STEPS_MS = (-7_200_000, -61_000, -2_500, -30, 30, 2_500, 61_000, 7_200_000)
SOON_MS = 100
"""What requests and a start take in virtual time, and looks at the clock."""
TIMER_MS = 3_000


@dataclass
class Sent:
    """A message that waits: since when, and for how long."""

    kind: str
    at_ms: int
    delay_ms: int
    asked_ms: int
    """By the clock."""
    set_back_ms: int = 0
    """By how much the clock was set back since, in sum."""


@dataclass
class Life:
    """What was sent, and what was seen of it. Times are of the simulation, not of its clock."""

    sim: RunningCluster
    rng: random.Random
    sent: dict[bytes, Sent] = field(default_factory=dict)
    came: dict[bytes, list[tuple[int, int]]] = field(default_factory=dict)
    """By body, when: of the simulation and by the clock."""
    downs_ms: list[tuple[int, int]] = field(default_factory=list)
    seen: int = 0

    def send(self) -> None:
        now_ms = self.sim.clock()
        level = self.rng.randint(1, 3)
        kinds: tuple[tuple[str, int, dict[str, Any]], ...] = (
            ("level", RETRY_DELAYS_MS[level - 1], {"DELAY": str(level)}),
            ("delay", TIMER_MS, {"TIMER_DELAY_MS": str(TIMER_MS)}),
            ("time", TIMER_MS, {"TIMER_DELIVER_MS": str(now_ms + TIMER_MS)}),
        )
        kind, delay_ms, properties = self.rng.choice(kinds)
        body = b"%d %s" % (len(self.sent), kind.encode())
        self.sent[body] = Sent(kind, self.sim.monotonic(), delay_ms, now_ms + delay_ms)
        self.sim.wait(self.sim.client.send("orders", body, **properties))

    def look(self) -> None:
        """Before the clock is set again: store times follow the current one."""
        for record in records(self.sim.broker.store, "orders", self.seen):
            stored_ms = record.store_timestamp
            self.came.setdefault(record.body, []).append((stored_ms - self.sim.epoch_ms, stored_ms))
            self.seen = record.queue_offset + 1

    def set_clock(self, by_ms: int) -> None:
        self.look()
        for body, sent in self.sent.items():
            if body not in self.came:
                sent.set_back_ms += max(0, -by_ms)
        self.sim.set_clock(by_ms)

    def restart(self) -> None:
        """Sometimes the clock is set in the same moment, or while the broker is down."""
        broker = self.sim.brokers["broker-a"]
        began_ms = self.sim.monotonic()
        if self.rng.random() < 0.5:
            self.set_clock(self.rng.choice(STEPS_MS))
        self.look()
        broker.kill()
        self.sim.advance(self.rng.random())
        broker.start()
        self.downs_ms.append((began_ms, self.sim.monotonic()))

    def latest_ms(self, due_ms: int) -> int:
        """When something has to come that is due then."""
        for began_ms, ended_ms in self.downs_ms:
            if began_ms - SOON_MS <= due_ms <= ended_ms:
                due_ms = ended_ms
        return due_ms + SOON_MS

    def faults(self) -> list[str]:
        found = [f"lost: {body!r}" for body in self.sent if body not in self.came]
        found += [f"repeated: {body!r}" for body, times in self.came.items() if len(times) > 1]
        for body, times in self.came.items():
            sent, (came_ms, clock_ms) = self.sent[body], times[0]
            due_ms = sent.at_ms + sent.delay_ms
            if sent.kind == "time":
                is_early, is_late = clock_ms < sent.asked_ms, False
            else:
                late_ms = sent.set_back_ms if sent.kind == "delay" else 0
                is_early, is_late = came_ms < due_ms, came_ms > self.latest_ms(due_ms + late_ms)
            if is_early or is_late:
                found.append(f"{'early' if is_early else 'late'}: {body!r}")
        return found


def lived(seed: int, steps: int) -> Life:
    with SimCluster(seed=seed).run() as sim:
        life = Life(sim, random.Random(seed))
        for _ in range(steps):
            for _ in range(3):
                life.send()
                sim.advance(life.rng.random())
            life.set_clock(life.rng.choice(STEPS_MS))
            if life.rng.random() < 0.3:
                life.restart()
        sim.advance(20)
        life.set_clock(2 * steps * 7_200_000)  # for times that are hours away now
        sim.advance(20)
        life.look()
        return life


def test_clock_steps_cause_no_loss_repeats_or_early_delivery_and_delay_at_most_their_size(
    seed: int,
) -> None:
    life = lived(seed, steps=10)
    assert len(life.sent) == 30
    assert life.faults() == []


def test_the_check_notices_a_broker_that_believes_its_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ClockSteps, "since", lambda *_: 0)
    kinds = {fault.partition(":")[0] for fault in lived(0, steps=10).faults()}
    assert kinds >= {"early", "late"}


def test_the_check_notices_timers_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_delivery, "wait_longer", lambda *_: True)
    assert any(fault.startswith("lost") for fault in lived(0, steps=10).faults())


@pytest.mark.slow
@pytest.mark.parametrize("step_ms", (-7_200_000, 7_200_000), ids=("back", "forward"))
def test_members_keep_their_queues_and_sessions(step_ms: int) -> None:
    with SimCluster(seed=1).run() as sim:
        create_topic(sim, QUEUES)
        handled: Counter[bytes] = Counter()
        members = [Member(sim, f"member-{number}", handled) for number in range(2)]
        sim.advance(5)
        held = [sorted(member.queues()) for member in members]
        feeder = Feeder(sim)
        for _ in range(2):
            sim.set_clock(step_ms)
            sim.advance(11)
            assert [sorted(member.queues()) for member in members] == held
        feeder.stop()
        sim.advance(2)
        assert handled == Counter(feeder.sent)
