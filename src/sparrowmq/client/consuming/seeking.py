"""Going elsewhere in the queues a consumer reads: the half of lite pull that moves."""

from functools import partial
from typing import Any

from sparrowmq.client.broker_calls import max_offset, min_offset
from sparrowmq.client.consuming.harvest import Harvest
from sparrowmq.client.consuming.pulling import PullLoop
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.member_settings import StartSettings
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.protocol.message import MessageQueue


class Seeking(GroupConsumer):
    """Positions in the queues that are held; each move gives up what was pulled."""

    def __init__(
        self, group: str, subscriptions: Subscriptions, given: StartSettings, **kind: Any
    ) -> None:
        super().__init__(group, subscriptions, given, **kind)
        self._harvest = Harvest()
        self._pulls: PullLoop

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Poll goes on at an offset. Raises ValueError for one the queue does not have, or a queue
        that is not ours."""
        self._held(queue)
        self._running_here()
        low = await min_offset(self.client, queue)
        high, epoch = await max_offset(self.client, queue)
        if not low <= offset <= high:
            raise ValueError(f"offset {offset} is not in {queue}, which has {low} to {high}")
        held = self._held(queue)  # not before: it may have been given up, or taken anew
        self._harvest.move(held, offset)
        held.epoch = epoch
        # The pull that waits at the broker for the old offset is given up.
        if held.task is not None:
            held.task.cancel()
        if held.may_begin:
            held.task = self.client.keep(partial(self._pulls.run, held), f"pull {queue}")

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Poll goes on at the oldest message."""
        await self.seek(queue, (await self.offset_range(queue))[0])

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll goes on with what comes next."""
        await self.seek(queue, (await self.offset_range(queue))[1])

    async def seek_to_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> None:
        """Poll goes on at the first message stored at or after a time."""
        await self.seek(queue, await self.offset_at(queue, timestamp_ms))

    def _held(self, queue: MessageQueue) -> HeldQueue:
        held = self._running().held.get(queue)
        if held is None:
            raise ValueError(f"{queue} is not read by this consumer now: see assignment()")
        return held
