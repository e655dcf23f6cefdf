"""A member of a group in a separate process that reports its actions over a pipe.

Lines are written before anything else happens, so that a killed member has told everything:

    b 17.25 3 100 101     a handler begins, at 17.25 s, with offsets 100 and 101 of queue 3
    e 17.31 3 100 101     it is done with them
    a 17.40 0 1 2 3       the member holds these queues now

A second pipe goes the other way: when its other end is closed, the member leaves.
"""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection

from sparrowmq.client.client import client_around
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.config import ClientConfig
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.broker_requests import routes
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from tests.patience import PATIENCE_S

TOPIC, GROUP = "churn", "churners"


def patient_config(name_server: str, instance_name: str = "") -> ClientConfig:
    """Servers that do not die have the time that a busy machine needs."""
    return ClientConfig(
        name_servers=(name_server,),
        instance_name=instance_name,
        name_server_timeout_s=PATIENCE_S,
        call_timeout_s=PATIENCE_S,
        connect_timeout_s=PATIENCE_S,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """How a member consumes."""

    name_server: str
    orderly: bool = False
    batch: int = 1
    longest_call_s: float = 0.05
    planted: str = ""
    """A bug to plant: `early` commits what was only pulled, `unlocked` needs no locks."""


class ToldMember:
    """Consumes, and tells."""

    def __init__(self, name: str, options: MemberOptions, told: Connection) -> None:
        self._options = options
        self._told = told.fileno()
        self._rng = random.Random(name)
        config = patient_config(options.name_server, name)
        self._client = client_around(ClientCore(config, routes=routes))
        self._consumer = PushConsumer(
            GROUP,
            {TOPIC: "*"},
            client=self._client,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
            orderly=options.orderly,
            batch=options.batch,
            listener=self._assigned,
        )

    async def live(self, leave: Connection) -> None:
        """Until the parent closes its pipe."""
        leaving = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(leave.fileno(), leaving.set)
        await self._client.start()
        async with self._consumer:
            await self._consumer.start(self._handle)
            await leaving.wait()
            loop.remove_reader(leave.fileno())
        await self._client.stop()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        if messages[0].topic != TOPIC:
            return
        queue_id = messages[0].queue_id
        offsets = " ".join(str(message.queue_offset) for message in messages)
        self._tell(f"b {time.monotonic():.6f} {queue_id} {offsets}")
        if self._options.longest_call_s:
            await asyncio.sleep(self._rng.random() * self._options.longest_call_s)
        self._tell(f"e {time.monotonic():.6f} {queue_id} {offsets}")

    def _assigned(
        self, topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        held = " ".join(str(queue.queue_id) for queue in mine)
        self._tell(f"a {time.monotonic():.6f} {held}")

    def _tell(self, line: str) -> None:
        # One write below PIPE_BUF: whole or not at all, whenever the process is killed
        os.write(self._told, line.encode() + b"\n")


def run(name: str, options: MemberOptions, told: Connection, leave: Connection) -> None:
    """The process."""
    if options.planted:
        plant(options.planted)
    member = ToldMember(name, options, told)
    asyncio.run(member.live(leave))


def plant(bug: str) -> None:
    """Break the client of this process."""
    from sparrowmq.client.broker_calls import Position
    from sparrowmq.client.group.held_queue import HeldQueue
    from sparrowmq.client.group.queue_ownership import QueueOwnership

    async def lock_nothing(ownership: QueueOwnership, queues: list[MessageQueue]) -> None:
        """As if queues were not locked."""

    def commit_early(ownership: QueueOwnership, held: HeldQueue) -> None:
        if not held.is_dropped:
            ownership.offsets.update(held.queue, Position(held.next_offset))

    if bug == "early":
        setattr(QueueOwnership, "note_progress", commit_early)  # noqa: B010 - mypy forbids assigning
    elif bug == "unlocked":
        setattr(QueueOwnership, "lock", lock_nothing)  # noqa: B010 - mypy forbids assigning
