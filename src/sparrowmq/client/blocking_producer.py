"""Producers for programs without asyncio; see `blocking`."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from sparrowmq.client.background_loop import BackgroundLoop, loop_of_process
from sparrowmq.client.errors import NotStarted
from sparrowmq.client.producer import Producer as AsyncProducer
from sparrowmq.client.producer import SendSettings
from sparrowmq.client.queue_choice import Selector
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.transaction import TransactionListener, TransactionResult
from sparrowmq.client.transactional_producer import (
    TransactionalProducer as AsyncTransactionalProducer,
)
from sparrowmq.protocol.message import Message, MessageQueue
from sparrowmq.protocol.message_ext import MessageExt

P = TypeVar("P", bound=AsyncProducer)


class _Blocking(Generic[P]):
    """Everything a producer can do, each call waiting for the background loop."""

    def __init__(self, make: Callable[[], P]) -> None:
        make()  # so that wrong settings are refused here
        self._make = make
        self._producer: P | None = None
        self._loop: BackgroundLoop | None = None

    def start(self) -> None:
        """Begin; `with` does it."""
        with loop_of_process.lock:
            loop = loop_of_process.get()
            self._producer = loop.run(_started(self._make))
            self._loop = loop  # last: threads that see it take the producer as well

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

    def _running(self) -> tuple[BackgroundLoop, P]:
        if self._producer is None or self._loop is None:
            raise NotStarted("the producer is not running: use `with`, or start() it")
        if self._loop.pid != os.getpid():
            with loop_of_process.lock:
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

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
    ) -> None:
        """As `sparrowmq.Producer.send_oneway`."""
        loop, producer = self._running()
        loop.run(producer.send_oneway(message, queue=queue, key=key, selector=selector))

    def request(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        key: str | None = None,
        selector: Selector | None = None,
        timeout_s: float | None = None,
    ) -> MessageExt:
        """As `sparrowmq.Producer.request`."""
        loop, producer = self._running()
        return loop.run(
            producer.request(message, queue=queue, key=key, selector=selector, timeout_s=timeout_s)
        )

    def reply(
        self, request: MessageExt, body: bytes, *, timeout_s: float | None = None
    ) -> SendResult:
        """As `sparrowmq.Producer.reply`."""
        loop, producer = self._running()
        return loop.run(producer.reply(request, body, timeout_s=timeout_s))

    def recall(self, recall_handle: str, *, timeout_s: float | None = None) -> str:
        """As `sparrowmq.Producer.recall`."""
        loop, producer = self._running()
        return loop.run(producer.recall(recall_handle, timeout_s=timeout_s))

    def queues(self, topic: str) -> list[MessageQueue]:
        """As `sparrowmq.Producer.queues`."""
        loop, producer = self._running()
        return loop.run(producer.queues(topic))


class Producer(_Blocking[AsyncProducer]):
    """A blocking `sparrowmq.Producer`; takes the same settings."""

    def __init__(self, group: str, **settings: Unpack[SendSettings]) -> None:
        super().__init__(partial(AsyncProducer, group, **settings))


class TransactionalProducer(_Blocking[AsyncTransactionalProducer]):
    """A blocking `sparrowmq.TransactionalProducer`. The listener's functions run in threads."""

    def __init__(
        self, group: str, listener: TransactionListener, **settings: Unpack[SendSettings]
    ) -> None:
        super().__init__(partial(AsyncTransactionalProducer, group, listener, **settings))

    def send_in_transaction(
        self, message: Message, argument: Any = None, *, timeout_s: float | None = None
    ) -> TransactionResult:
        """As `sparrowmq.TransactionalProducer.send_in_transaction`."""
        loop, producer = self._running()
        return loop.run(producer.send_in_transaction(message, argument, timeout_s=timeout_s))


async def _started(make: Callable[[], P]) -> P:
    producer = make()
    await producer.start()
    return producer
