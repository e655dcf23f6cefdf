"""How much a slave appends in one turn of its loop, so that requests are answered in between."""

import asyncio
from collections.abc import Iterable

import pytest

from sparrowmq.store.store import Store
from sparrowmq.testing.sim_cluster import SimCluster
from tests.sim.replicated import follows, has_all
from tests.store.stores import message

MOST_BYTES = 64 * 1024
MOST_QUEUES = 256


class Turns:
    """Counts what a store gets from its master in each turn of the loop."""

    def __init__(self, store: Store) -> None:
        self.bytes: list[int] = []
        self.queues: list[int] = []
        self._is_new = True
        self._append, self._take = store.append_raw, store.take_copied
        store.append_raw = self._append_raw
        store.take_copied = self._take_copied

    def _append_raw(self, log_offset: int, data: bytes) -> int:
        if self._is_new:
            self._is_new = False
            self.bytes.append(0)
            self.queues.append(0)
            asyncio.get_running_loop().call_soon(self._turn_ends)
        self.bytes[-1] += len(data)
        return self._append(log_offset, data)

    def _take_copied(self) -> Iterable[tuple[str, int]]:
        grown = list(self._take())
        self.queues[-1] += len(grown)
        return grown

    def _turn_ends(self) -> None:
        self._is_new = True


@pytest.mark.parametrize(
    ("topics", "size"), [(1_200, 20), (1, 1_000)], ids=["many queues", "one queue"]
)
def test_a_turn_takes_a_bounded_amount_of_bytes_and_of_queues(topics: int, size: int) -> None:
    """A queue that grows costs a slave 8 µs, more if it is new."""
    with SimCluster(slaves=1).run() as sim:
        sim.until(lambda: follows(sim))
        counted = Turns(sim.brokers["broker-a.1"].broker.store)
        for number in range(1_200):
            sim.broker.store.append(message(number, f"topic-{number % topics}", size=size), 1)
        sim.until(lambda: has_all(sim))
        assert sum(counted.bytes) > 3 * MOST_BYTES
        assert max(counted.bytes) <= MOST_BYTES
        assert max(counted.queues) <= MOST_QUEUES
