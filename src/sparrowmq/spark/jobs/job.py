"""What all jobs share: their error, the steps they report, and changes to a cluster.

RocketMQError
└── JobError      the job cannot be done, or not now; the text says why and what to do
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.spark.errors import RocketMQError
from sparrowmq.spark.wire.cluster import Queue, split_name_servers


class JobError(RocketMQError):
    """A job cannot continue, and stops before it does any harm."""


@dataclass(frozen=True, slots=True)
class JobStep:
    """Progress report of a running job: a step just done."""

    name: str
    rows: int = 0
    """Messages in this step; files in a step of a compaction."""
    done: int = 0
    """Messages done in this run and earlier ones."""
    of: int | None = None
    """Messages to do in total, if known."""
    sent: int | None = None
    """How many of those done were sent, where a condition chooses them."""


OnStep: TypeAlias = Callable[[JobStep], None]


def ignore_step(step: JobStep) -> None:
    """For callers that show no progress."""


T = TypeVar("T")


class AdminOperator:
    """Changes a cluster, SparrowMQ's or Apache's, over the wire and outside of any event loop.

    Raises JobError.
    """

    def __init__(self, name_server: str) -> None:
        self._name_servers = split_name_servers(name_server)

    def _run(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        async def run() -> T:
            async with Admin(self._name_servers) as admin:
                return await work(admin)

        try:
            return asyncio.run(run())
        except AdminError as error:
            raise JobError(str(error)) from error

    def members(self, group: str) -> list[str]:
        """Client ids of a group's live members. Raises JobError if a broker cannot be asked."""

        async def work(admin: Admin) -> list[str]:
            found = await admin.members(group)
            if found.errors:
                reasons = "; ".join(map(str, found.errors))
                raise AdminError(f"not all brokers can be asked for members: {reasons}")
            return [member.client_id for member in found]

        return self._run(work)

    def create_topic(self, topic: str, queues: dict[str, int]) -> None:
        """Create a topic with this many queues on each broker."""

        async def work(admin: Admin) -> None:
            for broker, count in queues.items():
                await admin.create_topic(topic, queues=count, brokers=[broker])

        self._run(work)

    def reset(self, group: str, queue: Queue, offset: int) -> None:
        """Move a group, including its live members."""

        async def work(admin: Admin) -> None:
            place = MessageQueue(queue.topic, queue.broker_name, queue.queue_id)
            await admin.reset_offsets(group, queue.topic, {place: offset})

        self._run(work)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic everywhere."""
        self._run(lambda admin: admin.delete_topic(topic, missing_ok=True))
