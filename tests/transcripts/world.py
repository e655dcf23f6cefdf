"""A small world that a transcript's commands act on: a cluster, a topic, members of one group.

> start c0 orderly        a member; or `broadcasting`, `listening`, `failing` (its strategy)
> slow c0 2               from now on its handler takes 2 s
> send 3                  messages to the topic, one queue after the other
> queues 6                the topic gets so many queues
> silence c0 1            the pull loop of its queue 1 ends, as if it had died
> pause c0 / resume c0 / unsubscribe c0 / stop c0 / kill c0
> advance 1.5             seconds pass
> held / handled          who holds what, who handled what

What members log about a rebalance stands below the command, with the virtual time.
"""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from sparrowmq.client.client import client_around
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.client.group.group_consumer import membership_of
from sparrowmq.client.members import ProcessConsumers
from sparrowmq.client.session_keepalive import KeepaliveInLoop
from sparrowmq.client.strategies import AVG, Strategy
from sparrowmq.net.workers import InlineWorkers
from sparrowmq.protocol.headers.topics import CreateTopic
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.testing.sim_cluster import RunningCluster

TOPIC = "orders"
GROUP = "billing"


class Told(logging.Handler):
    """Collects what members log, with the virtual time."""

    def __init__(self, sim: RunningCluster) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.began_s = 0.0
        self._sim = sim

    def emit(self, record: logging.LogRecord) -> None:
        name = record.name.split(".")[1]
        text = record.getMessage().removeprefix(f"{GROUP}: ")
        self.lines.append(f"{self._sim.now_s - self.began_s:9.3f} {name}  {text}")


def _fail(*_: object) -> NoReturn:
    raise ValueError("no idea")


class Actor:
    """A member of the group."""

    def __init__(self, world: "World", name: str, options: Sequence[str]) -> None:
        self.name = name
        self.slow_s = 0.0
        self.handled: list[bytes] = []
        self._world = world
        self._options = options
        self._leaving = asyncio.Event()
        self.consumer: PushConsumer
        self.task = world.sim.host(name).start(self._live(), name=name)

    async def _live(self) -> None:
        sim = self._world.sim
        log = logging.getLogger(f"transcript.{self.name}")
        log.propagate = False
        log.setLevel(logging.ERROR)
        steps = log.getChild("rebalance")
        steps.setLevel(logging.DEBUG)
        steps.handlers = [self._world.told]
        config = ClientConfig(
            name_servers=sim.name_server_addresses,
            client_ip=sim.host(self.name).ip,
            instance_name=self.name,
        )
        client = client_around(
            ClientCore(
                config,
                routes=routes,
                clock=sim.clock,
                rng=sim.rng(self.name),
                log=log,
                pid=1,
                keepalive_from=KeepaliveInLoop(),
                process_consumers=ProcessConsumers(),
            )
        )
        await client.start()
        is_broadcasting = "broadcasting" in self._options
        self.consumer = PushConsumer(
            GROUP,
            {TOPIC: "*"},
            client=client,
            orderly="orderly" in self._options,
            model=MessageModel.BROADCASTING if is_broadcasting else MessageModel.CLUSTERING,
            offsets_dir=self._world.directory,
            strategy=Strategy("FAILING", _fail) if "failing" in self._options else AVG,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            listener=self._listen if "listening" in self._options else None,
            threads=InlineWorkers(),
        )
        async with self.consumer:
            await self.consumer.start(self._handle)
            await self._leaving.wait()
        await client.stop()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        if self.slow_s:
            await asyncio.sleep(self.slow_s)
        self.handled += [message.body for message in messages]

    def _listen(
        self, topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        log = logging.getLogger(f"transcript.{self.name}.rebalance")
        log.debug("listener: %s has %d queues, ours: %s", topic, len(queues), ids(mine))

    def leave(self) -> None:
        """Stop in order."""
        self._leaving.set()


def ids(queues: Sequence[MessageQueue]) -> str:
    return " ".join(str(queue.queue_id) for queue in queues) or "none"


class World:
    """Carries commands out."""

    def __init__(self, sim: RunningCluster, directory: Path) -> None:
        self.sim = sim
        self.directory = directory
        self.told = Told(sim)
        self._actors: dict[str, Actor] = {}
        self._sent = 0

    def do(self, command: str) -> list[str]:
        """The lines that a command brings about."""
        verb, *words = command.split()
        getattr(self, f"_{verb}")(*words)
        lines, self.told.lines = self.told.lines, []
        return lines

    def _topic(self, queues: str) -> None:
        self._queues(queues)
        self.sim.advance(1)
        self.told.began_s = self.sim.now_s

    def _queues(self, queues: str) -> None:
        count = int(queues)
        header = CreateTopic(topic=TOPIC, read_queue_nums=count, write_queue_nums=count, perm=6)
        for node in self.sim.brokers.values():
            self.sim.wait(self.sim.client.call(header, address=node.address))

    def _start(self, name: str, *options: str) -> None:
        self._actors[name] = Actor(self, name, options)

    def _slow(self, name: str, seconds: str) -> None:
        self._actors[name].slow_s = float(seconds)

    def _send(self, count: str) -> None:
        for number in range(int(count)):
            body = f"{self._sent}".encode()
            self.sim.wait(self.sim.client.send(TOPIC, body, queue_id=number))
            self._sent += 1

    def _silence(self, name: str, queue_id: str) -> None:
        for held in membership_of(self._actors[name].consumer).held.values():
            if held.queue.topic == TOPIC and held.queue.queue_id == int(queue_id):
                assert held.task is not None
                held.task.cancel()

    def _pause(self, name: str) -> None:
        self._actors[name].consumer.pause()

    def _resume(self, name: str) -> None:
        self._actors[name].consumer.resume()

    def _unsubscribe(self, name: str) -> None:
        actor = self._actors[name]
        self.sim.run(actor.consumer.unsubscribe(TOPIC), on=self.sim.host(name))

    def _stop(self, name: str) -> None:
        self._actors.pop(name).leave()

    def _kill(self, name: str) -> None:
        del self._actors[name]
        self.sim.host(name).kill()

    def _advance(self, seconds: str) -> None:
        self.sim.advance(float(seconds))

    def _held(self) -> None:
        for name, actor in sorted(self._actors.items()):
            mine = [queue for queue in actor.consumer.assignment() if queue.topic == TOPIC]
            self.told.lines.append(f"{name} holds {ids(mine)}")

    def _handled(self) -> None:
        for name, actor in sorted(self._actors.items()):
            bodies = " ".join(body.decode() for body in actor.handled)
            self.told.lines.append(f"{name} handled {bodies or 'nothing'}")
