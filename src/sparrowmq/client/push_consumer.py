"""The push consumer: pulls for its group's share of the queues and hands messages to a handler."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sparrowmq.client.client import Client
from sparrowmq.client.consuming import Consuming
from sparrowmq.client.flow_control import FlowLimits, reason_to_wait, shared_out
from sparrowmq.client.giving_back import GivingBack
from sparrowmq.client.group_consumer import GroupConsumer
from sparrowmq.client.handling import Handler, Handling
from sparrowmq.client.held_queue import HeldQueue
from sparrowmq.client.membership import MemberSettings, Membership, QueueListener
from sparrowmq.client.orderly import SUSPEND_S, UNLIMITED, OrderlyConsuming
from sparrowmq.client.pulling import PullLoop
from sparrowmq.client.strategies import AVG, Strategy
from sparrowmq.client.subscriptions import Filter, Subscriptions
from sparrowmq.net.workers import ThreadWorkers, Workers
from sparrowmq.protocol.connections import ConsumeDirectlyResult
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

_PULL_TIMEOUT_S = 30.0
_SUSPEND_S = 15.0
_CONSUME_TIMEOUT_S = 15 * 60.0
_MAX_RECONSUME_TIMES = 16


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
        name_servers: str | Sequence[str] = "127.0.0.1:9876",
        client: Client | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        orderly: bool = False,
        offsets_dir: Path | None = None,
        from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET,
        from_timestamp_ms: int | None = None,
        strategy: Strategy = AVG,
        batch: int = 1,
        workers: int = 20,
        pull_batch: int = 32,
        limits: FlowLimits | None = None,
        max_reconsume_times: int = UNLIMITED,
        consume_timeout_s: float = _CONSUME_TIMEOUT_S,
        suspend_s: float = SUSPEND_S,
        stop_within_s: float = 30.0,
        listener: QueueListener | None = None,
        threads: Workers | None = None,
    ) -> None:
        """`batch` messages at most go to one call of the handler, `workers` calls run at once.
        CLUSTERING shares messages among the members; BROADCASTING gives each member all of them,
        keeps progress under `offsets_dir` and drops what fails, after logging it.

        `orderly` hands out one batch of a queue after the other and tries a failing one again in
        its place after `suspend_s`. `max_reconsume_times` -1 means 16, and no limit when orderly.
        A handler that takes longer than `consume_timeout_s` has its message delivered again.

        Raises ValueError for an illegal group, topic or expression.
        """
        if not subscriptions:
            raise ValueError("no subscription given, at least one topic is needed")
        _check_positive(batch=batch, workers=workers, pull_batch=pull_batch)
        settings = MemberSettings(
            group=group,
            consume_type=ConsumeType.PASSIVELY,
            model=model,
            from_where=from_where,
            from_timestamp_ms=from_timestamp_ms,
            strategy=strategy,
            is_orderly=orderly,
            listener=listener,
            offsets_dir=offsets_dir,
        )
        super().__init__(settings, Subscriptions(subscriptions), name_servers, client)
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
        self._own_threads: ThreadWorkers | None = None
        self._is_paused = False
        self._is_overdue = False
        self._workers: list[asyncio.Task[None]] = []
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

    async def __aenter__(self) -> Self:
        if self._owns_client:
            await self.client.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    async def run(self, handler: Handler) -> None:
        """Consume until `stop`, or until the task is cancelled."""
        await self.start(handler)
        await self.stopped()

    async def stopped(self) -> None:
        """Return when `stop` has been called; raises what ended the consumer otherwise."""
        await self.member.until_left()
        if self._is_started:
            raise asyncio.CancelledError

    async def start(self, handler: Handler) -> None:
        """Begin to consume in the background. Raises BrokerRefused when a broker does not accept a
        subscription."""
        self._check_alone()
        await self._join(self._make_parts(handler))
        loops: list[Coroutine[Any, Any, None]] = [
            self._consuming.work() for _ in range(self.worker_count)
        ]
        if isinstance(self._consuming, Consuming):
            loops.append(self._consuming.watch())
        self._workers = [self.client.tasks.create_task(loop) for loop in loops]

    def _make_parts(self, handler: Handler) -> Membership:
        client, log = self.client, self.client.log
        threads = self._threads
        if threads is None:
            threads = self._own_threads = ThreadWorkers(self.worker_count, f"consume-{self.group}")
        self.handling = Handling(handler, threads, self.subscriptions, self.rates, log)
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
        self._consuming = self._orderly(member) if self.is_orderly else self._concurrent(member)
        return member

    def _concurrent(self, member: Membership) -> Consuming:
        most = self._max_reconsume_times
        times = _MAX_RECONSUME_TIMES if most == UNLIMITED else most
        broadcasting = self._settings.is_broadcasting
        return Consuming(
            self.handling,
            None if broadcasting else GivingBack(self.client, self.group, times, self.client.log),
            batch=self._batch,
            timeout_s=self._consume_timeout_s,
            held=member.held.values,
            may_work=member.may_work,
            progressed=self._progressed,
            log=self.client.log,
        )

    def _orderly(self, member: Membership) -> OrderlyConsuming:
        most = self._max_reconsume_times
        return OrderlyConsuming(
            self.handling,
            GivingBack(self.client, self.group, max(0, most), self.client.log),
            batch=self._batch,
            max_reconsume_times=most,
            suspend_s=self._retry_after_s,
            has_lock=member.has_lock,
            progressed=self._progressed,
            log=self.client.log,
        )

    async def stop(self) -> None:
        """Finish what is in work (within a deadline), commit, unregister: nothing comes twice."""
        if self._is_started:
            self._is_started = False
            await self.member.leave(self._stop_within_s, self._abandon)
            self._end_workers()
            if self._own_threads is not None and not self._is_overdue:
                # A handler that overran the deadline keeps its thread: waiting stops the loop.
                self._own_threads.close()
        if self._owns_client:
            await self.client.stop()

    def _abandon(self) -> None:
        self._is_overdue = True
        self._end_workers()

    def _end_workers(self) -> None:
        for task in self._workers:
            task.cancel()

    # ---- while it runs

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is in work goes on."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._is_paused = False
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
        """Queues that are not pulled now, with the reason."""
        held = self.member.held.values()
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
        self.member.offsets.update(held.queue, offset, may_lower=True)

    def _progressed(self, held: HeldQueue) -> None:
        queue = held.process_queue
        if not queue.is_dropped:
            self.member.offsets.update(held.queue, held.progress)


def _check_positive(**numbers: int) -> None:
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"{name} is {number}, must be 1 or more")
