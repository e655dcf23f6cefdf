"""Consumers for programs without asyncio; see `blocking`."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar, Unpack, overload

from sparrowmq.blocking.facade import Facade, GroupFacade, awaited, called, in_front_of
from sparrowmq.client.argument_checks import check_function
from sparrowmq.client.background_loop import BackgroundLoop, loop_of_process
from sparrowmq.client.consuming.handler_calls import EachHandler, Handler
from sparrowmq.client.consuming.lite_pull_consumer import LitePullConsumer as AsyncLitePullConsumer
from sparrowmq.client.consuming.pull_consumer import PullConsumer as AsyncPullConsumer
from sparrowmq.client.consuming.pull_loop import FlowLimits
from sparrowmq.client.consuming.push_consumer import WAITS_FOR_ITSELF, is_in_handler
from sparrowmq.client.consuming.push_consumer import PushConsumer as AsyncPushConsumer
from sparrowmq.client.consuming.scheduled_pull import DEFAULT_WORKERS, PullCallback, check_callbacks
from sparrowmq.client.consuming.scheduled_pull import ScheduledPull as AsyncScheduledPull
from sparrowmq.client.consuming.scheduled_pull import Turn as AsyncTurn
from sparrowmq.client.group.group_consumer import GroupConsumer
from sparrowmq.client.group.member_settings import OwnClientSettings, OwnClientStartSettings
from sparrowmq.client.handler_threads import HandlerThreads
from sparrowmq.client.hooks import Hooks
from sparrowmq.client.setting_names import takes_settings_of
from sparrowmq.client.subscriptions import Filter
from sparrowmq.protocol.message import MessageQueue

G = TypeVar("G", bound=GroupConsumer)


# ---- settings, for type checkers and editors: those of the asynchronous classes without `threads`
# and without `client`, which belongs to an event loop. A test compares the two.


class PushSettings(OwnClientStartSettings, total=False):
    """Settings of a PushConsumer; `sparrowmq.PushConsumer` documents them."""

    orderly: bool
    batch: int
    workers: int
    pull_batch: int
    limits: FlowLimits | None
    max_reconsume_times: int
    consume_timeout_s: float
    suspend_s: float
    stop_within_s: float
    hooks: Sequence[Hooks]
    trace: bool


class LitePullSettings(OwnClientStartSettings, total=False):
    """Settings of a LitePullConsumer; `sparrowmq.LitePullConsumer` documents them."""

    batch: int
    limits: FlowLimits | None
    limit_all: int
    auto_commit: bool


class ScheduledPullSettings(OwnClientSettings, total=False):
    """Settings of a ScheduledPull; `sparrowmq.ScheduledPull` documents them."""

    workers: int
    stop_within_s: float


# ---- consumers


class _Reading(GroupFacade[G]):
    """What every consumer can do."""

    assignment = called(GroupConsumer.assignment)
    queues = awaited(GroupConsumer.queues)
    offset_range = awaited(GroupConsumer.offset_range)
    offset_at = awaited(GroupConsumer.offset_at)
    limit_rate = called(GroupConsumer.limit_rate)

    @property
    def failure(self) -> BaseException | None:
        """What ended this consumer without `stop`, also logged; None while it is alive."""
        return None if self._inner is None else self._inner.failure


@takes_settings_of(AsyncPushConsumer, without=["client", "threads"])
class PushConsumer(_Reading[AsyncPushConsumer]):
    """A blocking `sparrowmq.PushConsumer`; takes the same settings. Handlers run in threads."""

    def __init__(
        self, group: str, subscriptions: Mapping[str, Filter], **settings: Unpack[PushSettings]
    ) -> None:
        super().__init__(group, partial(AsyncPushConsumer, group, subscriptions, **settings))

    def __enter__(self) -> Self:
        return self  # `start` and `run` need the handler

    @overload
    def start(self, handler: Handler, *, wait_s: float | None = None) -> None: ...

    @overload
    def start(self, *, each: EachHandler, wait_s: float | None = None) -> None: ...

    def start(
        self,
        handler: Handler | None = None,
        *,
        each: EachHandler | None = None,
        wait_s: float | None = None,
    ) -> None:
        """Consume in the background until `stop` or the end of the program, with a handler of
        batches, or with `each`, a handler of single messages. `wait_s` as in
        `sparrowmq.PushConsumer.start`."""
        self._consume(handler, each, wait_s)

    def _consume(
        self, handler: Handler | None, each: EachHandler | None, wait_s: float | None = None
    ) -> tuple[BackgroundLoop, AsyncPushConsumer]:
        async def begin(consumer: AsyncPushConsumer) -> None:
            await consumer.start(handler, each=each, wait_s=wait_s)  # type: ignore[call-overload]  # it checks

        running = self._start(begin)
        loop_of_process.works(self, f"PushConsumer of group {self.group}")
        return running

    @overload
    def run(self, handler: Handler) -> None: ...

    @overload
    def run(self, *, each: EachHandler) -> None: ...

    def run(self, handler: Handler | None = None, *, each: EachHandler | None = None) -> None:
        """Consume until Ctrl-C, or until another thread calls `stop`. Takes the handlers of
        `start`."""
        loop, consumer = self._consume(handler, each)
        loop.run(consumer.stopped())

    def stop(self) -> None:
        """Let running handlers finish (within a deadline), commit, unregister. Raises RuntimeError
        inside a handler, since it would have to wait for that handler."""
        super().stop()

    def _end(self, end: Callable[[AsyncPushConsumer], Coroutine[Any, Any, None]]) -> None:
        with loop_of_process.lock:  # a start in progress may have called the handler already
            inner = self._inner
        if inner is not None and is_in_handler(inner):
            raise RuntimeError(WAITS_FOR_ITSELF)
        loop_of_process.rests(self)
        super()._end(end)

    pause = called(AsyncPushConsumer.pause)
    resume = called(AsyncPushConsumer.resume)
    subscribe = awaited(AsyncPushConsumer.subscribe)
    unsubscribe = awaited(AsyncPushConsumer.unsubscribe)
    waits = called(AsyncPushConsumer.waits)


@takes_settings_of(AsyncLitePullConsumer, without=["client"])
class LitePullConsumer(_Reading[AsyncLitePullConsumer]):
    """A blocking `sparrowmq.LitePullConsumer`; takes the same settings. Poll from one thread."""

    def __init__(
        self,
        group: str,
        subscriptions: Mapping[str, Filter] | None = None,
        **settings: Unpack[LitePullSettings],
    ) -> None:
        super().__init__(group, partial(AsyncLitePullConsumer, group, subscriptions, **settings))

    def stop(self, *, is_consumed: bool = True) -> None:
        """Commit what was polled (with auto commit) and leave the group. What the last poll
        returned counts as consumed unless `is_consumed` is false."""
        self._end(lambda consumer: consumer.stop(is_consumed=is_consumed))

    async def _begin(self, inner: AsyncLitePullConsumer) -> None:
        await inner.start()

    def start(self, *, wait_s: float | None = None) -> None:
        """Join the group; `with` does it. `wait_s` as in the asynchronous class."""
        self._start(lambda inner: inner.start(wait_s=wait_s))

    poll = awaited(AsyncLitePullConsumer.poll)
    subscribe = awaited(AsyncLitePullConsumer.subscribe)
    unsubscribe = awaited(AsyncLitePullConsumer.unsubscribe)
    assign = awaited(AsyncLitePullConsumer.assign)
    pause = called(AsyncLitePullConsumer.pause)
    resume = called(AsyncLitePullConsumer.resume)
    seek = awaited(AsyncLitePullConsumer.seek)
    seek_to_begin = awaited(AsyncLitePullConsumer.seek_to_begin)
    seek_to_end = awaited(AsyncLitePullConsumer.seek_to_end)
    seek_to_timestamp = awaited(AsyncLitePullConsumer.seek_to_timestamp)
    position = called(AsyncLitePullConsumer.position)
    waits = called(AsyncLitePullConsumer.waits)
    commit = awaited(AsyncLitePullConsumer.commit)
    commit_later = called(AsyncLitePullConsumer.commit_later)
    committed = awaited(AsyncLitePullConsumer.committed)


@takes_settings_of(AsyncPullConsumer, without=["client"])
class PullConsumer(_Reading[AsyncPullConsumer]):
    """A blocking `sparrowmq.PullConsumer`; takes the same settings."""

    def __init__(
        self, group: str, topics: Iterable[str] = (), **settings: Unpack[OwnClientSettings]
    ) -> None:
        super().__init__(group, partial(AsyncPullConsumer, group, tuple(topics), **settings))

    async def _begin(self, inner: AsyncPullConsumer) -> None:
        await inner.start()

    def start(self, *, wait_s: float | None = None) -> None:
        """Join the group; `with` does it. `wait_s` as in the asynchronous class."""
        self._start(lambda inner: inner.start(wait_s=wait_s))

    def stop(self, within_s: float = 0.0) -> None:
        """Store progress and leave the group."""
        self._end(lambda consumer: consumer.stop(within_s))

    @classmethod
    def _in_front_of(cls, running: AsyncPullConsumer) -> Self:
        """Wrap a consumer that other code started on the background loop, and will stop."""
        return in_front_of(running, cls(running.group))

    pull = awaited(AsyncPullConsumer.pull)
    waits = called(AsyncPullConsumer.waits)
    update_offset = called(AsyncPullConsumer.update_offset)
    commit = awaited(AsyncPullConsumer.commit)
    committed = awaited(AsyncPullConsumer.committed)
    give_back = awaited(AsyncPullConsumer.give_back)


class Turn:
    """Passed to a callback: the consumer to pull with, and `next_delay_s`, which it may set."""

    __slots__ = ("consumer", "next_delay_s")

    def __init__(self, consumer: PullConsumer, next_delay_s: float) -> None:
        self.consumer = consumer
        self.next_delay_s = next_delay_s


PlainCallback = Callable[[MessageQueue, Turn], None]


@takes_settings_of(AsyncScheduledPull, without=["client"])
class ScheduledPull(Facade[AsyncScheduledPull]):
    """A blocking `sparrowmq.ScheduledPull`: callbacks are plain functions and run in threads.

    def archive(queue, turn):
        at = turn.consumer.committed(queue) or 0
        found = turn.consumer.pull(queue, at)
        ...

    with ScheduledPull("archive", {"orders": archive}):
        ...
    """

    def __init__(
        self,
        group: str,
        callbacks: Mapping[str, PlainCallback],
        **settings: Unpack[ScheduledPullSettings],
    ) -> None:
        self._group = group
        self._worker_count = settings.get("workers", DEFAULT_WORKERS)
        self._threads: HandlerThreads
        self._consumer: PullConsumer | None = None
        check_callbacks(callbacks)
        for topic, plain in callbacks.items():
            check_function(f"the callback of topic {topic}", plain)
            if inspect.iscoroutinefunction(plain):  # calling it would do nothing
                raise ValueError(
                    f"the callback of topic {topic} is async, must be a plain function;"
                    " sparrowmq.ScheduledPull takes async ones"
                )
        in_threads = {topic: self._in_thread(plain) for topic, plain in callbacks.items()}
        super().__init__(partial(AsyncScheduledPull, group, in_threads, **settings))

    async def _begin(self, inner: AsyncScheduledPull) -> None:
        await inner.start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def start(self, *, wait_s: float | None = None) -> None:
        """Join the group and start; `with` does it. `wait_s` as in the asynchronous class."""
        self._threads = HandlerThreads(self._worker_count, "scheduled-pull")
        self._start(lambda inner: inner.start(wait_s=wait_s))
        loop_of_process.works(self, f"ScheduledPull of group {self._group}")

    def stop(self) -> None:
        """Let running turns finish (within a deadline), store progress, leave the group."""
        super().stop()

    limit_rate = called(AsyncScheduledPull.limit_rate)
    waits = called(AsyncScheduledPull.waits)

    def _end(self, end: Callable[[AsyncScheduledPull], Coroutine[Any, Any, None]]) -> None:
        is_running = self._inner is not None
        loop_of_process.rests(self)
        try:
            super()._end(end)
        finally:
            if is_running:
                self._threads.abandon()  # do not wait for callbacks past the deadline

    def _in_thread(self, plain: PlainCallback) -> PullCallback:
        async def callback(queue: MessageQueue, turn: AsyncTurn) -> None:
            if self._consumer is None:
                self._consumer = PullConsumer._in_front_of(turn.consumer)
            mine = Turn(self._consumer, turn.next_delay_s)
            await self._threads.run(plain, queue, mine)
            turn.next_delay_s = mine.next_delay_s

        return callback
