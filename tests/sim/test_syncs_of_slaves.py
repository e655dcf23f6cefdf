"""A slave follows without blocking: its loop never waits for a sync of its disk."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import extract_stack
from typing import ParamSpec, TypeVar

import pytest

from sparrowmq.disk.syncer import SyncPlan
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.headers.topics import CreateTopic, DeleteTopic
from sparrowmq.testing import sim_nodes
from sparrowmq.testing.recording_disk import RecordingDisk
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from tests.sim.replicated import follows, has_all
from tests.sim.slaves import MASTER, SLAVE, with_slave

P = ParamSpec("P")
T = TypeVar("T")
TOPICS = 30


class Watch:
    """Notes the syncs that the loop waits for."""

    def __init__(self, patch: Callable[[object, str, object], None]) -> None:
        self.found: Counter[str] = Counter()
        self._beside = 0
        watch, sync = self, BrokerNode.sync

        class Workers(InlineWorkers):
            async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
                watch._beside += 1
                try:
                    return function(*args, **kwargs)
                finally:
                    watch._beside -= 1

        async def sync_beside(node: BrokerNode, plan: SyncPlan) -> None:
            watch._beside += 1
            try:
                await sync(node, plan)
            finally:
                watch._beside -= 1

        patch(sim_nodes, "InlineWorkers", Workers)
        patch(BrokerNode, "sync", sync_beside)

    @contextmanager
    def over(self, disk: RecordingDisk) -> Iterator[None]:
        """Watch while the block runs."""

        def note(operation: str, path: str) -> None:
            if operation == "sync" and not self._beside:
                self.found[" < ".join(frame.name for frame in extract_stack()[-8:-1])] += 1

        disk.on_call = note
        yield
        disk.on_call = None


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch.setattr)


def name(number: int) -> str:
    return f"topic-{number}"


def delete_topics(sim: RunningCluster) -> None:
    for number in range(3):
        deleting = sim.client.call(
            DeleteTopic(topic=name(number)), address=sim.brokers[MASTER].address
        )
        sim.wait(deleting)
        sim.advance(1.0)
    assert name(2) not in sim.brokers[SLAVE].broker.topics


def lose_master(sim: RunningCluster) -> None:
    """Its next start begins an epoch."""
    before = sim.brokers[SLAVE].broker.store.epochs.current
    sim.brokers[MASTER].lose_power()
    sim.brokers[MASTER].start()
    sim.until(lambda: sim.brokers[SLAVE].broker.store.epochs.current > before)


def grow(sim: RunningCluster) -> None:
    """Over several checkpoints and log files."""
    for number in range(20):
        sim.wait(sim.client.send(name(number), bytes(100_000)))
        sim.advance(6.0)


@pytest.mark.parametrize("work", [delete_topics, lose_master, grow], ids=lambda work: work.__name__)
def test_a_slaves_loop_waits_for_no_sync(
    work: Callable[[RunningCluster], None], watch: Watch
) -> None:
    with with_slave() as sim:
        for number in range(TOPICS):
            topic = CreateTopic(topic=name(number), read_queue_nums=1, write_queue_nums=1, perm=6)
            sim.wait(sim.client.call(topic))
            sim.wait(sim.client.send(name(number), b"a message"))
        sim.until(lambda: has_all(sim))
        sim.advance(1.0)
        with watch.over(sim.brokers[SLAVE].disk):
            work(sim)
            sim.until(lambda: follows(sim) and has_all(sim))
    assert not watch.found
