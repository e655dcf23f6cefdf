"""The push consumer: pulls for its group's share of the queues and hands messages to a handler."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sparrowmq.client.client import Client
from sparrowmq.client.config import ClientConfig, parse_name_servers
from sparrowmq.client.consumer_calls import routes
from sparrowmq.client.consuming import Consuming, Handler
from sparrowmq.client.errors import ClientError, NotStarted
from sparrowmq.client.flow_control import FlowLimits, reason_to_wait
from sparrowmq.client.held_queue import HeldQueue
from sparrowmq.client.leases import Leases
from sparrowmq.client.local_offsets import LocalOffsets
from sparrowmq.client.offset_store import RemoteOffsets
from sparrowmq.client.pulling import PullLoop
from sparrowmq.client.rebalancing import Rebalancing
from sparrowmq.client.start_offset import start_offset
from sparrowmq.client.strategies import AVG, Strategy
from sparrowmq.net.errors import NetError
from sparrowmq.net.workers import ThreadWorkers, Workers
from sparrowmq.protocol.heartbeat import ConsumeFromWhere, ConsumerData, ConsumeType, MessageModel
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import check_group, check_topic, retry_topic
from sparrowmq.protocol.subscription import SubscriptionData

_PERSIST_S = 5.0
_PULL_TIMEOUT_S = 30.0
_SUSPEND_S = 15.0
_HALF_HOUR_MS = 30 * 60 * 1000
_HAND_OVER_S = 10.0
"""How long a queue that is given up waits for its handlers."""
_LEASE_S = 15.0
"""How long a taker waits for a release; longer than a hand-over takes."""
_RENEW_S = 20.0


class PushConsumer:
    """Consumes for a group.

        async with PushConsumer("billing", {"orders": "created || paid"}) as consumer:
            await consumer.run(handle)

    `handle(messages)` may be async or plain (plain ones run in threads). Returning means done,
    raising means: deliver again later. At-least-once: a message may come twice.
    """

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, str],
        *,
        name_servers: str | Sequence[str] = "127.0.0.1:9876",
        client: Client | None = None,
        model: MessageModel = MessageModel.CLUSTERING,
        offsets_dir: Path | None = None,
        from_where: ConsumeFromWhere = ConsumeFromWhere.LAST_OFFSET,
        from_timestamp_ms: int | None = None,
        strategy: Strategy = AVG,
        batch: int = 1,
        workers: int = 20,
        pull_batch: int = 32,
        limits: FlowLimits | None = None,
        max_reconsume_times: int = 16,
        stop_within_s: float = 30.0,
        threads: Workers | None = None,
    ) -> None:
        """`batch` messages at most go to one call of the handler, `workers` calls run at once.
        CLUSTERING shares messages among the members; BROADCASTING gives each member all of them,
        keeps progress under `offsets_dir` and drops what fails, after logging it.

        Raises ValueError for an illegal group, topic or expression.
        """
        self._group = check_group(group)
        if not subscriptions:
            raise ValueError("no subscription given, at least one topic is needed")
        self._owns_client = client is None
        servers = (
            parse_name_servers(name_servers) if isinstance(name_servers, str) else name_servers
        )
        self.client = client or Client(ClientConfig(name_servers=tuple(servers)), routes=routes)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._expressions = {check_topic(topic): text for topic, text in subscriptions.items()}
        self._model = model
        self._offsets_dir = offsets_dir or Path.home() / ".sparrowmq" / "offsets"
        self._from_where = from_where
        self._from_timestamp_ms = from_timestamp_ms
        self._strategy = strategy
        self._batch = batch
        self._worker_count = workers
        self._pull_batch = pull_batch
        self._limits = limits or FlowLimits()
        self._max_reconsume_times = max_reconsume_times
        self._stop_within_s = stop_within_s
        self._threads = threads
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._is_paused = False
        self._is_started = False
        self._loops: list[asyncio.Task[None]] = []
        self._offsets: RemoteOffsets | LocalOffsets
        self._consuming: Consuming
        self._leases: Leases
        self._asked_s: dict[MessageQueue, float] = {}
        self._rebalancing: Rebalancing
        self._pulls: PullLoop

    # ---- what the client asks its members

    @property
    def group(self) -> str:
        """The consumer group."""
        return self._group

    @property
    def _is_broadcasting(self) -> bool:
        return self._model is MessageModel.BROADCASTING

    def topics(self) -> set[str]:
        """Topics whose routes are kept fresh."""
        return set(self._subscriptions)

    def consumer_data(self) -> ConsumerData:
        """What heartbeats say."""
        return ConsumerData(
            group_name=self._group,
            consume_type=ConsumeType.PASSIVELY,
            message_model=self._model,
            consume_from_where=self._from_where,
            subscription_data_set=tuple(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        """A broker says that somebody came or went."""
        if self._is_started:
            self._rebalancing.wake()

    # ---- life

    async def __aenter__(self) -> Self:
        if self._owns_client:
            await self.client.start()
        now_ms = self.client.clock()
        topics = dict(self._expressions)
        if not self._is_broadcasting:
            topics[retry_topic(self._group)] = "*"
        self._subscriptions = {
            topic: SubscriptionData.build(topic, expression, version=now_ms)
            for topic, expression in topics.items()
        }
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
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._loops)
        if self._is_started:
            raise asyncio.CancelledError

    async def start(self, handler: Handler) -> None:
        """Begin to consume in the background."""
        if self._group in self.client.consumers:
            raise ValueError(f"this client has a consumer of group {self._group} already")
        log, client = self.client.log, self.client
        threads = self._threads or ThreadWorkers(self._worker_count, f"consume-{self._group}")
        self._threads = threads
        self._offsets = (
            LocalOffsets(self._offsets_dir, client.client_id, self._group, log)
            if self._is_broadcasting
            else RemoteOffsets(client, self._group, log)
        )
        self._leases = Leases(client, self._group, log)
        self._consuming = Consuming(
            client,
            self._group,
            handler,
            threads,
            batch=self._batch,
            max_reconsume_times=self._max_reconsume_times,
            progressed=self._progressed,
            gives_back=not self._is_broadcasting,
            log=log,
        )
        self._pulls = PullLoop(
            client,
            self._group,
            pull_batch=self._pull_batch,
            suspend_s=_SUSPEND_S,
            call_timeout_s=_PULL_TIMEOUT_S,
            subscription=self._subscriptions.get,
            committed=lambda held: -1 if self._is_broadcasting else self._offsets.get(held.queue),
            reason_to_wait=lambda held: reason_to_wait(held.process_queue, self._limits),
            is_paused=lambda: self._is_paused,
            arrived=self._arrived,
            moved=self._moved,
            log=log,
        )
        self._rebalancing = Rebalancing(
            client,
            self._group,
            self._strategy,
            is_broadcasting=self._is_broadcasting,
            topics=self._subscriptions.keys,
            held=lambda: set(self._held),
            drop=self._give_up,
            take=self._take,
            changed=self._assignment_changed,
            log=log,
        )
        client.consumers[self._group] = self
        self._is_started = True
        for topic in sorted(self._subscriptions):
            with contextlib.suppress(ClientError):
                await client.route_table.refresh(topic)
        await client.heartbeat_everywhere()
        client.route_table.changed.append(self._route_changed)
        workers = [self._consuming.work() for _ in range(self._worker_count)]
        loops = [self._rebalancing.run(), self._persist_offsets(), *workers]
        if not self._is_broadcasting:
            loops.append(self._renew_leases())
        self._loops = [client.tasks.create_task(loop) for loop in loops]

    def pause(self) -> None:
        """Pull nothing more until `resume`; what is in work goes on."""
        self._is_paused = True

    def resume(self) -> None:
        """Go on after `pause`."""
        self._is_paused = False
        self._rebalancing.wake()

    async def stop(self) -> None:
        """Finish what is in work (within a deadline), commit, unregister: nothing comes twice."""
        if self._is_started:
            self._is_started = False
            rebalancing = self._loops[0]
            rebalancing.cancel()
            for held in self._held.values():
                held.stop_pulling()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._stop_within_s):
                    await self._consuming.idle()
            for held in self._held.values():
                held.drop()
            await self._offsets.persist(list(self._held))
            if not self._is_broadcasting:
                await self._leases.give_back(list(self._held))
            for task in self._loops:
                task.cancel()
            self.client.consumers.pop(self._group, None)
            self.client.route_table.changed.remove(self._route_changed)
            await self.client.unregister(consumer_group=self._group)
            self._held.clear()
            if self._threads is not None:
                self._threads.close()
        if self._owns_client:
            await self.client.stop()

    def assignment(self) -> list[MessageQueue]:
        """The queues this member holds now. Raises NotStarted."""
        if not self._is_started:
            raise NotStarted("the consumer is not running: call run() or start()")
        return sorted(self._held)

    def waits(self) -> dict[MessageQueue, str]:
        """Queues that are not pulled now, with the reason."""
        return {held.queue: held.waits_for for held in self._held.values() if held.waits_for}

    # ---- pulls and progress

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
        self._offsets.update(held.queue, offset, may_lower=True)

    def _progressed(self, held: HeldQueue) -> None:
        queue = held.process_queue
        if not queue.is_dropped:
            self._offsets.update(held.queue, queue.progress if len(queue) else held.next_offset)

    async def _persist_offsets(self) -> None:
        while True:
            await asyncio.sleep(_PERSIST_S)
            await self._offsets.persist(list(self._held))

    # ---- assignment

    def _route_changed(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._rebalancing.wake()

    async def _give_up(self, queue: MessageQueue) -> bool:
        """Drain, commit, release: the next owner begins where this one ended."""
        held = self._held.get(queue)
        if held is None:
            return True
        await self._drain(held, _HAND_OVER_S)
        held.drop()
        await self._offsets.persist([queue])
        self._offsets.forget(queue)
        del self._held[queue]
        if not self._is_broadcasting:
            await self._leases.give_back([queue])
        return True

    async def _drain(self, held: HeldQueue, within_s: float) -> None:
        """Pull nothing more and let handlers finish; what they do not finish comes again."""
        held.stop_pulling()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._consuming.idle(held)

    async def _has_lease(self, queue: MessageQueue) -> bool:
        """Whether the queue is free to be taken: locked for us, or waited for long enough."""
        if self._is_broadcasting or await self._leases.take([queue]):
            self._asked_s.pop(queue, None)
            return True
        now_s = asyncio.get_running_loop().time()
        if now_s - self._asked_s.setdefault(queue, now_s) < _LEASE_S:
            return False
        self.client.log.warning("%s was not released in time, taking it all the same", queue)
        del self._asked_s[queue]
        return True

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            await self._leases.take(list(self._held))

    async def _take(self, queue: MessageQueue) -> bool:
        """Start a queue; False when it is not free or its offset cannot be known now, so that it is
        never read twice at once nor from 0 by accident."""
        if not await self._has_lease(queue):
            return False
        self._offsets.forget(queue)
        default_ms = self.client.clock() - _HALF_HOUR_MS
        try:
            stored = await self._offsets.load(queue)
            offset = await start_offset(
                self.client,
                queue,
                stored,
                self._from_where,
                default_ms if self._from_timestamp_ms is None else self._from_timestamp_ms,
            )
        except (ClientError, NetError) as error:
            self.client.log.warning("%s not started: its offset is unknown: %s", queue, error)
            return False
        held = HeldQueue(queue, offset, asyncio.get_running_loop().time())
        self._held[queue] = held
        held.task = self.client.tasks.create_task(self._pulls.run(held), name=f"pull {queue}")
        return True

    async def _assignment_changed(self, topic: str, queues: list[MessageQueue]) -> None:
        now_ms = self.client.clock()
        old = self._subscriptions[topic]
        fresh = SubscriptionData.build(
            topic, old.sub_string, version=now_ms, expression_type=old.expression_type
        )
        self._subscriptions[topic] = fresh
        await self.client.heartbeat_everywhere()
