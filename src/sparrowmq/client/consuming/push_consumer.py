"""The push consumer: pulls for its group's share of the queues and hands messages to a handler."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Unpack

from sparrowmq.client.argument_checks import check_kind, check_number, check_time, check_whole
from sparrowmq.client.consuming.concurrent_consumption import Consuming, GivingBack
from sparrowmq.client.consuming.handler_calls import Handler, Handling, check_handler
from sparrowmq.client.consuming.orderly_consumption import SUSPEND_S, UNLIMITED, OrderlyConsuming
from sparrowmq.client.consuming.pull_loop import FlowLimits, PullLoop, reason_to_wait, shared_out
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.member_settings import StartSettings
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.handler_threads import HandlerThreads
from sparrowmq.client.subscriptions import Filter, Subscriptions
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.connections import ConsumeDirectlyResult
from sparrowmq.protocol.heartbeat import ConsumeType
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

# Which way a push consumer's messages take: side by side, or one after the other.


_MAX_RECONSUME_TIMES = 16


def consuming(
    handling: Handling,
    member: Membership,
    *,
    batch: int,
    max_reconsume_times: int,
    timeout_s: float,
    suspend_s: float,
    progressed: Callable[[HeldQueue], None],
) -> Consuming | OrderlyConsuming:
    """Workers for a member, as its settings say. `max_reconsume_times` -1 means 16, and no limit
    when orderly."""
    settings, client = member.settings, member.client
    if settings.is_orderly:
        return OrderlyConsuming(
            handling,
            GivingBack(client, settings.group, max(0, max_reconsume_times), client.log),
            batch=batch,
            max_reconsume_times=max_reconsume_times,
            suspend_s=suspend_s,
            has_lock=member.has_lock,
            progressed=progressed,
            log=client.log,
        )
    is_default = max_reconsume_times == UNLIMITED
    times = _MAX_RECONSUME_TIMES if is_default else max_reconsume_times
    giving_back = GivingBack(client, settings.group, times, client.log)
    return Consuming(
        handling,
        None if settings.is_broadcasting else giving_back,
        batch=batch,
        timeout_s=timeout_s,
        held=member.held.values,
        may_work=member.may_work,
        progressed=progressed,
        log=client.log,
    )


_PULL_TIMEOUT_S = 30.0
_SUSPEND_S = 15.0
_CONSUME_TIMEOUT_S = 15 * 60.0

WAITS_FOR_ITSELF = (
    "stop() inside of a handler would wait for the handler itself: set an event there, and stop"
    " where that is waited for"
)


class PushConsumer(GroupConsumer):
    """Consumes for a group.

        async with PushConsumer("billing", {"orders": "created || paid"}) as consumer:
            await consumer.run(handle)

    `handle(messages)` may be async or plain (plain ones run in threads). Returning means done,
    raising means: deliver again later. At-least-once: a message may come twice.
    """

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, Filter],
        *,
        orderly: bool = False,
        batch: int = 1,
        workers: int = 20,
        pull_batch: int = 32,
        limits: FlowLimits | None = None,
        max_reconsume_times: int = UNLIMITED,
        consume_timeout_s: float = _CONSUME_TIMEOUT_S,
        suspend_s: float = SUSPEND_S,
        stop_within_s: float = 30.0,
        threads: Workers | None = None,
        **settings: Unpack[StartSettings],
    ) -> None:
        """`batch` messages at most go to one call of the handler, `workers` calls run at once.
        In a BROADCASTING group what fails is dropped, after logging it.

        `orderly` hands out one batch of a queue after the other and tries a failing one again in
        its place after `suspend_s`. `max_reconsume_times` -1 means 16, and no limit when orderly.
        A handler that takes longer than `consume_timeout_s` has its message delivered again.

        Raises ValueError for an illegal group, topic or expression.
        """
        if not subscriptions:
            raise ValueError("no subscription given, at least one topic is needed")
        for name, number in (("batch", batch), ("workers", workers), ("pull_batch", pull_batch)):
            check_whole(name, number, 1)
        check_whole("max_reconsume_times", max_reconsume_times, UNLIMITED)
        check_time("consume_timeout_s", consume_timeout_s)
        check_number("suspend_s", suspend_s, 0)
        check_number("stop_within_s", stop_within_s, 0)
        check_kind("limits", limits or FlowLimits(), FlowLimits)
        super().__init__(
            group,
            Subscriptions(subscriptions),
            settings,
            consume_type=ConsumeType.PASSIVELY,
            is_orderly=orderly,
        )
        self._batch = batch
        self.worker_count = workers
        self._pull_batch = pull_batch
        self._limits = limits or FlowLimits()
        self._shared_limits = self._limits
        self._max_reconsume_times = max_reconsume_times
        self._consume_timeout_s = consume_timeout_s
        self._retry_after_s = suspend_s
        self._stop_within_s = stop_within_s
        self._threads = threads
        self._own_threads: HandlerThreads | None = None
        self._is_paused = False
        self._workers: list[asyncio.Task[None]] = []
        self._are_workers_ended = False
        self.handling: Handling
        self._consuming: Consuming | OrderlyConsuming

    @property
    def is_orderly(self) -> bool:
        """Whether messages of a queue are handed out one batch after the other."""
        return self._settings.is_orderly

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Hand one message to the handler now; progress does not change."""
        return await self.handling.try_out(message, is_orderly=self.is_orderly)

    # ---- life

    async def run(self, handler: Handler) -> None:
        """Consume until `stop`, or until the task is cancelled."""
        await self.start(handler)
        await self.stopped()

    async def stopped(self) -> None:
        """Return when `stop` has stopped it; raises what ended the consumer otherwise."""
        await self.member.until_left()
        if self._is_started:
            await self.client.ended()
            raise self.failure or asyncio.CancelledError
        await self._stopping.until_over()

    async def start(self, handler: Handler) -> None:
        """Begin to consume in the background. Raises BrokerRefused when a broker does not accept a
        subscription, ValueError for a handler that cannot handle anything, and for a client id or
        subscription that does not fit its group."""
        check_handler(handler)
        with self._starting:
            await self._open()
            await self._join(partial(self._make_parts, handler))
            loops = [self._consuming.work] * self.worker_count
            if isinstance(self._consuming, Consuming):
                loops.append(self._consuming.watch)
            name = f"a worker of group {self.group}"
            self._workers = [
                self.client.keep(loop, name, may_end=self._may_workers_end) for loop in loops
            ]

    def _make_parts(self, handler: Handler) -> Membership:
        client, log = self.client, self.client.log
        threads = self._threads
        if threads is None:
            name = f"consume-{self.group}"
            threads = self._own_threads = HandlerThreads(self.worker_count, name)
        self.handling = Handling(self.group, handler, threads, self.subscriptions, self.rates, log)
        self._pulls = PullLoop(
            client,
            self.group,
            pull_batch=self._pull_batch,
            suspend_s=_SUSPEND_S,
            call_timeout_s=_PULL_TIMEOUT_S,
            subscription=self.subscriptions.get,
            committed=self._committed,
            reason_to_wait=self._reason_to_wait,
            paused=lambda held: "the consumer is paused" if self._is_paused else "",
            arrived=self._arrived,
            moved=self._moved,
            shortened=self._shortened,
            rates=self.rates,
            log=log,
        )
        member = Membership(
            client,
            self._settings,
            self.subscriptions,
            begin=self._pulls.run,
            assigned=self._share_limits,
        )
        self._consuming = consuming(
            self.handling,
            member,
            batch=self._batch,
            max_reconsume_times=self._max_reconsume_times,
            timeout_s=self._consume_timeout_s,
            suspend_s=self._retry_after_s,
            progressed=self._progressed,
        )
        return member

    async def stop(self) -> None:
        """Finish what is in work (within a deadline), commit, unregister: nothing comes twice.

        Raises RuntimeError inside of a handler, for which it would have to wait."""
        if asyncio.current_task() in self._workers:
            raise RuntimeError(WAITS_FOR_ITSELF)
        await self._starting.until_over()
        is_running = self._is_started
        try:
            await self._leave(self._stop_within_s, self._abandon)
        finally:
            if is_running:
                self._end_workers()
                if self._own_threads is not None:
                    self._own_threads.abandon()  # what overran the deadline is not waited for

    def _abandon(self) -> None:
        if self._stop_within_s:  # who gives no time at all expects it
            self.client.log.warning(
                "handlers of %s did not end within %g s: their messages come again; async ones are"
                " cancelled, a plain one goes on until it returns or the process ends",
                self.group,
                self._stop_within_s,
            )
        self._end_workers()

    def _may_workers_end(self) -> bool:
        """Whether somebody else than a handler can have cancelled them."""
        return self._are_workers_ended or self.client.is_ending

    def _end_workers(self) -> None:
        self._are_workers_ended = True
        for task in self._workers:
            task.cancel()

    @property
    def is_in_handler(self) -> bool:
        """Whether the caller is a plain handler of this consumer, in its thread."""
        return self._own_threads is not None and self._own_threads.is_here

    # ---- while it runs

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is in work goes on."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._is_paused = False
        if self._is_started:
            self.member.wake()

    async def subscribe(self, topic: str, choice: Filter = "*") -> None:
        """Consume another topic too, or the same one by another filter. Raises ValueError."""
        self.subscriptions.add(topic, choice, self.client.clock())
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Consume a topic no more; its queues are handed over."""
        self.subscriptions.remove(topic)
        await self._subscriptions_changed()

    def waits(self) -> dict[MessageQueue, str]:
        """Queues that are not pulled now, with the reason. Raises NotStarted."""
        held = self._running().held.values()
        return {one.queue: one.waits_for for one in held if one.waits_for}

    # ---- pulls and progress

    def _share_limits(self) -> None:
        self._shared_limits = shared_out(self._limits, len(self.member.held))

    def _reason_to_wait(self, held: HeldQueue) -> str:
        return reason_to_wait(held.process_queue, self._shared_limits, is_orderly=self.is_orderly)

    def _committed(self, held: HeldQueue) -> int:
        if self._settings.is_broadcasting or not self.member.is_sure(held):
            return -1
        return self.member.offsets.get(held.queue)

    def _arrived(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        held.process_queue.put(messages)
        self._consuming.submit(held, messages)
        self._progressed(held)

    def _moved(self, held: HeldQueue, offset: int) -> None:
        self.client.log.warning(
            "offset %d of %s is out of range, going on at %d", held.next_offset, held.queue, offset
        )
        held.process_queue.clear()
        held.next_offset = offset
        self.member.offsets.update(held.queue, offset, epoch=held.epoch, may_lower=True)

    def _shortened(self, held: HeldQueue, end: int, epoch: int | None) -> None:
        self.member.rewind(held, end, epoch)

    def _progressed(self, held: HeldQueue) -> None:
        queue = held.process_queue
        if not queue.is_dropped:
            self.member.offsets.update(held.queue, held.progress, epoch=held.epoch)
