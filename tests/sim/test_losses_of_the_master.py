"""Masters that are killed and return, under members of every kind: nothing is lost or skipped."""

import asyncio
import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer
from sparrowmq.net.errors import NetError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers.offsets import OffsetFound, QueryConsumerOffset
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster
from sparrowmq.testing.sim_nodes import BrokerNode
from sparrowmq.testing.wire import Refused, wire
from tests.client.lite_readers import using
from tests.client.members import Member
from tests.sim.replicated import TOPIC, follows
from tests.sim.slaves import MASTER, with_slave

QUEUES = 4
ROUNDS = 4


class Sender:
    """Sends to the master as long as it is there; `sent` is what was acknowledged."""

    def __init__(self, sim: RunningCluster) -> None:
        self.sent: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        self.is_stopping = False
        self._sim = sim
        self._address = sim.brokers[MASTER].address
        self.task = sim.host("sender").start(self._send())

    async def _send(self) -> None:
        rng, number = self._sim.rng("sender"), 0
        async with wire("sender", self._sim.clock) as connections:
            while not self.is_stopping:
                queue_id, number = rng.randrange(QUEUES), number + 1
                body = b"%d" % number
                try:
                    await connections.send(self._address, TOPIC, body, queue_id=queue_id)
                except (NetError, Refused):
                    await asyncio.sleep(0.5)
                else:
                    self.sent[queue_id].append(body)
                await asyncio.sleep(rng.random() / 20)


class Progress:
    """What the master answers about the progress of groups, which never moves back by a kill or by
    a change of roles."""

    def __init__(
        self, sim: RunningCluster, groups: Sequence[str], master: Callable[[], BrokerNode]
    ) -> None:
        self._sim = sim
        self._groups = groups
        self._master = master
        self._answered: dict[tuple[str, int], int] = {}

    def ask(self) -> None:
        """Compare with the last answers. Most questions come just before a kill, and after it."""
        for group in self._groups:
            for queue_id in range(QUEUES):
                offset = self._stored(group, queue_id)
                before = self._answered.get((group, queue_id), -1)
                assert offset >= before, f"{group}, queue {queue_id}: {before} became {offset}"
                self._answered[group, queue_id] = offset

    def _stored(self, group: str, queue_id: int) -> int:
        header = QueryConsumerOffset(
            consumer_group=group,
            topic=TOPIC,
            queue_id=queue_id,
            set_zero_if_not_found=False,
            only_looks=True,
        )
        asking = self._sim.client.call(header, address=self._master().address)
        answer = self._sim.wait(asking)
        is_found = answer.code == ResponseCode.SUCCESS
        return answer.header(OffsetFound).offset if is_found else -1


class Handled:
    """What a group, or one broadcasting member, was given, by queue."""

    def __init__(self, rng: random.Random) -> None:
        self.by_queue: dict[int, list[bytes]] = {queue_id: [] for queue_id in range(QUEUES)}
        self._rng = rng

    async def handle(self, message: MessageExt) -> None:
        self.by_queue[message.queue_id].append(message.body)
        await asyncio.sleep(self._rng.random() / 20)

    def has_all(self, sent: dict[int, list[bytes]]) -> bool:
        return all(set(bodies) <= set(self.by_queue[key]) for key, bodies in sent.items())

    def check_order(self) -> None:
        """Of an ordered member that numbers were sent to: it may have been given some again, and
        then also those after them."""
        for bodies in self.by_queue.values():
            order = [int(body) for body in bodies]
            firsts = list(dict.fromkeys(order))
            assert firsts == sorted(firsts), "a later message came before an earlier one"
            assert all(
                later <= former or firsts.index(later) == firsts.index(former) + 1
                for former, later in pairwise(order)
            ), "a message was skipped"

    async def poll(self, consumer: LitePullConsumer) -> None:
        while True:
            for message in await consumer.poll(1.0):
                await self.handle(message)


def start_members(sim: RunningCluster, tmp_path: Path) -> dict[str, Handled]:
    """Two concurrent members of one group, and a broadcasting, an ordered and a lite one."""
    handled = {
        kind: Handled(sim.rng(kind)) for kind in ("concurrent", "broadcast", "ordered", "lite")
    }
    kinds: dict[str, dict[str, Any]] = {
        "concurrent": {},
        "broadcast": {"model": MessageModel.BROADCASTING, "offsets_dir": tmp_path},
        "ordered": {"orderly": True},
    }
    for kind, options in kinds.items():
        for name in ("one", "two") if kind == "concurrent" else ("one",):
            member_of(sim, f"{kind}-{name}", kind, handled[kind], **options)
    sim.host("lite").start(using(sim, "lite", handled["lite"].poll, group="lite"))
    return handled


def member_of(
    sim: RunningCluster, name: str, group: str, handled: Handled, **options: Any
) -> Member:
    return Member(sim, handled.handle, name=name, group=group, **options)


@pytest.mark.slow
def test_members_of_every_kind_get_everything(seed: int, tmp_path: Path) -> None:
    with with_slave(queues=QUEUES, seed=seed) as sim:
        rng, master = sim.rng("kills"), sim.brokers[MASTER]
        sender, handled = Sender(sim), start_members(sim, tmp_path)
        progress = Progress(sim, ("concurrent", "ordered", "lite"), lambda: master)
        for _ in range(ROUNDS):
            for _ in range(4):
                sim.advance((5 + 15 * rng.random()) / 4)
                progress.ask()
            master.kill()
            sim.client.disconnect()
            sim.advance(25 * rng.random())
            master.start()
            progress.ask()
        sim.until(lambda: follows(sim))
        sender.is_stopping = True
        sim.wait(sender.task)
        sim.advance(60)
        progress.ask()
        for kind, got in handled.items():
            assert got.has_all(sender.sent), kind
        handled["ordered"].check_order()
