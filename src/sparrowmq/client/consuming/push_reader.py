"""How messages pass through a push consumer: pulled with flow control, then handed to workers."""

import asyncio
from functools import partial

from sparrowmq.client.broker_calls import Position
from sparrowmq.client.client_core import ClientCore
from sparrowmq.client.consuming.concurrent_consumption import ConcurrentConsumption
from sparrowmq.client.consuming.handler_calls import HandlerCalls
from sparrowmq.client.consuming.orderly_consumption import UNLIMITED, OrderlyConsumption
from sparrowmq.client.consuming.pull_loop import FlowLimits, PullLoop, reason_to_wait, shared_out
from sparrowmq.client.consuming.send_back import GivingBack
from sparrowmq.client.group.held_queue import HeldQueue
from sparrowmq.client.group.member_settings import MemberSettings
from sparrowmq.client.group.queue_handover import PullTask, QueueReader
from sparrowmq.client.group.queue_ownership import QueueOwnership
from sparrowmq.client.group.rate_limit import RateLimit
from sparrowmq.client.group.running_info import ConsumeRates
from sparrowmq.client.subscriptions import Subscriptions
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.subscription import SubscriptionData

_PULL_TIMEOUT_S = 30.0
_SUSPEND_S = 15.0


class PushReader(QueueReader):
    """Pulls the queues of a push consumer and hands what was pulled to its workers."""

    def __init__(
        self,
        client: ClientCore,
        settings: MemberSettings,
        subscriptions: Subscriptions,
        ownership: QueueOwnership,
        workers: ConcurrentConsumption | OrderlyConsumption,
        rates: ConsumeRates,
        rate_limit: RateLimit,
        *,
        limits: FlowLimits,
        pull_batch: int,
        paused: asyncio.Event,
    ) -> None:
        """Nothing is pulled while `paused` is set."""
        self._settings = settings
        self._subscriptions = subscriptions
        self._ownership = ownership
        self._workers = workers
        self._limits = limits
        self.shared_limits = limits
        """How much of one queue may wait, given the number of queues held now."""
        self._rate_limit = rate_limit
        self._paused = paused
        self._pulls = PullLoop(
            client,
            settings.group,
            ownership,
            self,
            rates,
            pull_batch=pull_batch,
            suspend_s=_SUSPEND_S,
            call_timeout_s=_PULL_TIMEOUT_S,
        )

    # ---- as the reader of queues

    def pull_task(self, held: HeldQueue) -> PullTask:
        """Pull while the queue is held."""
        return partial(self._pulls.run, held)

    def assignment_changed(self) -> None:
        """Divide the topic limits among the queues held now."""
        self.shared_limits = shared_out(self._limits, len(self._ownership.held))

    # ---- as the target of pulls

    def subscription(self, topic: str) -> SubscriptionData | None:
        """The subscription of a topic."""
        return self._subscriptions.get(topic)

    def committed(self, held: HeldQueue) -> int:
        """Our progress if it certainly counts, else -1."""
        if self._settings.is_broadcasting or not self._ownership.is_sure(held):
            return -1
        return self._ownership.offsets.get(held.queue)

    def paused(self, held: HeldQueue) -> str:
        """Why not to pull: the application paused the whole consumer, or an ordered queue has no
        master."""
        if self._paused.is_set():
            return "the consumer is paused"
        return self._ownership.waits_for_master(held)

    def reason_to_wait(self, held: HeldQueue) -> str:
        """Flow control: whether too much is waiting for handlers, or for the rate limit."""
        is_orderly = self._settings.is_orderly
        reason = reason_to_wait(held.process_queue, self.shared_limits, is_orderly=is_orderly)
        limited = self._rate_limit.reason if reason else ""
        return f"{limited}; {reason}" if limited else reason

    def arrived(self, held: HeldQueue, messages: list[MessageExt]) -> None:
        """Hand messages to workers. Progress moves even if all of them were filtered out."""
        held.process_queue.put(messages)
        self._workers.submit(held, messages)
        self._ownership.note_progress(held)

    def moved(self, held: HeldQueue, offset: int) -> None:
        """Forget what was pulled: the queue continues at another offset."""
        held.process_queue.clear()
        held.next_offset = offset
        position = Position(offset, held.epoch)
        self._ownership.offsets.update(held.queue, position, may_lower=True)


def make_consumption(
    client: ClientCore,
    settings: MemberSettings,
    handling: HandlerCalls,
    ownership: QueueOwnership,
    rate_limit: RateLimit,
    *,
    batch: int,
    max_reconsume_times: int,
    timeout_s: float,
    suspend_s: float,
) -> ConcurrentConsumption | OrderlyConsumption:
    """What hands messages to the handler: side by side, or one batch of a queue after the other.
    `max_reconsume_times` -1 means the group's retries, and no limit when orderly."""
    own_limit = None if max_reconsume_times == UNLIMITED else max_reconsume_times
    giving_back = GivingBack(client, settings.group, own_limit, client.log)
    if settings.is_orderly:
        return OrderlyConsumption(
            handling,
            giving_back,
            ownership,
            rate_limit,
            batch=batch,
            max_reconsume_times=max_reconsume_times,
            suspend_s=suspend_s,
            log=client.log,
        )
    return ConcurrentConsumption(
        handling,
        None if settings.is_broadcasting else giving_back,
        ownership,
        rate_limit,
        batch=batch,
        timeout_s=timeout_s,
        log=client.log,
    )
