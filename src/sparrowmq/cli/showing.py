"""Messages on standard output, as many as are wanted; what was not shown stays in its queue."""

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

import click

from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.subscriptions import Filter
from sparrowmq.protocol.message_ext import MessageExt


class Showing:
    """Shows messages, as many as are wanted and for as long as somebody reads them."""

    def __init__(self, most: int | None, write: Callable[[str], None] = click.echo) -> None:
        self.ended = asyncio.Event()
        self._most = most
        self._write = write
        self._seen = 0
        self._failure: OSError | None = None

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        """Show messages; what is too much or cannot be shown stays for the next member."""
        for message in messages:
            if self.ended.is_set() or not self._show(message):
                await asyncio.Event().wait()  # neither done nor failed: the consumer stops

    def _show(self, message: MessageExt) -> bool:
        try:
            self._write(line_of(message))
        except OSError as error:
            self._failure = error
            self.ended.set()
            return False
        self._seen += 1
        if self._seen == self._most:
            self.ended.set()
        return True

    def raise_failure(self) -> None:
        """Say what was in the way; a reader that is gone needs no words."""
        if self._failure is None:
            return
        if self._failure.errno == errno.EPIPE:
            raise self._failure  # click ends the process quietly, with code 1
        click.echo(f"sparrowmq: messages cannot be written: {self._failure.strerror}", err=True)
        os._exit(1)  # an orderly exit would try to write the rest again


def showing_consumer(
    group: str, subscriptions: Mapping[str, Filter], **settings: Any
) -> PushConsumer:
    """A consumer for `show`. Raises ValueError for an illegal group, topic or filter."""
    # One message at a time, and its result is settled before anything else runs: a handler that
    # waits is one that shall never finish, so that a stop has nobody to give time to.
    return PushConsumer(group, subscriptions, workers=1, batch=1, stop_within_s=0.0, **settings)


async def show(consumer: PushConsumer, showing: Showing, stopping: asyncio.Event) -> None:
    """Show messages until there are enough, nobody reads them, or `stopping` is set."""
    await consumer.start(showing.handle)
    await _first_of(stopping.wait(), showing.ended.wait())


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()


def line_of(message: MessageExt) -> str:
    """Where a message lies, its tag and keys, its text."""
    tags = f" [{message.tags}]" if message.tags else ""
    keys = f" {' '.join(message.keys)}" if message.keys else ""
    text = message.body.decode("utf-8", "backslashreplace")
    return f"{message.broker_name}/{message.queue_id}/{message.queue_offset}{tags}{keys}: {text}"
