"""`sparrowmq group lag`: how far groups are, by queue, topic or member; for people and checks."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.cluster_calls import at_once
from sparrowmq.admin.errors import AdminError, NotFound
from sparrowmq.admin.lag import GroupLag, QueueLag
from sparrowmq.cli.commands.group import age
from sparrowmq.cli.completion import complete_groups
from sparrowmq.cli.option_types import Wait, Whole
from sparrowmq.cli.output import Column, Kind, Report, Table, Value, duration_text
from sparrowmq.cli.shell import IN_PART, Shell, limit_option, shell_options, topic_option
from sparrowmq.client.errors import counted
from sparrowmq.protocol.message import MessageQueue
from sparrowmq.protocol.names import check_group, check_topic, is_system_group

_POLL_S = 1.0


@click.command("lag")
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=complete_groups)
@topic_option(help="Only in this topic.")
@click.option(
    "--by",
    type=click.Choice(["topic", "queue", "member"]),
    help="What a row is. [default: queue for one group, topic for several]",
)
@click.option("--max", "most", type=Whole(min=0), metavar="N", help="Exit code 1 above this lag.")
@click.option(
    "--older-than",
    "older_s",
    type=Wait(),
    metavar="DURATION",
    help="Exit code 1 if a message has waited longer.",
)
@click.option(
    "--wait",
    "wait_s",
    type=Wait(),
    metavar="DURATION",
    help="Wait until the lag is at most --max (default 0), for at most this long.",
)
@limit_option
@shell_options(watch=True)
def lag(
    names: tuple[str, ...],
    topic: str | None,
    by: str | None,
    most: int | None,
    older_s: float | None,
    wait_s: float | None,
    limit: int,
    shell: Shell,
) -> None:
    """Show the lag of a group; without NAME, of all groups.

    LAG counts messages that a group has not read, MATCHING those of them that pass its filter of
    tags (counted up to 100,000 a queue, else estimated and marked), DELAY how long the oldest has
    waited.

    \b
    Examples:
      sparrowmq group lag billing
      sparrowmq group lag --by topic --watch
      sparrowmq group lag billing --max 1000 --older-than 5m   # for a check: exit code 1 above
      sparrowmq group lag billing --wait 10m                   # until everything is read
    """
    if wait_s is not None and shell.watch_s is not None:
        raise click.UsageError("--wait and --watch cannot be combined")
    kind = by or ("queue" if len(names) == 1 else "topic")
    last: list[GroupLag] = []

    async def look(admin: Admin) -> Report:
        if names or topic is not None:
            last[:] = await _lags(admin, names, topic)
        else:
            last[:] = await _all_lags(admin, kind, 0 if older_s is not None else limit)
        return _report(last, kind, limit)

    if most is None and older_s is None and wait_s is None:
        shell.report(look)
        return
    bound = 0 if most is None and wait_s is not None else most

    def exceeded() -> list[str]:
        return over(last, bound, older_s)

    found = shell.ask(partial(_look_until, look, exceeded, wait_s))
    shell.show(found)
    for text in exceeded():
        shell.warn(text)
    if exceeded() or found.errors:
        sys.exit(1 if exceeded() else IN_PART)


async def _look_until(
    look: Callable[[Admin], Awaitable[Report]],
    exceeded: Callable[[], list[str]],
    wait_s: float | None,
    admin: Admin,
) -> Report:
    """Look until no group is over its limits, or the time is up; returns the last report."""
    found = await look(admin)
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            while wait_s is not None and exceeded():
                await asyncio.sleep(_POLL_S)
                found = await look(admin)
    return found


def over(lags: Sequence[GroupLag], most: int | None, older_s: float | None) -> list[str]:
    """Groups that are over their limits, in words."""
    texts = []
    for each in lags:
        if most is not None and each.lag > most:
            behind = counted(each.lag, "message")
            texts.append(f"group {each.group} is {behind} behind; at most {most:,} are allowed")
        waited = age(_oldest(each.queues))
        if older_s is not None and waited is not None and waited.total_seconds() > older_s:
            allowed = duration_text(timedelta(seconds=older_s))
            texts.append(
                f"group {each.group}: a message has waited {duration_text(waited)}; at most"
                f" {allowed} is allowed"
            )
    return texts


async def _lags(admin: Admin, names: Sequence[str], topic: str | None) -> list[GroupLag]:
    for name in names:  # among questions at once, a wrong name would end in a trace
        check_group(name)
    if topic is not None:
        check_topic(topic)
    wanted = names or [each for each in await admin.groups() if not is_system_group(each)]
    asks = [partial(admin.lag, name, topic, waiting=True, matching=True) for name in wanted]
    found = []
    for result in await at_once(asks):
        if not isinstance(result, AdminError):
            found.append(result)
        elif names or not isinstance(result, NotFound):  # deleted since it was listed: skip
            raise result
    return found


async def _all_lags(admin: Admin, kind: str, limit: int) -> list[GroupLag]:
    """All groups; what takes requests for each queue is asked about those on the first page."""
    names = [each for each in await admin.groups() if not is_system_group(each)]
    lags = await admin.lags(names, owners=kind != "topic")
    shown = rows = 0
    while shown < len(lags) and (not limit or rows < limit):
        rows += len(_MAKERS[kind]([lags[shown]])[1])
        shown += 1
    asks = [partial(admin.with_waiting, each) for each in lags[:shown]]
    found = []
    for result in await at_once(asks):
        if isinstance(result, AdminError):
            raise result
        found.append(result)
    return found + lags[shown:]


# ---- tables


def _report(lags: Sequence[GroupLag], kind: str, limit: int) -> Report:
    make = _MAKERS[kind]
    columns, rows = make(lags)
    total = len(rows)
    errors = dict.fromkeys(failure for each in lags for failure in each.errors)
    return Report(
        [
            Table(
                columns,
                rows[:limit] if limit else rows,
                total=total,
                empty="no group has progress there",
            )
        ],
        tuple(errors),
        facts={"lag": sum(each.lag for each in lags)},
        sums=["lag"],
    )


def _oldest(queues: Sequence[QueueLag]) -> datetime | None:
    return min(filter(None, (each.oldest_waiting for each in queues)), default=None)


def _sums(queues: Sequence[QueueLag]) -> list[Value]:
    """The lag, the matching messages with whether that is exact, and the delay."""
    behind = sum(each.lag for each in queues)
    known = [each.matching for each in queues if each.matching is not None]
    matching: Value = None
    if len(known) == len(queues):
        matching = (sum(known), all(each.is_exact for each in queues))
    return [behind, matching, age(_oldest(queues)) if behind else ""]


def _sum_columns(*, is_sum: bool) -> list[Column]:
    """`is_sum`: of several queues, some of which may be on a broker that did not answer."""
    return [
        Column("LAG", "lag", Kind.NUMBER, is_sum=is_sum),
        Column("MATCHING", "matching", Kind.NUMBER, is_approximate=True, is_sum=is_sum),
        Column("DELAY", "delay", Kind.DURATION),
    ]


Made = tuple[list[Column], list[list[Value]]]


def _by_queue(lags: Sequence[GroupLag]) -> Made:
    columns = [
        Column("GROUP", "group"),
        Column("TOPIC", "topic"),
        Column("QUEUE", "queue"),
        Column("COMMITTED", "committed", Kind.NUMBER),
        Column("END", "end", Kind.NUMBER),
        *_sum_columns(is_sum=False),
        Column("OWNER", "owner"),
    ]
    rows: list[list[Value]] = []
    for each in lags:
        known = {one.queue: one for one in each.queues}
        rows += [
            _queue_row(each.group, queue, known.get(queue))
            for queue in sorted({*known, *each.unknown})
        ]
    return columns, rows


def _queue_row(group: str, queue: MessageQueue, one: QueueLag | None) -> list[Value]:
    """`one` is None for a queue of a broker that did not answer."""
    if one is None:
        return [group, queue.topic, queue.place, *[None] * 6]
    return [
        group,
        queue.topic,
        queue.place,
        "" if one.consumer_offset is None else one.consumer_offset,
        one.broker_offset,
        *_sums([one]),
        one.owner or "",
    ]


def _by_topic(lags: Sequence[GroupLag]) -> Made:
    rows: list[list[Value]] = []
    for each in lags:
        for topic in sorted({*each.by_topic, *(queue.topic for queue in each.unknown)}):
            queues = [one for one in each.queues if one.queue.topic == topic]
            silent = sum(queue.topic == topic for queue in each.unknown)
            rows.append([each.group, topic, len(queues) + silent, *_sums(queues)])
    columns = [
        Column("GROUP", "group"),
        Column("TOPIC", "topic"),
        Column("QUEUES", "queues"),
        *_sum_columns(is_sum=True),
    ]
    return columns, rows


def _by_member(lags: Sequence[GroupLag]) -> Made:
    rows: list[list[Value]] = []
    for each in lags:
        for owner in sorted({one.owner or "" for one in each.queues}):
            queues = [one for one in each.queues if (one.owner or "") == owner]
            rows.append([each.group, owner, len(queues), *_sums(queues)])
    columns = [
        Column("GROUP", "group"),
        Column("MEMBER", "member"),
        Column("QUEUES", "queues"),
        *_sum_columns(is_sum=True),
    ]
    return columns, rows


_MAKERS: dict[str, Callable[[Sequence[GroupLag]], Made]] = {
    "queue": _by_queue,
    "topic": _by_topic,
    "member": _by_member,
}
