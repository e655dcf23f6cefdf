"""Row 12 in virtual time: two name servers die, two brokers and their clients keep working."""

import asyncio
from collections import Counter

from sparrowmq.client.errors import ClientError
from sparrowmq.client.sending.producer import Producer
from sparrowmq.protocol.message import Message
from sparrowmq.testing.sim_cluster import RunningCluster, SimCluster
from tests.faults.nameserver_outage import DOWN_S, Outage
from tests.sim.consumers import TOPIC, Member, create_topic

_QUEUES = 4
_PAUSE_S = 0.05


class Feeder:
    """Sends all the time and keeps count."""

    def __init__(self, sim: RunningCluster, outage: Outage) -> None:
        self.bodies: set[bytes] = set()
        self._sim = sim
        self._outage = outage
        self._stopping = asyncio.Event()
        self._task = sim.host("feeder").start(self._feed(), name="feeder")

    async def _feed(self) -> None:
        client = self._sim.client_on("feeder")
        await client.start()
        async with Producer("feeder", client=client) as producer:
            while not self._stopping.is_set():
                body = b"%d" % self._outage.sent
                try:
                    await producer.send(Message(TOPIC, body))
                    self.bodies.add(body)
                except ClientError as error:
                    self._outage.failed.append(str(error))
                self._outage.sent += 1
                await asyncio.sleep(_PAUSE_S)
        await client.stop()

    def stop(self) -> None:
        """Finish the last send."""
        self._stopping.set()
        self._sim.wait(self._task)


def outage_in_simulation(seed: int) -> Outage:
    """Kill all name servers for a minute, then start them again."""
    outage = Outage()
    with SimCluster(seed, name_servers=2, brokers=2).run() as sim:
        create_topic(sim, _QUEUES)
        handled: Counter[bytes] = Counter()
        for number in range(2):
            Member(sim, f"member-{number}", handled)
        feeder = Feeder(sim, outage)
        sim.advance(10)
        for node in sim.name_servers.values():
            node.kill()
        sent, consumed = len(feeder.bodies), len(handled)
        sim.advance(DOWN_S + sim.rng("down").random() * 30)
        outage.sent_while_down = len(feeder.bodies) - sent
        outage.consumed_while_down = len(handled) - consumed
        for node in sim.name_servers.values():
            node.start()
        restarted_s = sim.now_s
        sim.until(lambda: _is_whole(sim))
        outage.whole_s = sim.now_s - restarted_s
        sim.advance(10)
        feeder.stop()
        sim.advance(5)
        outage.lost = len(feeder.bodies - set(handled))
    return outage


def _is_whole(sim: RunningCluster) -> bool:
    """Whether every name server knows every broker, and that it has the topic."""
    names = set(sim.brokers)
    return all(
        set(node.server.table.topics.queues_of(TOPIC)) == names
        for node in sim.name_servers.values()
    )
