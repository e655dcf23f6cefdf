"""Producers and consumers for programs without asyncio: the same code behind plain functions.

    from sparrowmq.blocking import Producer
    with Producer("orders-svc") as producer:
        producer.send(Message("orders", b"…"))

Usable from several threads, and after a fork (gunicorn, multiprocessing): a child that goes on with
an object of its parent gets connections and a client id of its own.
"""

import os
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

from sparrowmq.client.background_loop import BackgroundLoop, loop_of_process
from sparrowmq.client.blocking_producer import Producer, TransactionalProducer
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.handling import Handler
from sparrowmq.client.push_consumer import PushConsumer as AsyncPushConsumer
from sparrowmq.protocol.message import Message, MessageQueue

__all__ = ["Message", "Producer", "PushConsumer", "TransactionalProducer"]


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
        self._loop = loop_of_process.get()
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


async def _consuming(make: partial[AsyncPushConsumer], handler: Handler) -> AsyncPushConsumer:
    consumer = make()
    await consumer.__aenter__()
    await consumer.start(handler)
    return consumer
