"""`sparrowmq consume`: print messages as a group gets them, until Ctrl-C or a number of them."""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import click

from sparrowmq.cli.commands.send import SendPace, rate_option
from sparrowmq.cli.completion import complete_groups, complete_topics
from sparrowmq.cli.logs import with_log_level, without_client_warnings
from sparrowmq.cli.message_output import Form, delivered_json_of, line_of, raw_of
from sparrowmq.cli.option_types import Moment, Wait, Whole
from sparrowmq.cli.remote import name_servers_option, run_remote
from sparrowmq.cli.stop_signal import stop_signal
from sparrowmq.client.consuming.push_consumer import PushConsumer
from sparrowmq.client.errors import counted
from sparrowmq.client.group.group_consumer import core_of_consumer
from sparrowmq.client.subscriptions import Filter
from sparrowmq.protocol.heartbeat import ConsumeFromWhere
from sparrowmq.protocol.message_ext import MessageExt

_WHERE = {
    "first": ConsumeFromWhere.FIRST_OFFSET,
    "last": ConsumeFromWhere.LAST_OFFSET,
}


_FORMS: Mapping[str, Form] = {"text": line_of, "json": delivered_json_of, "body": raw_of}


class Start(click.ParamType[datetime | ConsumeFromWhere]):
    """Where a group without progress starts: `first`, `last`, or a time."""

    name = "start"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | ConsumeFromWhere:
        """The place."""
        if value in _WHERE:
            return _WHERE[value]
        try:
            return Moment().convert(value, param, ctx)
        except click.BadParameter as error:
            text = error.message.replace(
                "is not a time; write", "is neither first, last nor a time:"
            )
            raise click.BadParameter(text, ctx, param) from error


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--group",
    metavar="NAME",
    required=True,
    help="Consumer group.",
    shell_complete=complete_groups,
)
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
    type=Start(),
    metavar="first|last|TIME",
    default="first",
    show_default=True,
    help="Where a group without progress starts.",
)
@click.option("--count", type=Whole(min=1), metavar="NUMBER", help="Stop after this many messages.")
@click.option(
    "--timeout",
    "idle_s",
    type=Wait(),
    metavar="DURATION",
    help="Stop when no message came for this long; with --count, fewer are exit code 1.",
)
@rate_option
@click.option(
    "--format",
    "form_name",
    type=click.Choice(list(_FORMS)),
    default=None,
    show_default="text",
    help="json: an object in a line; body: only bodies, byte for byte, with a line feed after each"
    " unless --count is 1.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--raw", is_flag=True, hidden=True, help="The same as --format body.")
@with_log_level
@name_servers_option
def consume(
    topic: str,
    group: str,
    expression: str,
    where: datetime | ConsumeFromWhere,
    count: int | None,
    idle_s: float | None,
    rate: float | None,
    form_name: str | None,
    as_json: bool,
    raw: bool,
    name_servers: str,
) -> None:
    """Print messages until Ctrl-C, --count or --timeout.

    The group's progress is kept: the next run continues where this one stopped. The command waits
    for a topic that does not exist yet.

    \b
    Examples:
      sparrowmq consume orders --group billing
      sparrowmq consume orders --group billing --count 10 --timeout 30s
      sparrowmq consume orders --group billing --filter "created || paid" --from last
      sparrowmq consume orders --group billing --json | jq .body
      sparrowmq consume orders --group audit --from -2h --rate 10
      sparrowmq consume pictures --group billing --count 1 --format body > picture.png
    """
    form_name = _form_name(form_name, as_json=as_json, raw=raw)
    has_line_feed = not (form_name == "body" and count == 1)
    showing = Showing(
        count, partial(click.echo, nl=has_line_feed), _FORMS[form_name], SendPace(rate)
    )
    start = {"from_time" if isinstance(where, datetime) else "from_where": where}

    async def work() -> int:
        stopping = await stop_signal()
        consumer = showing_consumer(group, {topic: expression}, name_servers=name_servers, **start)
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
        click.echo(
            f"sparrowmq: {showing.seen:,} of {counted(count, 'message')} came in time", err=True
        )
        sys.exit(1)


def _form_name(given: str | None, *, as_json: bool, raw: bool) -> str:
    named = {"--format": given, "--json": as_json and "json", "--raw": raw and "body"}
    chosen = {name: form for name, form in named.items() if form}
    if len(chosen) > 1:
        raise click.UsageError(f"{' and '.join(chosen)} cannot be combined")
    return next(iter(chosen.values()), "text")


def commands() -> list[click.Command]:
    """For the program."""
    return [consume]


# ---- messages on standard output: as many as are wanted; the others stay in their queues


class Showing:
    """Shows messages, as many as are wanted, until standard output is closed or full."""

    def __init__(
        self,
        most: int | None,
        write: Callable[[Any], None] = click.echo,
        form: Form = line_of,
        pace: SendPace | None = None,
    ) -> None:
        self.ended = asyncio.Event()
        self.seen = 0
        """Messages shown so far."""
        self._most = most
        self._write = write
        self._form = form
        self._pace = pace or SendPace(None)
        self._arrived = asyncio.Event()
        self._failure: OSError | None = None

    async def handle(self, messages: Sequence[MessageExt]) -> None:
        """Show messages; surplus ones and those that cannot be shown stay for the next member."""
        for message in messages:
            # Wait before showing: a stop meanwhile leaves the message to the next member
            await self._pace.wait()
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
        """Wait until no message was shown for this long."""
        with suppress(TimeoutError):
            while True:
                async with asyncio.timeout(idle_s):
                    await self._arrived.wait()
                self._arrived.clear()

    def raise_failure(self) -> None:
        """Report why showing failed; a closed pipe needs no message."""
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
    # still waits must never finish, so a stop need not wait for any handler.
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
    await consumer.stop()  # explicit: leaving the block right after the start logs a warning


async def _first_of(*waits: Coroutine[Any, Any, Any]) -> None:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(wait) for wait in waits]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
