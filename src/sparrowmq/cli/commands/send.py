"""`sparrowmq send`."""

import asyncio
import os
import sys
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import NotFound, TopicAway
from sparrowmq.cli.completion import complete_topics
from sparrowmq.cli.option_types import Decimal, Moment, Wait, Whole
from sparrowmq.cli.output import json_text
from sparrowmq.cli.remote import ORIGIN, name_servers_option, run_remote
from sparrowmq.cli.shell import Shell
from sparrowmq.cli.stop_signal import changing
from sparrowmq.client.errors import counted
from sparrowmq.client.send_result import SendResult
from sparrowmq.client.sending.producer import Producer
from sparrowmq.clock import system_clock, utc_text
from sparrowmq.protocol.message import Message
from sparrowmq.protocol.names import is_dlq_topic, is_retry_topic

rate_option = click.option(
    "--rate",
    type=Decimal(min=0, min_open=True),
    metavar="N",
    help="At most this many messages per second.",
)


class SendPace:
    """Lets this many through per second, evenly; any number without a rate."""

    def __init__(self, rate: float | None) -> None:
        self._every_s = 0.0 if rate is None else 1 / rate
        self._next_s = 0.0

    async def wait(self) -> None:
        """Wait until the next one may go."""
        if not self._every_s:
            return
        now_s = asyncio.get_running_loop().time()
        start_s = max(now_s, self._next_s)
        self._next_s = start_s + self._every_s
        await asyncio.sleep(start_s - now_s)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("body", required=False)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    metavar="FILE",
    help="Send the content of this file; - is standard input.",
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
@click.option("--delay-level", type=Whole(1, 18), metavar="LEVEL", help="1 is 1 s, 18 is 2 h.")
@click.option(
    "--delay",
    "delay_s",
    type=Wait(),
    metavar="DURATION",
    help="Deliver it after this time, such as 90s.",
)
@click.option("--at", type=Moment(), metavar="TIME", help="Deliver it at this time.")
@click.option("--count", type=Whole(min=1), metavar="N", default=1, help="Send it this many times.")
@rate_option
@click.option(
    "--group",
    metavar="NAME",
    default="sparrowmq-cli",
    show_default=True,
    help="Producer group.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per message.")
@click.option(
    "--timeout",
    "timeout_s",
    type=Wait(),
    metavar="DURATION",
    help="How long a message may take, all attempts together.  [default: 3s]",
)
@name_servers_option
def send(
    topic: str,
    body: str | None,
    file: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    count: int,
    rate: float | None,
    group: str,
    as_json: bool,
    timeout_s: float | None,
    name_servers: str,
    **delivery: Any,
) -> None:
    """Send a message.

    Without BODY, or with - for it, the body is read from standard input. A body is sent byte for
    byte, whatever it holds.

    \b
    Examples:
      sparrowmq send orders "hello" --tag created --key o-1
      sparrowmq send orders "later" --delay 90s
      sparrowmq send orders "load" --count 1000 --rate 100
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
    when = _when(**delivery)
    results: list[SendResult] = []
    origin = click.get_current_context().meta.get(ORIGIN, "")
    shell = Shell(name_servers=name_servers, origin=origin)

    async def work() -> None:
        message = Message(topic, data, tags=tag, keys=keys, properties=pairs, **when)
        pace = SendPace(rate)
        of_group = partial(Producer, group, name_servers=name_servers)
        if timeout_s is not None:
            of_group = partial(of_group, timeout_s=timeout_s)
        is_new = await _is_missing(topic, name_servers)
        async with of_group() as producer:
            for _ in range(count):
                await pace.wait()
                results.append(await producer.send(message))
                if is_new:
                    is_new = False
                    shell.done(f"topic {topic} was created by this message")
                click.echo(sent_line(results[-1], as_json=as_json))

    try:
        with changing(lambda: _sent_until_then(results, count)):
            run_remote(work())
    except SystemExit:
        if not results:
            raise
        click.echo(f"sparrowmq: {_sent(results, count)}", err=True)
        sys.exit(3)
    sys.exit(0 if all(each.is_ok for each in results) else 1)


def _sent_until_then(results: list[SendResult], count: int) -> str:
    if len(results) == count:
        return ""
    return f"{_sent(results, count)}, and perhaps one more"


def _sent(results: list[SendResult], count: int) -> str:
    was = "was" if count == 1 else "were"
    return f"{len(results):,} of {counted(count, 'message')} {was} sent"


_MADE_BY_BROKERS = (
    "topic {topic} does not exist, and is not created by a message: brokers create the retry and"
    " dead-letter topic of a group when a member fails; send to a topic of your own, such as orders"
)


async def _is_missing(topic: str, name_servers: str) -> bool:
    """Whether brokers would create the topic when a message comes. Raises UsageError for a topic
    that only they should create."""
    async with Admin(name_servers) as admin:
        try:
            await admin.route(topic)
        except TopicAway:
            return False
        except NotFound as error:
            if is_dlq_topic(topic) or is_retry_topic(topic):
                raise click.UsageError(_MADE_BY_BROKERS.format(topic=topic)) from error
            return True
    return False


def _when(
    *,
    sharding_key: str | None,
    delay_level: int | None,
    delay_s: float | None,
    at: datetime | None,
) -> dict[str, Any]:
    """The message arguments that control its delivery."""
    given = {"--delay-level": delay_level, "--delay": delay_s, "--at": at}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise click.UsageError(f"{' and '.join(named)} cannot be combined")
    if at is not None and at.timestamp() * 1000 <= system_clock():
        raise click.UsageError(f"--at {utc_text(at)} is not in the future")
    return {
        "sharding_key": sharding_key,
        "delay_level": delay_level or 0,
        "delay": None if delay_s is None else timedelta(seconds=delay_s),
        "deliver_at": at,
    }


def sent_line(result: SendResult, *, as_json: bool) -> str:
    """The status, id and place of a sent message."""
    queue = result.queue
    if as_json:
        document = {
            "status": result.status.value,
            "id": result.msg_id,
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "offset": result.queue_offset,
        }
        return json_text(document, indent=None)
    return f"{result.status} {result.msg_id} {queue.place}/{result.queue_offset}"


def _body(body: str | None, file: str | None) -> bytes:
    """The bytes of a body, unchanged: an argument need not be UTF-8 text."""
    if body is not None and file is not None:
        raise click.UsageError("BODY and --file cannot be combined")
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


def commands() -> list[click.Command]:
    """For the program."""
    return [send]
