"""A Python group beside the load of `replication_kills`, and what its master answers about it.

A kill undoes no progress that was answered, and what the group commits at the slave meanwhile only
adds to it. So a master that is back answers for no queue less than it did before the kill, however
short before: there is no pause in which the slave could learn what the master answered last.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message_ext import MessageExt
from tests.faults.kills import QUEUES, TOPIC
from tests.faults.raw_wire import RawClient
from tests.patience import PATIENCE_S

GROUP = "beside"
_PAUSE_S = 0.005
"""Between two questions, so that the load gets the processor."""


class GroupBeside:
    """Consumes the topic through all losses, in a thread with a loop of its own."""

    def __init__(self, name_server: str) -> None:
        self._name_server = name_server
        self._leaving = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop
        self._has_loop = Event()
        self._thread = Thread(target=self._run, name=GROUP)
        self._answered: dict[int, int] = {}
        """The last answer of a master, by queue."""
        self.compared = 0
        """How many answers of returned masters were compared with an earlier one."""

    def _run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._has_loop.set()
        async with PushConsumer(
            GROUP,
            {TOPIC: "*"},
            name_servers=self._name_server,
            from_where=ConsumeFromWhere.FIRST_OFFSET,
        ) as consumer:
            await consumer.start(self._handle)
            await self._leaving.wait()

    async def _handle(self, messages: Sequence[MessageExt]) -> None:
        """Nothing is to be done with them."""

    @contextmanager
    def running(self) -> Iterator[None]:
        """It consumes."""
        self._thread.start()
        self._has_loop.wait(PATIENCE_S)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._leaving.set)
            self._thread.join(PATIENCE_S)

    def until_caught_up(self, port: int) -> None:
        """Return when it consumes from this master, and has what is there. Raises TimeoutError."""
        limit_s = time.monotonic() + PATIENCE_S
        with RawClient(port) as client:
            while time.monotonic() < limit_s:
                head, _ = client.call(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"})
                if _progress(client, 0) == int(head.extFields["offset"]):
                    return
                time.sleep(_PAUSE_S)
        raise TimeoutError(f"the group did not consume from the master within {PATIENCE_S} s")

    @contextmanager
    def watched(self, port: int) -> Iterator[None]:
        """Note what a master answers, up to its end."""
        over = Event()
        thread = Thread(target=self._watch, args=(port, over))
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(PATIENCE_S)

    def _watch(self, port: int, over: Event) -> None:
        try:
            with RawClient(port) as client:
                while not over.is_set():
                    for queue_id in range(QUEUES):
                        offset = _progress(client, queue_id)
                        if offset >= 0:
                            self._answered[queue_id] = offset
                    time.sleep(_PAUSE_S)
        except OSError:
            return  # it was killed

    def moved_back(self, port: int) -> list[str]:
        """Queues in which a master that is back answers less than the one before it."""
        found = []
        with RawClient(port) as client:
            for queue_id, before in self._answered.items():
                self.compared += 1
                offset = _progress(client, queue_id)
                if offset < before:
                    found.append(f"progress in queue {queue_id} moved from {before} to {offset}")
        return found


def _progress(client: RawClient, queue_id: int) -> int:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": str(queue_id),
        "setZeroIfNotFound": "false",
        "sparrowOnlyLooks": "true",
    }
    head, _ = client.call(RequestCode.QUERY_CONSUMER_OFFSET, fields)
    return int(head.extFields["offset"]) if head.code == ResponseCode.SUCCESS else -1
