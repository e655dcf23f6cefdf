"""How long a group takes to compute its shares, and to settle after a join or a kill."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from sparrowmq.client.group.rebalance_plan import plan_rebalance
from sparrowmq.client.strategies import AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, STICKY, Strategy
from sparrowmq.protocol.message import MessageQueue
from tests.faults.churn import is_shared_out
from tests.faults.churn_group import ProcessGroup
from tests.faults.churn_member import MemberOptions
from tests.faults.churn_processes import servers
from tests.interop.handles import PushConsumer
from tests.interop.peers import Peer, start_peer

QUEUES, MEMBERS = 1000, 100
STRATEGIES: tuple[Strategy, ...] = (AVG, AVG_BY_CIRCLE, CONSISTENT_HASH, STICKY)
_GROUP_QUEUES = 16
_GROUP_MEMBERS = 4
_LONGEST_S = 60.0


def rebalance_ms(strategy: Strategy, runs: int = 20) -> float:
    """CPU of one member's round over 1,000 queues and 100 members, other members each time."""
    queues = [MessageQueue("orders", f"broker-{n % 10}", n // 10) for n in reversed(range(QUEUES))]
    took = []
    for run in range(runs):
        members = [f"10.0.{run}.{n}@{n}" for n in reversed(range(MEMBERS))]
        began_s = time.process_time()
        mine = strategy("group", members[0], sorted(queues), sorted(members))
        plan_rebalance(set(queues[:10]), set(mine), set(queues), {})
        took.append(time.process_time() - began_s)
    return median(took) * 1000


async def _settle_s(runs: int) -> tuple[float, float]:
    joins, kills = [], []
    async with servers(_GROUP_QUEUES) as running:
        group = ProcessGroup(MemberOptions(name_server=running.name_server), _GROUP_QUEUES)
        try:
            for _ in range(_GROUP_MEMBERS):
                group.join()
            await group.until(group.is_settled, _LONGEST_S)
            for _ in range(runs):
                await asyncio.sleep(2)  # a round that has just been made would delay the next
                member = group.join()
                joins.append(await group.until(group.is_settled, _LONGEST_S))
                await asyncio.sleep(2)
                del group.live[member.name]
                began_s = time.monotonic()
                await member.kill()
                await group.until(group.is_settled, _LONGEST_S)
                kills.append(time.monotonic() - began_s)
        finally:
            await group.end()
    return median(joins), median(kills)


def settle_s(runs: int) -> tuple[float, float]:
    """From the start of a member's process, and from its kill -9, until queues are shared out."""
    return asyncio.run(_settle_s(runs))


class JavaGroup:
    """Java members, each in a driver of its own, that show which queues they hold."""

    def __init__(self, folder: Path, name_server: str, topic: str) -> None:
        self._folder = folder
        self._name_server = name_server
        self._topic = topic
        self._peers: list[Peer] = []
        self._members: list[PushConsumer] = []

    def warm(self) -> Peer:
        """A driver whose JVM runs."""
        peer = start_peer("java5", self._folder / f"java-{len(self._peers)}")
        self._peers.append(peer)
        return peer

    def join(self, peer: Peer) -> None:
        """A member in a driver."""
        options = {"group": "java-group", "topic": self._topic}
        name = f"member-{len(self._members)}"
        self._members.append(PushConsumer(peer, name, self._name_server, **options))

    def kill_last(self) -> None:
        """kill -9 of the newest member's driver."""
        self._members.pop().peer.kill()

    def until_settled(self, began_s: float) -> float:
        """Seconds from then until every queue has one owner."""
        _wait(self._is_settled)
        return time.monotonic() - began_s

    def _is_settled(self) -> bool:
        held = [member.call("push_assigned") for member in self._members]
        return is_shared_out([[queue["queue_id"] for queue in one] for one in held], _GROUP_QUEUES)

    def close(self) -> None:
        """End the drivers."""
        for peer in self._peers:
            peer.kill()


def java_settle_s(folder: Path, name_server: str, topic: str) -> tuple[float, float]:
    """The same of the Java client, its JVM running already: join and kill."""
    group = JavaGroup(folder, name_server, topic)
    try:
        for _ in range(2):
            group.join(group.warm())
        group.until_settled(time.monotonic())
        peer = group.warm()
        time.sleep(2)
        began_s = time.monotonic()
        group.join(peer)
        joined_s = group.until_settled(began_s)
        time.sleep(2)
        began_s = time.monotonic()
        group.kill_last()
        return joined_s, group.until_settled(began_s)
    finally:
        group.close()


def _wait(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _LONGEST_S
    while not holds():
        if time.monotonic() > end_s:
            raise TimeoutError(f"a group of Java members did not settle in {_LONGEST_S:g} s")
        time.sleep(0.02)
