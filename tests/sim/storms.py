"""A cluster under load and faults, and the check of its promises.

Every message has a unique body. Its sender counts it as `ok` only when the broker said so; any
other end leaves it unknown. At the end, when everything is healed, all queues are read: every `ok`
message must be there, nothing that was never sent, and messages of one sender to one queue in the
order in which they were acknowledged.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sparrowmq.broker.config import Flush
from sparrowmq.net.errors import NetError
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused, WirePull, wire

TOPIC = "storm"
QUEUES = 4
Fault = Callable[[random.Random, RunningCluster], None]


@dataclass
class Ledger:
    """What senders know."""

    attempted: set[bytes] = field(default_factory=set)
    ok: dict[tuple[str, str, int], list[bytes]] = field(default_factory=dict)
    """By sender, broker and queue, in the order of the acknowledgements."""
    acknowledged_s: dict[bytes, float] = field(default_factory=dict)

    @property
    def ok_count(self) -> int:
        return sum(len(bodies) for bodies in self.ok.values())


class Sender:
    """Sends one message after the other, to any broker and queue."""

    def __init__(self, sim: RunningCluster, name: str, ledger: Ledger) -> None:
        self.name = name
        self._sim = sim
        self._ledger = ledger
        self._rng = sim.rng(name)
        self._number = 0

    async def send_forever(self) -> None:
        async with wire(self.name, self._sim.clock) as connections:
            while True:
                node = self._rng.choice(list(self._sim.brokers.values()))
                queue_id = self._rng.randrange(QUEUES)
                self._number += 1
                body = f"{self.name} {self._number} ".encode().ljust(self._rng.randrange(2000))
                self._ledger.attempted.add(body)
                try:
                    await connections.send(node.address, TOPIC, body, queue_id=queue_id)
                except (NetError, Refused):
                    pass  # unknown: it may be there or not
                else:
                    key = (self.name, node.name, queue_id)
                    self._ledger.ok.setdefault(key, []).append(body)
                    self._ledger.acknowledged_s[body] = self._sim.now_s
                await asyncio.sleep(self._rng.random() / 3)


def run_storm(
    seed: int,
    faults: list[Fault],
    *,
    flush: Flush = Flush.ASYNC,
    brokers: int = 1,
    rounds: int = 12,
) -> tuple[Ledger, dict[tuple[str, int], list[bytes]], int]:
    """Returns what senders know, what the queues hold, and the checksum of the whole run."""
    with SimCluster(seed, brokers=brokers, flush=flush).run() as sim:
        ledger, rng = Ledger(), sim.rng("faults")
        for number in range(3):
            sender = Sender(sim, f"sender-{number}", ledger)
            sim.host(sender.name).start(sender.send_forever())
        for _ in range(rounds):
            sim.advance(rng.random() * 3)
            rng.choice(faults)(rng, sim)
        calm(sim)
        sim.advance(10)
        for number in range(3):
            sim.host(f"sender-{number}").kill()
        return ledger, read_everything(sim), sim.network.trace_crc


def calm(sim: RunningCluster) -> None:
    sim.paths.heal()
    for node in sim.brokers.values():
        node.host.resume()
        if not node.is_running:
            node.start()


def read_everything(sim: RunningCluster) -> dict[tuple[str, int], list[bytes]]:
    return {
        (node.name, queue_id): read_queue(sim, node, queue_id)
        for node in sim.brokers.values()
        for queue_id in range(QUEUES)
    }


def read_queue(sim: RunningCluster, node: BrokerNode, queue_id: int) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    while True:
        pull: WirePull = sim.wait(
            sim.client.pull(TOPIC, queue_id=queue_id, offset=offset, address=node.address)
        )
        if not pull.messages:
            return bodies
        assert [message.queue_offset for message in pull.messages] == [
            *range(offset, offset + len(pull.messages))
        ], "queue offsets are dense"
        bodies += pull.bodies
        offset = pull.next_offset


def group_faults(ledger: Ledger, queues: dict[tuple[str, int], list[bytes]]) -> list[str]:
    """A description of every broken promise; empty if all were kept."""
    found: list[str] = []
    for (sender, broker, queue_id), acknowledged in ledger.ok.items():
        held = queues[broker, queue_id]
        positions = {body: position for position, body in enumerate(held)}
        lost = [body for body in acknowledged if body not in positions]
        found += [f"lost: {body.split()[:2]} of {broker} queue {queue_id}" for body in lost]
        order = [positions[body] for body in acknowledged if body in positions]
        if order != sorted(order):
            found.append(f"out of order: {sender} in {broker} queue {queue_id}")
    for (broker, queue_id), held in queues.items():
        phantoms = set(held) - ledger.attempted
        found += [f"never sent: {body!r} in {broker} queue {queue_id}" for body in phantoms]
    return found


def any_broker(rng: random.Random, sim: RunningCluster) -> BrokerNode:
    return rng.choice(list(sim.brokers.values()))


def kill_a_broker(rng: random.Random, sim: RunningCluster) -> None:
    any_broker(rng, sim).restart()


def cut_the_power(rng: random.Random, sim: RunningCluster) -> None:
    node = any_broker(rng, sim)
    if node.is_running:
        node.lose_power()
    node.start()


def stop_a_broker(rng: random.Random, sim: RunningCluster) -> None:
    node = any_broker(rng, sim)
    node.host.resume()
    node.stop()
    node.start()


def pause_a_broker(rng: random.Random, sim: RunningCluster) -> None:
    any_broker(rng, sim).host.pause()


def resume_brokers(rng: random.Random, sim: RunningCluster) -> None:
    for node in sim.brokers.values():
        node.host.resume()


def cut_a_path(rng: random.Random, sim: RunningCluster) -> None:
    node = any_broker(rng, sim)
    sender = sim.host(f"sender-{rng.randrange(3)}")
    if rng.random() < 0.5:
        sim.paths.partition([sender], [node.host])
    else:
        sim.paths.cut(node.host, sender)


def heal_paths(rng: random.Random, sim: RunningCluster) -> None:
    sim.paths.heal()


def reset_connections(rng: random.Random, sim: RunningCluster) -> None:
    sim.network.reset_connections(any_broker(rng, sim).host)


NETWORK: list[Fault] = [cut_a_path, heal_paths, reset_connections, pause_a_broker, resume_brokers]
PROCESS: list[Fault] = [kill_a_broker, stop_a_broker]
KILL: list[Fault] = [kill_a_broker]
POWER: list[Fault] = [cut_the_power]
