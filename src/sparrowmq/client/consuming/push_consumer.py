"""The push consumer: pulls for its group's share of the queues and hands messages to a handler."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Self, Unpack, overload

from sparrowmq.client.argument_checks import (
    check_flags,
    check_kind,
    check_number,
    check_time,
    check_whole,
)
from sparrowmq.client.consuming.concurrent_consumption import ConcurrentConsumption
from sparrowmq.client.consuming.handler_calls import (
    EachHandler,
    Handler,
    HandlerCalls,
    chosen_handler,
)
from sparrowmq.client.consuming.message_loop import IN_THE_BODY, MessageLoop
from sparrowmq.client.consuming.orderly_consumption import SUSPEND_S, UNLIMITED, OrderlyConsumption
from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.consuming.push_reader import PushReader, make_consumption
from sparrowmq.client.consuming.trace import ConsumerTrace
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.client.group.held_queue import pauses
from sparrowmq.client.group.member_settings import StartSettings
from sparrowmq.client.group.membership import Membership
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.handler_threads import HandlerThreads
from sparrowmq.client.hooks import HookCalls, Hooks, check_hooks
from sparrowmq.client.setting_names import checks_setting_names
from sparrowmq.client.subscriptions import Filter, Subscriptions
from sparrowmq.net.workers import Workers
from sparrowmq.protocol.connections import ConsumeDirectlyResult
from sparrowmq.protocol.heartbeat import ConsumeType
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

_CONSUME_TIMEOUT_S = 15 * 60.0

WAITS_FOR_ITSELF = (
    "stop() inside of a handler would wait for the handler itself: set an event there, and stop"
    " where that is waited for"
)

AT_ONCE_S = 1.0
"""A block that ends sooner than this after `start`, without a message, is probably a mistake."""
_ENDED_AT_ONCE = (
    "the block of the consumer of group %s ended %.2f s after start(), which does not wait, and"
    " before it handled a message: to consume until the program is stopped, call run() instead, or"
    " wait inside of the block"
)

NEEDS_BLOCK = (
    "`async for` needs `async with consumer:` around it: the end of that block decides what became"
    " of the last message, and stops the consumer"
)


@checks_setting_names
class PushConsumer(GroupConsumer):
    """Pulls messages for a consumer group and hands them to a handler.

        async with PushConsumer("billing", {"orders": "created || paid"}) as consumer:
            await consumer.run(handle)

    `handle(messages)` may be async or plain (plain functions run in threads). If it returns, the
    messages are done; if it raises, they are delivered again later. Delivery is at-least-once: a
    message may arrive twice. `run(each=handle)` takes a handler of single messages. Instead of a
    handler,

        async for message in consumer:
            ...

    passes the messages to the body of a loop, one after the other.
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
        hooks: Sequence[Hooks] = (),
        trace: bool = False,
        **settings: Unpack[StartSettings],
    ) -> None:
        """One handler call gets at most `batch` messages, and at most `workers` calls run at once.
        In a BROADCASTING group, messages that fail are logged and dropped.

        `orderly` hands out one batch of a queue after the other and tries a failing one again in
        its place after `suspend_s`. `max_reconsume_times` -1 means as many retries as the group's
        setting allows (16 by default), and no limit when orderly.
        A handler that takes longer than `consume_timeout_s` has its message delivered again.

        `hooks` are called before and after every handler call. `trace` records every message and
        its outcome in RMQ_SYS_TRACE_TOPIC, for RocketMQ's tools.

        Raises ValueError for an illegal group, topic or expression.
        """
        if not subscriptions:
            raise ValueError("no subscription given, at least one topic is needed")
        for name, number in (("batch", batch), ("workers", workers), ("pull_batch", pull_batch)):
            check_whole(name, number, 1)
        check_flags(orderly=orderly, trace=trace)
        check_whole("max_reconsume_times", max_reconsume_times, UNLIMITED)
        check_time("consume_timeout_s", consume_timeout_s)
        check_number("suspend_s", suspend_s, 0)
        check_number("stop_within_s", stop_within_s, 0)
        check_kind("limits", limits or FlowLimits(), FlowLimits)
        check_hooks(hooks)
        super().__init__(
            group,
            Subscriptions(subscriptions),
            settings,
            consume_type=ConsumeType.PASSIVELY,
            is_orderly=orderly,
        )
        self._batch = batch
        self._worker_count = workers
        self._pull_batch = pull_batch
        self._limits = limits or FlowLimits()
        self._max_reconsume_times = max_reconsume_times
        self._consume_timeout_s = consume_timeout_s
        self._retry_after_s = suspend_s
        self._stop_within_s = stop_within_s
        self._threads = threads
        self._own_threads: HandlerThreads | None = None
        self._trace = ConsumerTrace(self._client, group, consume_timeout_s) if trace else None
        if self._trace is not None:
            hooks = (*hooks, self._trace)  # last: it measures the handler alone
        self._hooks = HookCalls(hooks, self._client.log) if hooks else None
        self._paused = asyncio.Event()
        self._workers: list[asyncio.Task[None]] = []
        self._are_workers_ended = False
        self._started_s = 0.0
        self._loop: MessageLoop | None = None
        self._has_block = False
        self._handling: HandlerCalls
        self._consumption: ConcurrentConsumption | OrderlyConsumption

    async def _consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        return await self._handling.try_out(message, is_orderly=self._settings.is_orderly)

    # ---- lifecycle

    @overload
    async def run(self, handler: Handler) -> None: ...

    @overload
    async def run(self, *, each: EachHandler) -> None: ...

    async def run(self, handler: Handler | None = None, *, each: EachHandler | None = None) -> None:
        """Consume until `stop`, or until the task is cancelled. Takes the handlers of `start`."""
        await self._start(chosen_handler(handler, each, self._batch), self._worker_count)
        await self.stopped()

    async def stopped(self) -> None:
        """Wait until `stop` has stopped the consumer; raises whatever else ended it."""
        await self._member.until_left()
        if self._is_started:
            await self._client.ended()
            raise self.failure or asyncio.CancelledError
        await self._until_stopped()

    @overload
    async def start(self, handler: Handler, *, wait_s: float | None = None) -> None: ...

    @overload
    async def start(self, *, each: EachHandler, wait_s: float | None = None) -> None: ...

    async def start(
        self,
        handler: Handler | None = None,
        *,
        each: EachHandler | None = None,
        wait_s: float | None = None,
    ) -> None:
        """Start consuming in the background, with a handler of batches, or with `each`, a handler
        of single messages. Raises BrokerRefused if a broker rejects a subscription, ValueError for
        an unusable handler and for a client id or subscription that conflicts with the group.

        With `wait_s`, waits up to that long for a name server and raises NoNameServer if none
        answers. Without, starts at once, and if no name server answers, logs a warning and begins
        to consume when one does."""
        chosen = chosen_handler(handler, each, self._batch)
        await self._start(chosen, self._worker_count, wait_s)

    async def _start(self, handler: Handler, workers: int, wait_s: float | None = None) -> None:
        with self._starting:
            await self._open()
            await self._reach(wait_s)
            await self._join(partial(self._make_parts, handler))
            if self._trace is not None:
                self._trace.outbox.start()
            loops = [self._consumption.work] * workers
            if isinstance(self._consumption, ConcurrentConsumption):
                loops.append(self._consumption.watch)
            name = f"a worker of group {self.group}"
            self._workers = [
                self._client.keep(loop, name, may_end=self._may_workers_end) for loop in loops
            ]
            self._started_s = self._rates.now_s()

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """Pass messages to the body of a loop. A message is done when the loop asks for the next
        one, or when the `async with` block ends without an exception; it has failed if the block
        ends with one. Raises ValueError if a handler consumes them, and outside the block."""
        if self._loop is None:
            if self._is_started:
                raise ValueError("a handler consumes the messages: use it or `async for`, not both")
            if not self._has_block:
                raise ValueError(NEEDS_BLOCK)
            self._loop = MessageLoop(self._start_loop, self.stopped, self._end_workers)
        return self._loop.__aiter__()

    async def _start_loop(self, loop: MessageLoop) -> None:
        # One worker: messages of further workers would wait for the body until they time out
        await self._start(chosen_handler(None, loop.handle, self._batch), 1)
        self._client.tasks.create_task(self._end_with_consumer(loop), name="end of a loop")

    async def _end_with_consumer(self, loop: MessageLoop) -> None:
        try:
            await self._member.until_left()
        finally:
            loop.end()

    async def __aenter__(self) -> Self:
        self._has_block = True
        return await super().__aenter__()

    async def _close(self, error: BaseException | None) -> None:
        if self._loop is not None and not self._loop.left(error):
            self._end_workers()  # its message has neither succeeded nor failed
        took_s = self._rates.now_s() - self._started_s
        is_left_running = error is None and self._is_started and self._loop is None
        await self.stop()
        if is_left_running and took_s < AT_ONCE_S and not self._rates.has_consumed:
            self._client.log.warning(_ENDED_AT_ONCE, self.group, took_s)

    def _make_parts(self, handler: Handler) -> Membership:
        client, log = self._client, self._client.log
        threads = self._threads
        if threads is None:
            name = f"consume-{self.group}"
            threads = self._own_threads = HandlerThreads(self._worker_count, name)
        self._handling = HandlerCalls(
            self.group, handler, threads, self._subscriptions, self._rates, log, self._hooks
        )
        ownership = QueueOwnership(client, self._settings)
        self._consumption = make_consumption(
            client,
            self._settings,
            self._handling,
            ownership,
            self._rate_limit,
            batch=self._batch,
            max_reconsume_times=self._max_reconsume_times,
            timeout_s=self._consume_timeout_s,
            suspend_s=self._retry_after_s,
        )
        reader = PushReader(
            client,
            self._settings,
            self._subscriptions,
            ownership,
            self._consumption,
            self._rates,
            self._rate_limit,
            limits=self._limits,
            pull_batch=self._pull_batch,
            paused=self._paused,
        )
        member = Membership(
            client, self._settings, self._subscriptions, ownership, reader, self._rate_limit
        )
        member.workers = self._worker_count
        return member

    async def stop(self) -> None:
        """Let running handlers finish (within a deadline), commit, unregister. What they finish in
        time is not delivered again.

        Raises RuntimeError inside a handler, since it would have to wait for that handler."""
        if asyncio.current_task() in self._workers:
            raise RuntimeError(WAITS_FOR_ITSELF)
        if self._loop is not None and self._loop.is_in_body:
            raise RuntimeError(IN_THE_BODY)
        await self._starting.until_none()
        if self._loop is not None and self._loop.has_waiting:
            self._end_workers()  # no body takes the waiting messages: the next owner gets them
        is_running = self._is_started
        try:
            await self._leave(self._stop_within_s, self._abandon)
        finally:
            if is_running:
                self._end_workers()
                if self._own_threads is not None:
                    self._own_threads.abandon()  # do not wait for handlers past the deadline

    async def _end_trace(self) -> None:
        if self._trace is not None:
            await self._trace.outbox.stop()

    def _abandon(self) -> None:
        if self._stop_within_s:  # with a deadline of 0 this is expected
            self._client.log.warning(
                "handlers of %s did not end within %g s: their messages come again; async ones are"
                " cancelled, a plain one continues until it returns or the process ends",
                self.group,
                self._stop_within_s,
            )
        self._end_workers()

    def _may_workers_end(self) -> bool:
        """Whether something other than a handler may have cancelled the workers."""
        return self._are_workers_ended or self._client.is_ending

    def _end_workers(self) -> None:
        self._are_workers_ended = True
        for task in self._workers:
            task.cancel()

    # ---- while it runs

    def pause(self) -> None:
        """Stop pulling until `resume`; messages already pulled are still handled."""
        self._paused.set()

    def resume(self) -> None:
        """Continue pulling after `pause`."""
        self._paused.clear()
        if self._is_started:
            self._member.wake()

    async def subscribe(self, topic: str, choice: Filter = "*") -> None:
        """Add a topic, or change the filter of one that is subscribed. Raises ValueError."""
        self._subscriptions.add(topic, choice, self._client.clock())
        await self._subscriptions_changed()

    async def unsubscribe(self, topic: str) -> None:
        """Stop consuming a topic; its queues are handed over."""
        self._subscriptions.remove(topic)
        await self._subscriptions_changed()

    def waits(self) -> dict[MessageQueue, str]:
        """Queues that are not being pulled now, each with the reason. Raises NotStarted."""
        return pauses(self._running().held.values())


def is_in_handler(consumer: PushConsumer) -> bool:
    """Whether the caller is a plain handler of this consumer, in its thread. For the blocking
    consumer, whose `stop` would have to wait for it."""
    return consumer._own_threads is not None and consumer._own_threads.is_here
