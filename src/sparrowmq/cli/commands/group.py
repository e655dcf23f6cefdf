"""`sparrowmq group …`: consumer groups, who is in them, and what they want.

Changing groups is in `group_changes`, their progress in `group_progress`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.clients import ClientRole
from sparrowmq.admin.doctor.findings import Examination
from sparrowmq.admin.group_rows import GroupRow
from sparrowmq.admin.groups import GroupInfo, GroupSubscription, subscriptions_of
from sparrowmq.admin.lag import GroupLag
from sparrowmq.admin.members import GroupMember
from sparrowmq.admin.stacks import readable_stacks
from sparrowmq.admin.values import distinct
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_groups
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.output import Column, Columns, Kind, Report, Table, Value, table
from sparrowmq.cli.shell import Shell, limit_option, match_option, shell_options
from sparrowmq.clock import system_clock
from sparrowmq.protocol.heartbeat import MessageModel
from sparrowmq.protocol.names import is_system_group


@click.group(cls=Group)
def group() -> None:
    """Inspect consumer groups, change them, and move their progress."""


def now() -> datetime:
    """The time, for durations in tables."""
    return datetime.fromtimestamp(system_clock() / 1000, UTC)


def age(when: datetime | None) -> timedelta | None:
    """How long ago something was; None if unknown."""
    return None if when is None else max(timedelta(), now() - when)


_LOOK_AGAIN_S = 0.5
"""The time between the doctor's two looks; `sparrowmq doctor` waits longer."""
HANDLER_SHOWN_S = 2.0
"""A member counts as waiting for its handler once that has finished nothing for this long."""
_MODELS = {MessageModel.CLUSTERING: "clustering", MessageModel.BROADCASTING: "broadcasting"}


# ---- list


@group.command("list")
@match_option
@click.option(
    "--lagging", type=Whole(min=1), metavar="N", help="Only groups with at least this lag."
)
@click.option("--offline", is_flag=True, help="Only groups without a live member.")
@click.option("--all", "show_all", is_flag=True, help="Include groups of RocketMQ's own tools.")
@click.option("--long", "is_long", is_flag=True, help="Also the rate of the last minute.")
@limit_option
@shell_options(watch=True)
def list_groups(
    match: str | None,
    lagging: int | None,
    offline: bool,
    show_all: bool,
    is_long: bool,
    limit: int,
    shell: Shell,
) -> None:
    """List consumer groups with members, topics and lag.

    \b
    Examples:
      sparrowmq group list
      sparrowmq group list --match 'bill*' --lagging 1000
      sparrowmq group list --offline --json
    """

    async def look(admin: Admin) -> Report:
        found = await admin.groups()
        names = [
            each
            for each in found
            if (show_all or not is_system_group(each)) and fnmatchcase(each, match or "*")
        ]
        if offline and not lagging:  # who is online takes one question a group, its figures many
            online = await admin.clients(role=ClientRole.CONSUMER)
            names = sorted(set(names).difference(*(each.groups for each in online)))
        asks_all = bool(lagging)
        asked = names if asks_all or not limit else names[:limit]
        listed = await admin.group_rows(asked, waiting=not asks_all)
        rows = list(listed)
        if asks_all:
            rows = [each for each in rows if _is_wanted(each, lagging, offline)]
        total = len(rows) if asks_all else len(names)
        kept = rows[:limit] if limit else rows
        if asks_all:
            kept = await _with_waiting(admin, kept)
        errors = distinct((*found.errors, *listed.errors))
        return Report([_group_table(kept, total, is_long)], errors)

    shell.report(look)


async def _with_waiting(admin: Admin, rows: Sequence[GroupRow]) -> list[GroupRow]:
    """The rows that are printed, with since when messages wait: that takes requests per queue."""
    known = [each.name for each in rows if each.lag]
    waiting = {each.name: each.oldest_waiting for each in await admin.group_rows(known)}
    return [replace(each, oldest_waiting=waiting.get(each.name)) for each in rows]


def _is_wanted(row: GroupRow, lagging: int | None, offline: bool) -> bool:
    """Whether to show a row. Rows with unknown values are always shown: nothing rules them out."""
    if lagging is not None and row.lag is not None and row.lag < lagging:
        return False
    return not (offline and row.members)


def _group_table(rows: list[GroupRow], total: int, is_long: bool) -> Table:
    columns: list[tuple[str, str] | tuple[str, str, Kind] | Column] = [
        ("GROUP", "group"),
        ("MODEL", "model"),
        Column("MEMBERS", "members", Kind.NUMBER, is_sum=True),
        ("TOPICS", "topics"),
        Column("LAG", "lag", Kind.NUMBER, is_sum=True),
        ("OLDEST-WAITING", "oldestWaiting", Kind.DURATION),
    ]
    cells: list[list[Value]] = [
        [
            each.name,
            None if each.model is None else _MODELS[each.model],
            each.members,
            each.topics,
            each.lag,
            age(each.oldest_waiting) if each.lag else "",
        ]
        for each in rows
    ]
    if is_long:
        columns.append(("OUT/S", "outPerS", Kind.NUMBER))
        for row, each in zip(cells, rows, strict=True):
            row.append(each.consumed_per_s)
    return table(columns, cells, total=total, empty="there are no such groups")


# ---- show


@group.command("show")
@click.argument("name", shell_complete=complete_groups)
@shell_options(watch=True)
def show_group(name: str, shell: Shell) -> None:
    """Show a group's settings, progress, members and findings.

    \b
    Example:
      sparrowmq group show billing
    """

    async def look(admin: Admin) -> Report:
        found = await admin.group(name)
        lag = await admin.lag(name, owners=False, waiting=True)
        examined = await admin.doctor("group", name, for_s=_LOOK_AGAIN_S)
        return Report(
            [
                _settings_table(found),
                _topics_table(lag),
                members_table(found.members),
                subscriptions_table(subscriptions_of(found)),
                _findings_table(examined),
            ],
            distinct((*found.errors, *lag.errors)),
            sums=["lag"],
            facts={
                "group": name,
                "state": found.state,
                "model": None if found.model is None else _MODELS[found.model],
                "lag": lag.lag,
            },
            notes=_advice(name, examined),
        )

    shell.report(look)


def _advice(name: str, examined: Examination) -> list[str]:
    remedies = f"causes and remedies: sparrowmq doctor group {name}"
    return [] if examined.is_healthy else [remedies]


def _findings_table(examined: Examination) -> Table:
    columns = [("SEVERITY", "severity"), ("FINDING", "finding"), ("EVIDENCE", "evidence")]
    rows = [[each.severity, each.id, each.evidence] for each in examined.findings]
    return table(columns, rows, key="findings", title="what is wrong", empty="nothing was found")


def _settings_table(found: GroupInfo) -> Table:
    rows: list[list[Value]] = [
        [
            each.broker,
            each.may_consume,
            each.may_broadcast,
            each.orderly,
            each.retries,
            each.retry_queues,
            None if each.paused_topics is None else sorted(each.paused_topics),
            [f"{name}={value}" for name, value in sorted(each.attributes.items())],
        ]
        for each in found.settings
    ]
    columns = [
        ("BROKER", "broker"),
        ("CONSUME", "consume"),
        ("BROADCAST", "broadcast"),
        ("ORDER", "order"),
        ("RETRIES", "retries"),
        ("RETRY-QUEUES", "retryQueues"),
        ("PAUSED-TOPICS", "pausedTopics"),
        ("ATTRIBUTES", "attributes"),
    ]
    return table(columns, rows, title="settings", key="settings", empty="no broker has settings")


def _topics_table(lag: GroupLag) -> Table:
    rows: list[list[Value]] = []
    for topic in sorted({*lag.by_topic, *(queue.topic for queue in lag.unknown)}):
        queues = [each for each in lag.queues if each.queue.topic == topic]
        silent = sum(queue.topic == topic for queue in lag.unknown)
        behind = lag.by_topic.get(topic, 0)
        oldest = min(filter(None, (each.oldest_waiting for each in queues)), default=None)
        rows.append([topic, len(queues) + silent, behind, age(oldest) if behind else ""])
    columns: Columns = [
        ("TOPIC", "topic"),
        ("QUEUES", "queues"),
        Column("LAG", "lag", is_sum=True),
        ("DELAY", "delay", Kind.DURATION),
    ]
    return table(columns, rows, title="topics", key="topics", empty="it has no progress")


# ---- members


@group.command("members")
@click.argument("name", shell_complete=complete_groups)
@click.option("--stacks", metavar="CLIENT", help="Print where this member's code is instead.")
@click.option("--all-stacks", is_flag=True, help="With --stacks: those without code of it too.")
@shell_options(watch=True)
def members(name: str, stacks: str | None, all_stacks: bool, shell: Shell) -> None:
    """List live members: what they hold, and how they are doing.

    --stacks shows the handlers at work first, and equal stacks once.

    \b
    Examples:
      sparrowmq group members billing
      sparrowmq group members billing --stacks 10.0.0.7@4711
    """
    if all_stacks and stacks is None:
        raise click.UsageError("--all-stacks needs the member: give it with --stacks CLIENT")

    async def look(admin: Admin) -> Report:
        if stacks is None:
            found = await admin.members(name)
            return Report([members_table(found)], found.errors)
        member = await admin.member(name, stacks, stacks=True)
        text = member.stacks or "it gave none"
        lines = text.splitlines() if all_stacks else readable_stacks(text)
        return Report([table([("STACK", "stack")], [[line] for line in lines], key="stacks")])

    shell.report(look)


def members_table(found: Sequence[GroupMember]) -> Table:
    """A row for each member. What a member does not report about itself is unknown."""
    rows: list[list[Value]] = [
        [
            each.client_id,
            each.address,
            each.language,
            each.version,
            None if each.queues is None else len(each.queues),
            each.done_per_s,
            each.failed_per_s,
            None if each.notes is None else "; ".join(_waits_for(each)),
        ]
        for each in found
    ]
    columns: Columns = [
        ("CLIENT", "client"),
        ("ADDRESS", "address"),
        ("LANGUAGE", "language"),
        ("VERSION", "version"),
        ("QUEUES", "queues", Kind.NUMBER),
        ("OK/S", "okPerS", Kind.NUMBER),
        ("FAILED/S", "failedPerS", Kind.NUMBER),
        ("WAITS-FOR", "waitsFor"),
    ]
    return table(columns, rows, title="members", key="members", empty="no member is online")


def _waits_for(member: GroupMember) -> Iterator[str]:
    yield from (member.notes or {}).values()
    if member.unfinished_s is not None and member.unfinished_s >= HANDLER_SHOWN_S:
        noun = "message" if member.in_flight == 1 else "messages"
        most = "at most " if member.may_be_idle else ""
        yield (
            f"its handler: {member.in_flight:,} {noun}, none finished for"
            f" {most}{member.unfinished_s:,.0f} s"
        )


# ---- subscriptions


@group.command("subscriptions")
@click.argument("name", shell_complete=complete_groups)
@shell_options()
def subscriptions(name: str, shell: Shell) -> None:
    """List what members subscribe to, and how they differ.

    \b
    Example:
      sparrowmq group subscriptions billing
    """

    async def look(admin: Admin) -> Report:
        found = await admin.subscriptions(name)
        return Report([subscriptions_table(list(found))], found.errors)

    shell.report(look)


def subscriptions_table(found: list[GroupSubscription]) -> Table:
    """A row for each subscription."""
    rows: list[list[Value]] = [
        [
            each.subscription.topic,
            each.subscription.kind,
            each.subscription.expression,
            each.members,
            each.difference,
        ]
        for each in found
    ]
    columns = [
        ("TOPIC", "topic"),
        ("TYPE", "type"),
        ("EXPRESSION", "expression"),
        ("MEMBERS", "members"),
        ("DIFFERENCE", "difference"),
    ]
    empty = "no member is online, so the subscriptions are unknown"
    return table(columns, rows, title="subscriptions", key="subscriptions", empty=empty)


def commands() -> list[click.Command]:
    """For the program."""
    from sparrowmq.cli.commands import group_changes, group_progress

    for command in (*group_changes.commands(), *group_progress.commands()):
        group.add_command(command)
    return [group]
