"""`sparrowmq send` and `sparrowmq consume`."""

import asyncio
import sys
from collections.abc import Sequence

import click

from sparrowmq.cli.remote import name_servers_option, run_remote
from sparrowmq.client.producer import Producer
from sparrowmq.client.push_consumer import PushConsumer
from sparrowmq.client.send_result import SendResult
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
@click.option("--tag", help="The message's tag.")
@click.option("--key", "keys", multiple=True, help="A key to find it by; may be repeated.")
@click.option(
    "--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be repeated."
)
@click.option("--sharding-key", help="Messages with one sharding key stay in order.")
@click.option("--delay-level", type=click.IntRange(1, 18), help="1 is 1 s, 18 is 2 h.")
@click.option("--group", default="sparrowmq-cli", show_default=True, help="Producer group.")
@name_servers_option
def send(
    topic: str,
    body: str | None,
    tag: str | None,
    keys: tuple[str, ...],
    properties: tuple[str, ...],
    sharding_key: str | None,
    delay_level: int | None,
    group: str,
    name_servers: str,
) -> None:
    """Send a message; without BODY its text comes from standard input."""
    data = body.encode() if body is not None else sys.stdin.buffer.read()
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


@click.command()
@click.argument("topic")
@click.option("--group", required=True, help="Consumer group.")
@click.option("--filter", "expression", default="*", show_default=True, help="A || B, or *.")
@click.option(
    "--from",
    "where",
    type=click.Choice(list(_WHERE)),
    default="first",
    show_default=True,
    help="Where a group without progress starts.",
)
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many messages.")
@name_servers_option
def consume(
    topic: str, group: str, expression: str, where: str, count: int | None, name_servers: str
) -> None:
    """Print messages as they come, until Ctrl-C or --count."""

    async def work() -> None:
        enough = asyncio.Event()
        seen = 0

        async def handle(messages: Sequence[MessageExt]) -> None:
            nonlocal seen
            for message in messages:
                if count is not None and seen >= count:
                    # Not shown, not consumed: it stays for the next member
                    await asyncio.Event().wait()
                seen += 1
                _show(message)
            if count is not None and seen >= count:
                enough.set()

        consumer = PushConsumer(
            group,
            {topic: expression},
            name_servers=name_servers,
            from_where=_WHERE[where],
            workers=1,
            stop_within_s=1.0,
        )
        async with consumer:
            await consumer.start(handle)
            await enough.wait()

    try:
        run_remote(work())
    except KeyboardInterrupt:
        sys.exit(130)


def _show(message: MessageExt) -> None:
    tags = f" [{message.tags}]" if message.tags else ""
    keys = f" {' '.join(message.keys)}" if message.keys else ""
    text = message.body.decode("utf-8", "backslashreplace")
    click.echo(
        f"{message.broker_name}/{message.queue_id}/{message.queue_offset}{tags}{keys}: {text}"
    )


def message_commands() -> list[click.Command]:
    """For the program."""
    return [send, consume]
