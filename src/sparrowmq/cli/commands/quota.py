"""`sparrowmq quota …`: limits of traffic, how much of them is used, and changing them."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import click
from click.shell_completion import CompletionItem

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.limits import KINDS, Limit, checked_scope
from sparrowmq.admin.values import SettingChange
from sparrowmq.cli.cluster_tables import change_table
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.completion import complete_groups, complete_topics
from sparrowmq.cli.output import Column, Kind, Report, Value, table
from sparrowmq.cli.shell import Shell, brokers_option, dry_run_option, shell_options
from sparrowmq.cli.values import format_value, parse_value
from sparrowmq.protocol.limits import BacklogAction, Scope

_COLUMNS = (
    ("SCOPE", "scope"),
    ("NAME", "name"),
    ("LIMIT-IN-ALL", "limit"),
    ("PER-BROKER", "perBroker"),
    ("USE", "use"),
    Column("REFUSALS/MIN", "refusedPerMin", is_sum=True),
    ("SINCE", "since", Kind.TIME),
)
_SCOPES = [each.value for each in Scope]


class RateOption(click.ParamType[int]):
    """A rate per second: `1000/s`, `10MiB/s`; the `/s` may be left out."""

    name = "rate"

    def __init__(self, unit: str, example: str) -> None:
        self._unit = unit
        self._example = example

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number."""
        if isinstance(value, int):
            return value
        try:
            found: int = parse_value(str(value).removesuffix("/s"), int, self._unit)
        except ValueError:
            self.fail(f"{value!r} is not a rate; write {self._example}", param, ctx)
        if found < 1:
            self.fail(f"{value!r}: must be 1/s or more; quota unset removes a limit", param, ctx)
        return found


class BacklogOption(click.ParamType[tuple[int | None, int | None]]):
    """Messages (`100000`) or a time (`10m`)."""

    name = "backlog"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int | None, int | None]:
        """Messages or seconds."""
        if isinstance(value, tuple):
            return value
        text = str(value)
        is_count = text.isascii() and text.isdigit()
        try:
            number = int(text) if is_count else float(parse_value(text, float, "backlog_s"))
        except ValueError:
            number = 0
        if number < 1 or number != int(number):
            allowed = "messages such as 100000, or whole seconds such as 60s, 10m or 2h"
            self.fail(f"{value!r} is no backlog; write {allowed}", param, ctx)
        return (int(number), None) if is_count else (None, int(number))


@click.group(cls=Group)
def quota() -> None:
    """Limit the rates of sends and deliveries, and the backlog."""


@quota.command("list")
@shell_options(watch=True)
def list_quotas(shell: Shell) -> None:
    """List all limits with their use, summed over brokers.

    Each broker counts for itself: LIMIT-IN-ALL is what they let through together. SINCE says since
    when a limit has been refusing, holding or slowing something. A producer that asks again after a
    refusal may be refused again.

    \b
    Examples:
      sparrowmq quota list
      sparrowmq quota list --watch
    """

    async def look(admin: Admin) -> Report:
        listed = await admin.limits()
        grouped = "," if shell.is_terminal and not shell.as_json else ""
        rows = [row for each in listed for row in _rows(each, grouped)]
        notes = [note for each in listed for note in _notes(each)]
        empty = "nothing is limited; see: sparrowmq quota set --help"
        return Report([table(_COLUMNS, rows, empty=empty)], errors=listed.errors, notes=notes)

    shell.report(look)


def _rows(limit: Limit, grouped: str) -> list[list[Value]]:
    """A row for each unit that is limited; `grouped` is `,` for thousands separators."""
    tail: list[Value] = [limit.refused_last_minute, limit.since or ""]
    if limit.backlog is not None:
        unit = "s" if limit.backlog.is_time else "messages"
        groups = ", ".join(limit.backlog.groups)
        text = (
            f"{limit.backlog.most:{grouped}} {unit} behind: {limit.backlog.action.value} ({groups})"
        )
        worst = max(limit.lags.values(), default=0)
        where = _where(limit.brokers)
        return [[limit.scope, limit.name, text, where, f"{worst:{grouped}} {unit}", *tail]]
    rows: list[list[Value]] = []
    if limit.messages is not None:
        used = f"{limit.used_messages:{grouped}.0f} messages/s"
        each = {
            name: f"{it.messages:{grouped}} messages/s" for name, it in _parts(limit) if it.messages
        }
        most = f"{limit.messages:{grouped}} messages/s"
        rows.append([limit.scope, limit.name, most, _each(each), used, *tail])
    if limit.bytes is not None:
        most, used = (_size(each, grouped) for each in (limit.bytes, round(limit.used_bytes)))
        each = {name: _size(it.bytes, grouped) for name, it in _parts(limit) if it.bytes}
        rows.append([limit.scope, limit.name, most, _each(each), used, *tail])
    return rows


def _parts(limit: Limit) -> list[tuple[str, Limit]]:
    return list(limit.by_broker.items()) or [(name, limit) for name in limit.brokers]


def _each(amounts: Mapping[str, str]) -> str:
    """What each broker lets through."""
    if len(set(amounts.values())) == 1:
        return f"{next(iter(amounts.values()))} {_where(amounts)}"
    return ", ".join(f"{name}: {amount}" for name, amount in sorted(amounts.items()))


def _where(brokers: Collection[str]) -> str:
    return (
        f"on {next(iter(brokers), '')}"
        if len(brokers) == 1
        else f"on each of {len(brokers)} brokers"
    )


def _size(per_second: int, grouped: str = ",") -> str:
    text = format_value(per_second, "bytes")
    return f"{per_second:{grouped}} bytes/s" if text.isdigit() else f"{text}/s"


def _notes(limit: Limit) -> list[str]:
    return [
        f"{limit.name}: group {group} does not count: {why}"
        for group, why in limit.uncounted.items()
    ]


# ---- set and unset


def _complete_name(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    complete = {
        Scope.TOPIC.value: complete_topics,
        Scope.CONSUMER_GROUP.value: complete_groups,
    }
    found = complete.get(ctx.params.get("scope", ""))
    return [] if found is None else found(ctx, param, incomplete)


@quota.command("set")
@click.argument("scope", type=click.Choice(_SCOPES), metavar="SCOPE")
@click.argument("name", default="*", shell_complete=_complete_name)
@click.option(
    "--messages",
    type=RateOption("count", "messages per second, such as 500 or 500/s"),
    metavar="N/s",
    help="Messages per second.",
)
@click.option(
    "--bytes",
    "size",
    type=RateOption("bytes", "bytes per second, such as 10MiB/s or 500000/s"),
    metavar="SIZE/s",
    help="Bytes per second.",
)
@click.option(
    "--backlog",
    type=BacklogOption(),
    metavar="N|DURATION",
    help="The furthest that groups may be behind, in messages or in time.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="GROUP",
    shell_complete=complete_groups,
    help="For --backlog; may be repeated.",
)
@click.option(
    "--action",
    type=click.Choice([each.value for each in BacklogAction]),
    help="For --backlog: refuse sends (default), or slow them.",
)
@brokers_option
@dry_run_option
@shell_options()
def set_limit(
    scope: str,
    name: str,
    messages: int | None,
    size: int | None,
    backlog: tuple[int | None, int | None] | None,
    groups: tuple[str, ...],
    action: str | None,
    brokers: tuple[str, ...],
    dry_run: bool,
    shell: Shell,
) -> None:
    """Set a limit, which counts on each broker separately. What is not given stays as it is.

    SCOPE is topic, producer-group, consumer-group or client. A topic and a producer-group are
    limited in what they send, a consumer-group in what it gets. `client` needs no name: it is one
    quota that every client has.

    \b
    Examples:
      sparrowmq quota set topic orders --messages 1000/s --bytes 10MiB/s
      sparrowmq quota set producer-group orders-svc --messages 200/s
      sparrowmq quota set consumer-group billing --messages 500/s
      sparrowmq quota set client --messages 50/s
      sparrowmq quota set topic orders --backlog 100000 --group billing --action slow
    """
    _check_usage(scope, name, messages, size, backlog, groups, action)

    async def change(admin: Admin, *, is_dry: bool) -> list[SettingChange]:
        changes: list[SettingChange] = []
        if backlog is not None:
            changes += await admin.set_backlog(
                name,
                groups,
                messages=backlog[0],
                seconds=backlog[1],
                action=action or BacklogAction.REFUSE.value,
                brokers=brokers,
                dry_run=is_dry,
            )
        if messages is not None or size is not None:
            changes += await admin.set_quota(
                scope, name, messages=messages, bytes=size, brokers=brokers, dry_run=is_dry
            )
        return changes

    async def work(admin: Admin) -> list[SettingChange]:
        planned = await change(admin, is_dry=True)  # both are checked before one is set
        return planned if dry_run or not planned else await change(admin, is_dry=False)

    changes = shell.change(work, dry_run=dry_run)
    amounts = [] if messages is None else [f"{messages:,} messages/s"]
    amounts += [] if size is None else [_size(size)]
    amounts += [] if backlog is None else ["a largest backlog"]
    where = _where({each.broker for each in changes})
    done = f"set: {' and '.join(amounts)} {where}"
    _show(shell, changes, f"{scope} {name}", done, dry_run=dry_run)


def _check_usage(
    scope: str,
    name: str,
    messages: int | None,
    size: int | None,
    backlog: tuple[int | None, int | None] | None,
    groups: Sequence[str],
    action: str | None,
) -> None:
    _check_name(scope, name)
    if messages is None and size is None and backlog is None:
        raise click.UsageError("no limit is given: --messages, --bytes or --backlog")
    if backlog is None and (groups or action):
        raise click.UsageError("--group and --action belong to --backlog")
    if backlog is not None and scope != Scope.TOPIC.value:
        raise click.UsageError(f"a {scope} has no backlog: quota set topic NAME --backlog …")
    if backlog is not None and not groups:
        raise click.UsageError("--backlog needs --group: the groups that may stop producers")


def _check_name(scope: str, name: str) -> None:
    if name == "*" and scope != Scope.CLIENT.value:
        raise click.UsageError(f"which {scope}? give its NAME")
    try:
        checked_scope(scope, name)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


@quota.command("unset")
@click.argument("scope", type=click.Choice(_SCOPES), metavar="SCOPE")
@click.argument("name", default="*", shell_complete=_complete_name)
@click.option("--messages", is_flag=True, help="Only the limit of messages.")
@click.option("--bytes", "size", is_flag=True, help="Only the limit of bytes.")
@click.option("--backlog", is_flag=True, help="Only the largest backlog.")
@brokers_option
@dry_run_option
@shell_options()
def unset(
    scope: str,
    name: str,
    messages: bool,
    size: bool,
    backlog: bool,
    brokers: tuple[str, ...],
    dry_run: bool,
    shell: Shell,
) -> None:
    """Remove limits: all of them, or those that are named.

    \b
    Examples:
      sparrowmq quota unset topic orders
      sparrowmq quota unset topic orders --backlog
      sparrowmq quota unset client
    """
    _check_name(scope, name)
    if backlog and scope != Scope.TOPIC.value:
        raise click.UsageError(f"a {scope} has no backlog")
    flags = zip(KINDS, (messages, size, backlog), strict=True)
    which = [kind for kind, is_given in flags if is_given]

    async def work(admin: Admin) -> list[SettingChange]:
        return await admin.unset_limits(scope, name, which=which, brokers=brokers, dry_run=dry_run)

    given = zip(
        ("messages", "bytes", "the largest backlog"), (messages, size, backlog), strict=True
    )
    named = " and ".join(what for what, is_given in given if is_given)
    done = f"removed: {named}" if named else "removed"
    changes = shell.change(work, dry_run=dry_run)
    _show(shell, changes, f"{scope} {name}", done, dry_run=dry_run)


def _show(
    shell: Shell, changes: list[SettingChange], what: str, done: str, *, dry_run: bool
) -> None:
    shell.show(Report([change_table(changes)]))
    what = what.removesuffix(" *")
    if dry_run:
        shell.dry()
    elif changes:
        shell.done(f"limits of {what} are {done}")
    else:
        shell.say(f"limits of {what}: nothing to change")


def commands() -> list[click.Command]:
    """For the program."""
    return [quota]
