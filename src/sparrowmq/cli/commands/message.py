"""`sparrowmq message …`: finding stored messages, following a topic, what became of a message."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.deliveries import Delivered
from sparrowmq.admin.errors import AdminError, NotAllAnswered, NotFound
from sparrowmq.admin.message_traces import GroupStep, MessageTrace
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_groups, complete_topics
from sparrowmq.cli.message_output import MORE, body_text, json_of, line_of, message_options
from sparrowmq.cli.option_types import Moment, Whole
from sparrowmq.cli.output import Columns, Kind, Report, Table, Value, table
from sparrowmq.cli.queues import MAX_OFFSET, QueueName, QueueType
from sparrowmq.cli.shell import Shell, dry_run_option, shell_options, topic_option, yes_option
from sparrowmq.client.errors import counted
from sparrowmq.clock import date_of, utc_text
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.trace import TraceStep

_MOST_BY_KEY = 64
_CUT_BY_KEY: dict[str, Any] = {
    "is_counted": False,
    "more": f"--limit N for more, up to {_MOST_BY_KEY}; --since and --until for others",
}


@click.group(cls=Group)
def message() -> None:
    """Find stored messages, follow a topic, trace a message."""


# ---- get


@message.command("get")
@click.argument("topic", required=False, shell_complete=complete_topics)
@click.option("--id", "message_id", metavar="ID", help="Unique id (needs TOPIC) or offset id.")
@click.option("--key", metavar="KEY", help="A key of the message.")
@click.option("--queue", type=QueueType(), metavar="BROKER/N", help="A queue; with --offset.")
@click.option("--offset", type=Whole(0, MAX_OFFSET), metavar="N", help="Its place there.")
@click.option("--since", type=Moment(), metavar="TIME", help="Stored at this time or later.")
@click.option("--until", type=Moment(), metavar="TIME", help="Stored before this time.")
@message_options
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the body of the one message that is found to a new file, byte for byte.",
)
@shell_options()
def get(
    topic: str | None,
    message_id: str | None,
    key: str | None,
    queue: QueueName | None,
    offset: int | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    body: str,
    out: Path | None,
    shell: Shell,
) -> None:
    """Show stored messages by id, key, place or time.

    \b
    Examples:
      sparrowmq message get orders --id 7F0000010ACE18B4AAC2951B8A1F0000
      sparrowmq message get orders --key o-17
      sparrowmq message get orders --queue broker-a/3 --offset 1841 --body hex
      sparrowmq message get orders --since -10m --limit 100 --json
    """
    _check_question(topic, message_id, key, queue, offset, since, until)
    if out is not None and out.exists():
        raise click.UsageError(f"{out} exists; choose another name, or remove it")

    async def look(admin: Admin) -> tuple[Sequence[MessageExt], int, Sequence[BrokerFailure]]:
        if message_id is not None:
            found: Sequence[MessageExt] = [await admin.message(message_id, topic)]
            return found, 1, ()
        assert topic is not None
        if key is not None:
            listed = await admin.find_messages(
                topic, key, begin=since, end=until, limit=min(limit, _MOST_BY_KEY)
            )
            if not listed:
                raise _without_key(topic, key, listed.errors)
            return listed.items[::-1], len(listed) + listed.is_cut, listed.errors
        if queue is not None and offset is not None:
            return [await admin.read_message(queue.of(topic), offset)], 1, ()
        ranged = await admin.messages_between(
            topic,
            since=since,
            until=until,
            queue=None if queue is None else queue.of(topic),
            limit=limit,
        )
        return ranged.messages, ranged.total, ranged.errors

    messages, total, errors = shell.ask(look)
    if out is not None:
        _write_body(messages, out)
    one = len(messages) == 1
    shown = _message_table(messages, total, None if one else body, whole=shell.as_json)
    tables = [replace(shown, **_CUT_BY_KEY) if key else shown]
    if one:
        tables += [_properties(messages[0]), _body_lines(messages[0], body)]
    shell.show(Report(tables, tuple(errors)))
    if errors:
        sys.exit(3)


async def newest_with_key(admin: Admin, topic: str, key: str) -> MessageExt:
    """The newest message with a key. Raises NotFound, NotAllAnswered."""
    found = await admin.find_messages(topic, key, limit=1)
    if not found:
        raise _without_key(topic, key, found.errors)
    return found[0]


def _without_key(topic: str, key: str, errors: Sequence[BrokerFailure]) -> AdminError:
    name = f"with key {key}"
    if errors:
        return NotAllAnswered("message", name, errors)
    return NotFound("message", name, f"topic {topic} has none")


def _check_question(
    topic: str | None,
    message_id: str | None,
    key: str | None,
    queue: QueueName | None,
    offset: int | None,
    since: datetime | None,
    until: datetime | None,
) -> None:
    """Raises UsageError for options that do not form a query."""
    has_time = since is not None or until is not None
    if message_id is not None and (key or queue or offset is not None or has_time):
        raise click.UsageError("--id stands alone")
    if offset is not None and (queue is None or key or has_time):
        raise click.UsageError("--offset needs --queue, and neither --key nor a time")
    if message_id is None and not (key or queue or has_time):
        raise click.UsageError("say which: --id, --key, --queue and --offset, or --since")
    if queue is not None and key:
        raise click.UsageError("--queue and --key cannot be combined")
    if topic is None and message_id is None:
        raise click.UsageError("TOPIC is missing; only an offset id is found without it")


def _message_table(
    messages: Sequence[MessageExt], total: int, body: str | None, *, whole: bool
) -> Table:
    columns: list[tuple[str, str] | tuple[str, str, Kind]] = [
        ("PLACE", "place"),
        ("STORED", "stored", Kind.TIME),
        ("TAG", "tag"),
        ("KEYS", "keys"),
        ("ID", "id"),
        ("SIZE", "size"),
    ]
    rows: list[list[Value]] = [
        [
            each.place,
            each.stored_at,
            each.tags or "",
            each.keys,
            each.msg_id,
            len(each.body),
        ]
        for each in messages
    ]
    if body is not None:
        columns.append(("BODY", "body"))
        for row, each in zip(rows, messages, strict=True):
            row.append(body_text(each, body, whole=whole))
    return table(columns, rows, total=total, empty="there are none in that time", more=MORE)


def _properties(each: MessageExt) -> Table:
    own = {
        "topic": each.topic,
        "born": utc_text(each.born_at),
        "born host": "{}:{}".format(*each.born_host),
        "offset id": each.offset_msg_id,
        "attempts": str(each.reconsume_times),
    }
    rows: list[list[Value]] = [[name, value] for name, value in own.items()]
    rows += [[name, value] for name, value in sorted(each.properties.items())]
    columns = [("PROPERTY", "name"), ("VALUE", "value")]
    return table(columns, rows, title="properties", key="properties")


def _body_lines(each: MessageExt, form: str) -> Table:
    lines = body_text(each, form, whole=True).split("\n")
    return table([("BODY", "line")], [[line] for line in lines], title="body", key="body")


def _write_body(messages: Sequence[MessageExt], out: Path) -> None:
    if len(messages) != 1:
        raise click.UsageError(f"--out takes one message, and {len(messages)} were found")
    with out.open("xb") as file:
        file.write(messages[0].body)


# ---- tail


@message.command("tail")
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--filter", "expression", metavar="TAGS", default="*", show_default=True, help="Such as A || B."
)
@click.option("--queue", type=QueueType(), metavar="BROKER/N", help="Only this queue.")
@click.option("--since", type=Moment(), metavar="TIME", help="Begin there instead of now.")
@click.option("--count", type=Whole(min=1), metavar="N", help="Stop after this many messages.")
@shell_options()
def tail(
    topic: str,
    expression: str,
    queue: QueueName | None,
    since: datetime | None,
    count: int | None,
    shell: Shell,
) -> None:
    """Print messages as they are stored, until Ctrl-C. No group takes part, no progress is kept.

    \b
    Examples:
      sparrowmq message tail orders
      sparrowmq message tail orders --filter paid --since -5m --count 10 --json
    """
    seen = 0

    def show(each: MessageExt) -> bool:
        nonlocal seen
        click.echo(json_of(each) if shell.as_json else line_of(each))
        seen += 1
        return count is None or seen < count

    async def follow(admin: Admin) -> None:
        only = None if queue is None else queue.of(topic)
        await admin.tail(topic, show, expression=expression, queue=only, since=since)

    shell.ask(follow)


# ---- trace


@message.command("trace")
@click.argument("message_id", required=False, metavar="[ID]")
@topic_option(help="Where it was sent to.")
@click.option("--key", metavar="KEY", help="Instead of ID: the newest message with this key.")
@shell_options()
def trace(message_id: str | None, topic: str | None, key: str | None, shell: Shell) -> None:
    """Show what became of a message.

    What clients reported, and how far each group is.

    Clients report what they were configured to trace; for other groups the offsets decide, and the
    output says so.

    \b
    Examples:
      sparrowmq message trace 7F0000010ACE18B4AAC2951B8A1F0000 --topic orders
      sparrowmq message trace --topic orders --key o-17
    """
    if (message_id is None) == (key is None):
        raise click.UsageError("give one of ID and --key")
    if key is not None and topic is None:
        raise click.UsageError("--key needs --topic")

    async def look(admin: Admin) -> Report:
        wanted = message_id
        if wanted is None:
            assert topic is not None and key is not None
            wanted = (await newest_with_key(admin, topic, key)).msg_id
        return _trace_report(await admin.trace(wanted, topic))

    shell.report(look)


_STEPS = {
    "Pub": "sent",
    "SubBefore": "handler called",
    "SubAfter": "handler ended",
    "EndTransaction": "transaction ended",
    "Recall": "recalled",
}


def _trace_report(found: MessageTrace) -> Report:
    rows: list[list[Value]] = []
    stored = found.message
    if stored is not None:
        rows.append([stored.stored_at, "stored", stored.place, "", "", ""])
    rows += [_step_row(each, found.steps) for each in found.steps]
    rows += [_group_row(group.group, each) for group in found.groups for each in group.steps]
    rows.sort(key=lambda row: str(row[0]))
    columns: Columns = [
        ("TIME", "time", Kind.TIME),
        ("STEP", "step"),
        ("WHO", "who"),
        ("GROUP", "group"),
        ("TOOK", "took", Kind.DURATION),
        ("RESULT", "result"),
    ]
    groups: list[list[Value]] = [
        [each.group, each.state, each.source, "" if each.before is None else each.before]
        for each in found.groups
    ]
    group_columns: Columns = [
        ("GROUP", "group"),
        ("STATE", "state"),
        ("SOURCE", "source"),
        ("BEFORE-IT", "before", Kind.NUMBER),
    ]
    notes = []
    if not found.steps:
        notes.append("no client has traced this message; what is known comes from the brokers")
    if any(each.source == "offsets" for each in found.groups):
        notes.append("states from offsets say how far a group is, not what its handler did")
    return Report(
        [
            table(columns, rows, title="what happened", key="steps"),
            table(
                group_columns,
                groups,
                title="groups of the topic",
                key="groups",
                empty="no group consumes this topic",
            ),
        ],
        found.errors,
        facts={"id": found.message_id, "topic": stored.topic if stored else None},
        notes=notes,
    )


def _group_row(group: str, step: GroupStep) -> list[Value]:
    failed = counted(step.copy.record.reconsume_times, "attempt")
    where = f"{step.copy.topic} {step.copy.place}"
    return [date_of(step.time_ms), step.event.value, where, group, "", f"after {failed}"]


_MOST_MS = 2**31 - 1
"""The longest time that Java's clients can report; another client may report any number."""


def _step_row(step: TraceStep, steps: Sequence[TraceStep]) -> list[Value]:
    begun = next(
        (s for s in steps if s.kind == "SubBefore" and s.request_id == step.request_id), step
    )
    time: Value = date_of(step.time_ms) if step.time_ms else None
    took: Value = (
        "" if step.took_ms is None else timedelta(milliseconds=max(0, min(step.took_ms, _MOST_MS)))
    )
    result = step.state or {True: "ok", False: "failed", None: ""}[step.is_ok]
    if step.retries:
        result = f"attempt {step.retries + 1}"
    return [
        time,
        _STEPS[step.kind],
        step.client or begun.client,
        step.group or begun.group,
        took,
        result,
    ]


# ---- deliver


@message.command("deliver")
@click.argument("message_id", metavar="ID")
@topic_option(help="Where it lies; needed for a unique id.")
@click.option(
    "--group",
    metavar="GROUP",
    required=True,
    shell_complete=complete_groups,
    help="The group whose handler gets it.",
)
@click.option("--client", metavar="CLIENT", help="This member. [default: the first]")
@dry_run_option
@yes_option
@shell_options()
def deliver(
    message_id: str,
    topic: str | None,
    group: str,
    client: str | None,
    dry_run: bool,
    yes: bool,
    shell: Shell,
) -> None:
    """Let a live member handle a stored message now.

    The command prints the result. Progress stays.

    \b
    Example:
      sparrowmq message deliver 7F0000010ACE18B4AAC2951B8A1F0000 --topic orders --group billing
    """
    if not dry_run:
        what = f"a handler of group {group} would get message {message_id} once more"
        shell.confirm(what, group, yes=yes)

    async def work(admin: Admin) -> Delivered:
        return await admin.deliver(
            message_id, group, topic=topic, client_id=client, dry_run=dry_run
        )

    done = shell.change(
        work,
        dry_run=dry_run,
        next_step=lambda: (
            f"the message may have reached a handler of group {group}, and its result is not known;"
            " run again, it is delivered once more"
        ),
    )
    columns: Columns = [
        ("ID", "id"),
        ("GROUP", "group"),
        ("CLIENT", "client"),
        ("RESULT", "result"),
        ("TOOK", "took", Kind.DURATION),
        ("REMARK", "remark"),
    ]
    row: list[Value] = [
        done.message_id,
        done.group,
        done.client_id,
        done.result,
        "" if dry_run else done.took,
        done.remark,
    ]
    shell.show(Report([table(columns, [row])]))
    if dry_run:
        shell.dry()
    else:
        shell.done(f"{done.client_id} got message {done.message_id}")
    if not done.is_ok:
        sys.exit(1)


def commands() -> list[click.Command]:
    """For the program."""
    return [message]
