"""Producers and consumers for programs without asyncio: the same code behind plain functions.

    from sparrowmq.blocking import Producer
    with Producer("orders-svc") as producer:
        producer.send(Message("orders", b"…"))

Usable from several threads, and after a fork (gunicorn, multiprocessing): a child that goes on with
an object of its parent gets connections and a client id of its own.
"""

import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from sparrowmq.client.background_loop import BackgroundLoop, LoopOfProcess
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.handling import Handler
from sparrowmq.client.producer import Producer as AsyncProducer
from sparrowmq.client.push_consumer import PushConsumer as AsyncPushConsumer
from sparrowmq.client.queue_choice import Selector
from sparrowmq.client.send_result import SendResult
from sparrowmq.protocol.message import Message, MessageQueue

_loops = LoopOfProcess()


class Producer:
    """A blocking `sparrowmq.Producer`; takes the same settings."""

    def __init__(self, group: str, **settings: Any) -> None:
        self._make = partial(AsyncProducer, group, **settings)
        self._make()  # so that wrong settings are refused here
        self._producer: AsyncProducer | None = None
        self._loop: BackgroundLoop | None = None

    def start(self) -> None:
        """Begin; `with` does it."""
        self._loop = _loops.get()
        self._producer = self._loop.run(_started(self._make))

    def stop(self) -> None:
        """Say goodbye; `with` does it."""
        producer, self._producer = self._producer, None
        if producer is not None and self._loop is not None and self._loop.pid == os.getpid():
            self._loop.run(producer.stop())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _running(self) -> tuple[BackgroundLoop, AsyncProducer]:
        if self._producer is None or self._loop is None:
            raise NotStarted("the producer is not running: use `with`, or start() it")
        if self._loop.pid != os.getpid():
            self.start()  # forked: the parent's connections are the parent's
        return self._loop, self._producer

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """As `sparrowmq.Producer.send`."""
        loop, producer = self._running()
        return loop.run(
            producer.send(message, queue=queue, key=key, selector=selector, timeout_s=timeout_s)
        )

    def send_batch(
        self, messages: Sequence[Message], *, timeout_s: float | None = None
    ) -> list[SendResult]:
        """As `sparrowmq.Producer.send_batch`."""
        loop, producer = self._running()
        return loop.run(producer.send_batch(messages, timeout_s=timeout_s))

    def send_oneway(self, message: Message, *, key: str | None = None) -> None:
        """As `sparrowmq.Producer.send_oneway`."""
        loop, producer = self._running()
        loop.run(producer.send_oneway(message, key=key))

    def queues(self, topic: str) -> list[MessageQueue]:
        """As `sparrowmq.Producer.queues`."""
        loop, producer = self._running()
        return loop.run(producer.queues(topic))


class PushConsumer:
    """A blocking `sparrowmq.PushConsumer`; takes the same settings. Handlers run in threads."""

    def __init__(self, group: str, subscriptions: Mapping[str, str], **settings: Any) -> None:
        self._make = partial(AsyncPushConsumer, group, subscriptions, **settings)
        self._make()
        self._consumer: AsyncPushConsumer | None = None
        self._loop: BackgroundLoop | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, handler: Handler) -> None:
        """Consume in the background."""
        self._loop = _loops.get()
        self._consumer = self._loop.run(_consuming(self._make, handler))

    def run(self, handler: Handler) -> None:
        """Consume until Ctrl-C, or until another thread calls `stop`."""
        self.start(handler)
        loop, consumer = self._running()
        loop.run(consumer.stopped())

    def stop(self) -> None:
        """Finish what is in work, commit, leave the group."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None and self._loop is not None and self._loop.pid == os.getpid():
            self._loop.run(consumer.stop())

    def pause(self) -> None:
        """Pull nothing more until `resume`."""
        self._running()[1].pause()

    def resume(self) -> None:
        """Go on after `pause`."""
        loop, consumer = self._running()
        loop.call(consumer.resume)

    def assignment(self) -> list[MessageQueue]:
        """The queues this member holds now."""
        return self._running()[1].assignment()

    def _running(self) -> tuple[BackgroundLoop, AsyncPushConsumer]:
        if self._consumer is None or self._loop is None or self._loop.pid != os.getpid():
            raise NotStarted("the consumer is not running in this process: run() or start() it")
        return self._loop, self._consumer


async def _started(make: partial[AsyncProducer]) -> AsyncProducer:
    producer = make()
    await producer.start()
    return producer


async def _consuming(make: partial[AsyncPushConsumer], handler: Handler) -> AsyncPushConsumer:
    consumer = make()
    await consumer.__aenter__()
    await consumer.start(handler)
    return consumer
