"""Scheduled pull: one callback per topic, called repeatedly for each assigned queue.

async def archive(queue: MessageQueue, turn: Turn) -> None:
    at = await turn.consumer.committed(queue) or 0
    found = await turn.consumer.pull(queue, at)
    ...
    turn.consumer.update_offset(queue, found.next_offset)
    turn.next_delay_s = 0 if found.messages else 1

async with ScheduledPull("archive", {"orders": archive}):
    ...
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Unpack

from sparrowmq.client.argument_checks import MAX_INT, check_function, check_number, check_whole
from sparrowmq.client.consuming.pull_consumer import PullConsumer
from sparrowmq.client.failures import ends_caller
from sparrowmq.client.group.group_consumer import core_of_consumer, membership_of
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.member_settings import ConsumerSettings
from sparrowmq.client.lifecycle import Lifecycle
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.protocol.message import MessageQueue

DELAY_S = 0.2
"""How long a queue waits between two turns unless its callback says otherwise."""
FAILED_S = 1.0
DEFAULT_WORKERS = 20
DOUBT_S = 0.5
"""How long a queue waits if another member may own it by now."""


class Turn:
    """Passed to a callback: the consumer to pull with, and `next_delay_s`, which it may set."""

    __slots__ = ("consumer", "next_delay_s")

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        self.next_delay_s = DELAY_S


PullCallback = Callable[[MessageQueue, Turn], Awaitable[None]]


def check_callbacks(callbacks: object) -> None:
    """Raises ValueError for anything but a mapping: people forget the callback and pass topics."""
    if not isinstance(callbacks, Mapping):
        text = "must give a function for each topic, such as {'orders': archive}"
        raise ValueError(f"callbacks are {callbacks!r}, {text}")


@checks_setting_names
class ScheduledPull(Lifecycle):
    """Calls a callback repeatedly for each assigned queue, in one task per queue; tasks start and
    end as the assignment changes.

    In a broadcasting group every member has a task for every queue. An exception in a callback is
    logged, and its queue waits 1 s. A queue is handed over after the running turn has ended.
    """

    def __init__(
        self,
        group: str,
        callbacks: Mapping[str, PullCallback],
        *,
        workers: int = DEFAULT_WORKERS,
        stop_within_s: float = 30.0,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        """At most `workers` callbacks run at once. Raises ValueError for an illegal group or
        topic."""
        check_callbacks(callbacks)
        if not callbacks:
            raise ValueError("no callback given, at least one topic is needed")
        for topic, callback in callbacks.items():
            if not inspect.iscoroutinefunction(callback):
                raise ValueError(f"the callback of topic {topic} is not an async function")
        check_whole("workers", workers, 1)
        check_number("stop_within_s", stop_within_s, 0)
        super().__init__()
        self._callbacks = dict(callbacks)
        self._stop_within_s = stop_within_s
        self._free = asyncio.Semaphore(workers)
        self._tasks: dict[HeldQueue, asyncio.Task[None]] = {}
        listener = settings.get("listener")
        if listener is not None:
            check_function("listener", listener)
        self._listener = listener
        settings["listener"] = self._assigned
        self._consumer = PullConsumer(group, callbacks, **settings)
        self._worker_count = workers

    async def _open(self) -> None:
        await self.start()

    async def start(self, *, wait_s: float | None = None) -> None:
        """Join the group and start; `async with` does it. `wait_s` as in `PullConsumer.start`."""
        await self._consumer.start(wait_s=wait_s)
        membership_of(self._consumer).workers = self._worker_count

    async def stop(self) -> None:
        """Let running turns finish (within a deadline), store progress, leave the group."""
        await self._consumer.stop(self._stop_within_s)
        ended, self._tasks = self._tasks, {}
        for task in ended.values():
            task.cancel()

    def limit_rate(self, max_per_second: float | None, *, share_rate: bool = False) -> None:
        """From now on pull at most this many messages per second; None removes the limit. Raises
        ValueError."""
        self._consumer.limit_rate(max_per_second, share_rate=share_rate)

    def waits(self) -> dict[MessageQueue, str]:
        """Queues whose pulls wait for the rate limit now, each with the reason. Raises
        NotStarted."""
        return self._consumer.waits()

    def _assigned(
        self, topic: str, queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        """Start and cancel tasks as the assignment changes, then call the user's listener."""
        held = set(membership_of(self._consumer).held.values())
        for gone in set(self._tasks) - held:
            self._tasks.pop(gone).cancel()
        for new in sorted(held - set(self._tasks), key=lambda one: one.queue):
            self._tasks[new] = core_of_consumer(self._consumer).keep(
                partial(self._repeat, new),
                f"turns {new.queue}",
                may_end=partial(self._may_end, new),
            )
        if self._listener is not None:
            self._listener(topic, queues, mine)

    def _may_end(self, held: HeldQueue) -> bool:
        """Whether something other than a callback may have cancelled a queue's task."""
        return held not in self._tasks or core_of_consumer(self._consumer).is_ending

    async def _repeat(self, held: HeldQueue) -> None:
        while held.may_begin:
            async with self._free:
                delay_s = await self._turn(held)
            await asyncio.sleep(delay_s)

    async def _turn(self, held: HeldQueue) -> float:
        """Call the callback once. Returns how long the queue waits afterwards."""
        if not held.may_begin:
            return 0.0  # the queue left while all workers were busy
        if not membership_of(self._consumer).ownership.may_work(held):
            return DOUBT_S
        turn = Turn(self._consumer)
        held.work_begins()
        try:
            await self._callbacks[held.queue.topic](held.queue, turn)
            delay_s = max(0.0, turn.next_delay_s)
            check_number("turn.next_delay_s", delay_s, 0, MAX_INT)
        except BaseException as error:
            if ends_caller(error):
                raise
            group, log = self._consumer.group, core_of_consumer(self._consumer).log
            text = "callback of group %s failed for %s: %r"
            log.error(text, group, held.queue, error, exc_info=error)
            return FAILED_S
        finally:
            held.work_ends(asyncio.get_running_loop().time())
        return delay_s


def consumer_of(scheduled: ScheduledPull) -> PullConsumer:
    """The pull consumer inside a ScheduledPull, for tools and tests."""
    return scheduled._consumer
