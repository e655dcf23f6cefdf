"""`sparrowmq send` and `sparrowmq consume`."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import click

from sparrowmq.cli.logs import with_log_level, without_client_warnings
from sparrowmq.cli.message_output import Form, json_of, line_of, raw_of
from sparrowmq.cli.option_types import Wait
from sparrowmq.cli.remote import name_servers_option, run_remote
from sparrowmq.cli.stop_signal import stop_signal
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.producer import Producer
from sparrowmq.client.subscriptions import Filter
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.message_ext import MessageExt

_WHERE = {
    "first": ConsumeFromWhere.FIRST_OFFSET,
    "last": ConsumeFromWhere.LAST_OFFSET,
}


@click.command()
@click.argument("topic")
@click.argument("body", required=False)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Send what is in this file; - is standard input.",
)
@click.option("--tag", metavar="TAG", help="The message's tag.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="KEY",
    help="A key to find the message by; may be repeated.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="A property; may be repeated.",
)
@click.option(
    "--sharding-key", metavar="KEY", help="Messages with the same sharding key stay in order."
)
@click.option(
    "--delay-level", type=click.IntRange(1, 18), metavar="LEVEL", help="1 is 1 s, 18 is 2 h."
)
@click.option(
    "--group",
    metavar="NAME",
    default="sparrowmq-cli",
    show_default=True,
    help="Producer group.",
)
@name_servers_option
def send(
    topic: str,
    body: str | None,
    file: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    sharding_key: str | None,
    delay_level: int | None,
    group: str,
    name_servers: str,
) -> None:
    """Send a message.

    Without BODY, or with - for it, the body is read from standard input. A body is sent byte for
    byte, whatever it holds.

    \b
    Examples:
      sparrowmq send orders "hello" --tag created --key o-1
      sparrowmq send orders "later" --delay-level 3
      sparrowmq send orders --file picture.png
      cat order.json | sparrowmq send orders -
    """
    data = _body(body, file)
    if not data:
        raise click.UsageError("the message is empty; give BODY, --file, or standard input")
    pairs = {}
    for part in properties:
        name, equals, value = part.partition("=")
        if not equals:
            raise click.UsageError(f"--property {part!r} is not NAME=VALUE")
        pairs[name] = value

    async def work() -> SendResult:
        message = Message(
            topic,
            data,
            tags=tag,
            keys=keys,
            properties=pairs,
            sharding_key=sharding_key,
            delay_level=delay_level or 0,
        )
        async with Producer(group, name_servers=name_servers) as producer:
            return await producer.send(message)

    result = run_remote(work())
    queue = result.queue
    click.echo(
        f"{result.status} {result.msg_id} {queue.broker_name} queue {queue.queue_id}"
        f" offset {result.queue_offset}"
    )
    sys.exit(0 if result.is_ok else 1)


def _body(body: str | None, file: str | None) -> bytes:
    """The bytes of a body as they are: an argument need not be text in UTF-8."""
    if body is not None and file is not None:
        raise click.UsageError("BODY and --file exclude each other")
    if file not in (None, "-"):
        return Path(file).read_bytes()
    if body is None or body == "-":
        return _standard_input()
    return os.fsencode(body)  # undoes how Python decoded the argument


def _standard_input() -> bytes:
    if sys.stdin is None:  # closed by the parent process
        return b""
    if sys.stdin.isatty():
        click.echo("the message comes from the keyboard; Ctrl-D ends it", err=True)
    return sys.stdin.buffer.read()


@click.command()
@click.argument("topic")
@click.option("--group", metavar="NAME", required=True, help="Consumer group.")
@click.option(
    "--filter",
    "expression",
    metavar="TAGS",
    default="*",
    show_default=True,
    help="Tags such as 'A || B', or * for all.",
)
@click.option(
    "--from",
    "where",
    type=click.Choice(list(_WHERE)),
    default="first",
    show_default=True,
    help="Where a group without progress starts.",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="NUMBER", help="Stop after this many messages."
)
@click.option(
    "--timeout",
    "idle_s",
    type=Wait(),
    metavar="DURATION",
    help="Stop when no message came for this long; with --count, fewer are exit code 1.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@click.option(
    "--raw",
    is_flag=True,
    help="Print only bodies, byte for byte; a line feed follows each, unless --count is 1.",
)
@with_log_level
@name_servers_option
def consume(
    topic: str,
    group: str,
    expression: str,
    where: str,
    count: int | None,
    idle_s: float | None,
    as_json: bool,
    raw: bool,
    name_servers: str,
) -> None:
    """Print messages as they arrive, until Ctrl-C, --count or --timeout.

    The group's progress is kept: the next run goes on where this one stopped. A topic that does not
    exist yet is waited for.

    \b
    Examples:
      sparrowmq consume orders --group billing
      sparrowmq consume orders --group billing --count 10 --timeout 30s
      sparrowmq consume orders --group billing --filter "created || paid" --from last
      sparrowmq consume orders --group billing --json | jq .body
      sparrowmq consume pictures --group billing --count 1 --raw > picture.png
    """
    if as_json and raw:
        raise click.UsageError("--json and --raw exclude each other")
    form = json_of if as_json else raw_of if raw else line_of
    showing = Showing(count, partial(click.echo, nl=not (raw and count == 1)), form)

    async def work() -> int:
        stopping = await stop_signal()
        consumer = showing_consumer(
            group, {topic: expression}, name_servers=name_servers, from_where=_WHERE[where]
        )
        async with consumer:
            # A consumer survives outages; a wrong address must end the command at once.
            with without_client_warnings():
                await core_of_consumer(consumer).name_servers.route(topic)
            await show(consumer, showing, stopping, idle_s=idle_s)
        return stopping.number

    try:
        number = run_remote(work(), is_long=True)
    except KeyboardInterrupt:  # Windows
        number = signal.SIGINT
    showing.raise_failure()
    if number:
        sys.exit(128 + number)
    if count is not None and showing.seen < count:
        click.echo(f"sparrowmq: {showing.seen} of {count} messages came in time", err=True)
        sys.exit(1)


def commands() -> list[click.Command]:
    """For the program."""
    return [send, consume]


# ---- messages on standard output: as many as are wanted; the others stay in their queues


class Showing:
    """Shows messages, as many as are wanted, until standard output is closed or full."""

    def __init__(
        self,
        most: int | None,
        write: Callable[[Any], None] = click.echo,
        form: Form = line_of,
    ) -> None:
        self.ended = asyncio.Event()
        self.seen = 0
        """Messages shown so far."""
        self._most = most
        self._write = write
        self._form = form
        self._arrived = asyncio.Event()
        self._failure: OSError | None = None

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        """Show messages; what is too much or cannot be shown stays for the next member."""
        for message in messages:
            if self.ended.is_set() or not self._show(message):
                await asyncio.Event().wait()  # neither done nor failed: the consumer stops

    def _show(self, message: MessageExt) -> bool:
        try:
            self._write(self._form(message))
        except OSError as error:
            self._failure = error
            self.ended.set()
            return False
        self.seen += 1
        self._arrived.set()
        if self.seen == self._most:
            self.ended.set()
        return True

    async def wait_until_idle(self, idle_s: float) -> None:
        """Until no message was shown for so long."""
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(idle_s):
                    await self._arrived.wait()
                self._arrived.clear()

    def raise_failure(self) -> None:
        """Report what was in the way; a closed pipe needs no message."""
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
    # waits is one that must never finish, so that a stop need not wait for any.
    return PushConsumer(group, subscriptions, workers=1, batch=1, stop_within_s=0.0, **settings)


async def show(
    consumer: PushConsumer,
    showing: Showing,
    stopping: asyncio.Event,
    *,
    idle_s: float | None = None,
) -> None:
    """Show messages until there are enough, none came for `idle_s`, standard output fails, or
    `stopping` is set; then stop."""
    await consumer.start(showing.handle)
    ends: list[Coroutine[Any, Any, Any]] = [stopping.wait(), showing.ended.wait()]
    if idle_s is not None:
        ends.append(showing.wait_until_idle(idle_s))
    await _first_of(*ends)
    await consumer.stop()  # on purpose: a block that merely ends right after the start is warned of


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
