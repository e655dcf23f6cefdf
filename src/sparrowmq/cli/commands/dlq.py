"""`sparrowmq dlq …`: dead letters, the messages that groups have given up."""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.cluster_calls import at_once
from sparrowmq.admin.dead_letters import DeadLetterCount, origin_of
from sparrowmq.admin.errors import AdminError, failures_of
from sparrowmq.admin.resends import TO_GROUP, TO_TOPIC, Resend, Resent
from sparrowmq.admin.values import BrokerFailure, distinct
from sparrowmq.cli.command_group import Group
from sparrowmq.cli.commands.group import now
from sparrowmq.cli.commands.send import rate_option
from sparrowmq.cli.completion import complete_dead_letter_groups
from sparrowmq.cli.message_output import MORE, body_text, message_options
from sparrowmq.cli.option_types import Moment
from sparrowmq.cli.output import Column, Columns, Kind, Report, Table, Value, table
from sparrowmq.cli.shell import (
    Shell,
    dry_run_option,
    limit_option,
    match_option,
    shell_options,
    yes_option,
)
from sparrowmq.cli.stop_signal import RUN_AGAIN
from sparrowmq.client.errors import counted
from sparrowmq.disk.atomic_file import put_in_place
from sparrowmq.protocol.message_ext import MessageExt
from sparrowmq.protocol.names import dlq_topic

_since = click.option("--since", type=Moment(), metavar="TIME", help="Died at this time or later.")
_until = click.option("--until", type=Moment(), metavar="TIME", help="Died before this time.")

_STANDARD_OUTPUT = "-"


@click.group(cls=Group)
def dlq() -> None:
    """List dead letters, send them again, export them to a file."""


# ---- list


@dlq.command("list")
@match_option
@click.option("--since", type=Moment(), metavar="TIME", help="Only with dead letters since then.")
@limit_option
@shell_options(watch=True)
def list_dead_letters(match: str | None, since: datetime | None, limit: int, shell: Shell) -> None:
    """List groups with dead letters.

    \b
    Examples:
      sparrowmq dlq list
      sparrowmq dlq list --since -1h
    """
    recent = since or now() - timedelta(days=1)

    async def look(admin: Admin) -> Report:
        names = [
            each for each in await admin.dead_letter_groups() if fnmatchcase(each, match or "*")
        ]
        asked = names if since is not None or not limit else names[:limit]
        results = await at_once([partial(admin.count_dead_letters, each, recent) for each in asked])
        rows: list[tuple[str, DeadLetterCount | None]] = []
        errors: list[BrokerFailure] = []
        for name, result in zip(asked, results, strict=True):
            if isinstance(result, AdminError):
                rows.append((name, None))
                errors += failures_of(f"dead letters of {name}", result)
            else:
                rows.append((name, result))
                errors += result.errors
        if since is not None:
            rows = [(name, each) for name, each in rows if each is None or each.recent]
        total = len(names) if since is None else len(rows)
        kept = [each for _, each in rows if each is not None]
        shown = rows[:limit] if limit else rows
        title = "LAST-24H" if since is None else "SINCE"
        notes = [_unreadable(each) for each in kept if each.unreadable]
        return Report([_counts(shown, total, title)], distinct(errors), notes=notes)

    shell.report(look)


def _unreadable(each: DeadLetterCount) -> str:
    topic = dlq_topic(each.group)
    return (
        f"the dead letters of {each.group} cannot be read on {', '.join(each.unreadable)}; allow it"
        f" with: sparrowmq topic update '{topic}' --perm 6"
    )


def _counts(rows: Sequence[tuple[str, DeadLetterCount | None]], total: int, title: str) -> Table:
    cells: list[list[Value]] = [
        [name, None, None, None, None]
        if each is None
        else [
            name,
            each.messages,
            each.oldest if each.messages else "",
            each.newest if each.messages else "",
            each.recent,
        ]
        for name, each in rows
    ]
    columns: Columns = [
        ("GROUP", "group"),
        Column("DEAD", "dead", Kind.NUMBER, is_sum=True),
        ("OLDEST", "oldest", Kind.TIME),
        ("NEWEST", "newest", Kind.TIME),
        Column(title, "recent", Kind.NUMBER, is_sum=True),
    ]
    return table(columns, cells, total=total, empty="there are no dead letters")


# ---- show


@dlq.command("show")
@click.argument("group", shell_complete=complete_dead_letter_groups)
@_since
@_until
@click.option("--key", metavar="KEY", help="Only with this key.")
@message_options
@shell_options()
def show(
    group: str,
    since: datetime | None,
    until: datetime | None,
    key: str | None,
    limit: int,
    body: str,
    shell: Shell,
) -> None:
    """Show the dead letters of a group, the newest last.

    \b
    Examples:
      sparrowmq dlq show billing
      sparrowmq dlq show billing --since -1h --json
    """

    async def look(admin: Admin) -> Report:
        found = await admin.dead_letters(group, since=since, until=until, key=key, limit=limit)
        rows = [_letter(each, body, whole=shell.as_json) for each in found.messages]
        columns: Columns = [
            ("ID", "id"),
            ("DIED", "died", Kind.TIME),
            ("TOPIC", "topic"),
            ("TAG", "tag"),
            ("KEYS", "keys"),
            ("ATTEMPTS", "attempts"),
            ("BODY", "body"),
        ]
        letters = table(
            columns, rows, total=found.total, empty="there are none in that time", more=MORE
        )
        return Report([letters], found.errors)

    shell.report(look)


def _letter(each: MessageExt, form: str, *, whole: bool) -> list[Value]:
    return [
        each.msg_id,
        each.stored_at,
        origin_of(each),
        each.tags or "",
        each.keys,
        each.reconsume_times,
        body_text(each, form, whole=whole),
    ]


# ---- resend


@dlq.command("resend")
@click.argument("group", shell_complete=complete_dead_letter_groups)
@click.option("--id", "ids", multiple=True, metavar="ID", help="This one; may be repeated.")
@_since
@_until
@click.option("--all", "is_all", is_flag=True, help="All of them.")
@click.option(
    "--to",
    metavar="group|topic|NAME",
    default=TO_GROUP,
    show_default=True,
    help="The group that failed; the topic they came from, where every group gets them; or another"
    " topic.",
)
@rate_option
@dry_run_option
@yes_option
@shell_options()
def resend(
    group: str,
    ids: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    is_all: bool,
    to: str,
    rate: float | None,
    dry_run: bool,
    yes: bool,
    shell: Shell,
) -> None:
    """Send dead letters again, except those that were sent before.

    \b
    Examples:
      sparrowmq dlq resend billing --id 7F00000100002A9F0000000000000000
      sparrowmq dlq resend billing --since -1h --dry-run
      sparrowmq dlq resend billing --all --rate 100 --yes
    """
    has_range = since is not None or until is not None
    if sum((bool(ids), has_range, is_all)) != 1:
        raise click.UsageError("say which: --id, --since and --until, or --all")

    results: list[Resent] = []

    async def send(admin: Admin, *, is_dry: bool) -> None:
        results.clear()
        await admin.resend_dead_letters(
            group,
            ids=ids,
            since=since,
            until=until,
            to=to,
            rate=rate,
            dry_run=is_dry,
            on_result=results.append,
        )

    shell.ask(lambda admin: send(admin, is_dry=True))
    count = _sent(results)
    if dry_run or not count:
        _show_results(shell, group, results, dry_run=dry_run)
        return
    shell.confirm(_question(group, to, count), group, yes=yes)
    results.clear()
    try:
        shell.change(
            lambda admin: send(admin, is_dry=False),
            next_step=lambda: "" if results else RUN_AGAIN,  # results are shown below
        )
    except (KeyboardInterrupt, SystemExit) as end:
        if not results:
            raise
        _show_what_was_sent(shell, group, results)
        if isinstance(end, SystemExit) and _sent(results):
            sys.exit(3)
        raise
    _show_results(shell, group, results, dry_run=False)


def _sent(results: Sequence[Resent]) -> int:
    return sum(each.result is Resend.SENT for each in results)


def _show_what_was_sent(shell: Shell, group: str, results: Sequence[Resent]) -> None:
    """Show the results of a resend that was cut short."""
    with suppress(SystemExit):
        _show_results(shell, group, results, dry_run=False)
    shell.warn("it ended before the others; run it again: what was sent is left out then")


def _question(group: str, to: str, count: int) -> str:
    letters = _letters(group, count)
    if to == TO_GROUP:
        return f"{letters} would be sent to group {group} again, and to no other"
    if to == TO_TOPIC:
        return f"{letters} would be sent to where they came from, and EVERY group of it gets them"
    return f"{letters} would be sent to topic {to}, and every group of it gets them"


def _letters(group: str, count: int) -> str:
    return f"{counted(count, 'dead letter')} of {group}"


def _show_results(shell: Shell, group: str, results: Sequence[Resent], *, dry_run: bool) -> None:
    totals = Counter(each.result for each in results)
    rows: list[list[Value]] = [
        [each.message_id, each.died, each.target, _result(each, dry_run=dry_run), each.reason]
        for each in results
    ]
    columns: Columns = [
        ("ID", "id"),
        ("DIED", "died", Kind.TIME),
        ("TO", "to"),
        ("RESULT", "result"),
        ("REASON", "reason"),
    ]
    facts: dict[str, Value] = {
        "sent": totals[Resend.SENT],
        "sentBefore": totals[Resend.SENT_BEFORE],
        "refused": totals[Resend.REFUSED],
    }
    shell.show(Report([table(columns, rows, empty="there are none to send")], facts=facts))
    if dry_run:
        shell.say("nothing was sent: a dry run")
    elif totals[Resend.SENT]:
        shell.done(f"{_letters(group, totals[Resend.SENT])} sent again")
    if totals[Resend.REFUSED]:
        sys.exit(3 if totals[Resend.SENT] else 1)


def _result(each: Resent, *, dry_run: bool) -> Value:
    return "would be sent" if dry_run and each.result is Resend.SENT else each.result


# ---- export


@dlq.command("export")
@click.argument("group", shell_complete=complete_dead_letter_groups)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    required=True,
    metavar="FILE",
    help="A new file, one JSON object in a line; - for standard output.",
)
@_since
@_until
@shell_options()
def export(
    group: str, out: Path, since: datetime | None, until: datetime | None, shell: Shell
) -> None:
    """Write dead letters to a file, complete enough to resend them.

    \b
    Examples:
      sparrowmq dlq export billing --out billing.jsonl --since 2026-11-15
      sparrowmq dlq export billing --out - | jq .body
    """
    if str(out) == _STANDARD_OUTPUT:
        written = shell.ask(
            lambda admin: admin.export_dead_letters(group, click.echo, since=since, until=until)
        )
        shell.say(f"{_letters(group, written)} written")
        return
    # In a folder of the user's: the draft must have no name that is used by another program.
    draft = out.with_name(f"{out.name}.sparrowmq-draft")
    if out.exists():
        raise click.UsageError(f"{out} exists; choose another name, or remove it")
    if not out.parent.is_dir():
        raise click.UsageError(f"{out} cannot be written: there is no directory {out.parent}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            count = shell.ask(
                lambda admin: admin.export_dead_letters(
                    group, lambda line: file.write(f"{line}\n"), since=since, until=until
                )
            )
        put_in_place(draft, out)  # durably: the letters may be deleted next
    finally:
        draft.unlink(missing_ok=True)
    columns = [("DEAD", "dead"), ("FILE", "file")]
    shell.show(Report([table(columns, [[count, str(out)]])]))


def commands() -> list[click.Command]:
    """For the program."""
    return [dlq]
