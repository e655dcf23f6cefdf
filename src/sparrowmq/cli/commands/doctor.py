"""`sparrowmq doctor`"""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

import click
from click.shell_completion import CompletionItem

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.doctor.catalogue import CATALOGUE, About, Severity
from sparrowmq.admin.doctor.findings import Examination, Finding, NotMade
from sparrowmq.cli.commands.message import newest_with_key
from sparrowmq.cli.completion import complete_groups, complete_topics
from sparrowmq.cli.option_types import Duration, Whole
from sparrowmq.cli.output import Report, harmless, table
from sparrowmq.cli.shell import Shell, shell_options, topic_option
from sparrowmq.client.errors import counted

_COLUMNS = (
    ("SEVERITY", "severity"),
    ("FINDING", "finding"),
    ("SUBJECT", "subject"),
    ("EVIDENCE", "evidence"),
    ("CAUSE", "cause"),
    ("DO", "do"),
    ("COMMAND", "command"),
)
_WIDEST = 100
_LEAST = 40
_INDENT = " " * 12
_COLOURS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.NOTE: "cyan"}


def _complete_subject(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    complete = {About.TOPIC: complete_topics, About.GROUP: complete_groups}
    found = complete.get(ctx.params.get("about", ""))
    return [] if found is None else found(ctx, param, incomplete)


def _complete_about(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    return [each.value for each in About if each.value.startswith(incomplete)]


@click.command()
@click.argument(
    "about",
    required=False,
    metavar="[topic|group|message|cluster]",
    shell_complete=_complete_about,
)
@click.argument("name", required=False, shell_complete=_complete_subject)
@topic_option(help="The topic of the message.")
@click.option("--key", metavar="KEY", help="Of a message, instead of ID: the newest with this key.")
@click.option(
    "--severity",
    type=click.Choice([each.value for each in Severity]),
    default=Severity.NOTE.value,
    show_default=True,
    help="Show findings of at least this severity.",
)
@click.option(
    "--for",
    "for_s",
    type=Duration(),
    default=2.0,
    show_default="2s",
    metavar="DURATION",
    help="Time between the two looks at a group.",
)
@click.option(
    "--limit",
    type=Whole(min=0),
    default=100,
    show_default=True,
    metavar="N",
    help="Without a name: examine at most this many topics and groups; 0 for all.",
)
@click.option("--list", "lists", is_flag=True, help="List everything that can be found, and stop.")
@shell_options()
def doctor(
    about: str | None,
    name: str | None,
    topic: str | None,
    key: str | None,
    severity: str,
    for_s: float,
    limit: int,
    lists: bool,
    shell: Shell,
) -> None:
    """Say what is wrong, why, and what to do about it.

    Without arguments everything is examined. Nothing is changed. The exit code is 1 from a warning
    on, and 0 when there is nothing or only notes.

    \b
    Examples:
      sparrowmq doctor
      sparrowmq doctor group billing
      sparrowmq doctor message 0A000001… --topic orders
      sparrowmq doctor message --topic orders --key o-17
      sparrowmq doctor --severity warning --json
    """
    if lists:
        shell.show(_catalogue())
        return
    _check(about, name, topic, key)

    async def work(admin: Admin) -> Examination:
        if key is not None:
            assert topic is not None
            newest = await newest_with_key(admin, topic, key)
            return await admin.doctor(about, newest.msg_id, topic=topic, for_s=for_s)
        return await admin.doctor(about, name, topic=topic, for_s=for_s, limit=limit)

    examined = shell.ask(work)
    shown = examined.at_least(Severity(severity))
    _show(shell, examined, shown)
    if any(each.severity is not Severity.NOTE for each in shown):
        sys.exit(1)


def _check(about: str | None, name: str | None, topic: str | None, key: str | None) -> None:
    if about is not None and about not in tuple(About):
        raise click.UsageError(f"{about!r} cannot be examined, only {', '.join(About)}")
    if key is not None:
        if about != About.MESSAGE or name is not None or topic is None:
            raise click.UsageError(
                "--key finds a message: sparrowmq doctor message --topic TOPIC --key KEY"
            )
        return
    if about not in (None, About.CLUSTER) and name is None:
        raise click.UsageError(f"which {about}? write: sparrowmq doctor {about} NAME")


def _catalogue() -> Report:
    columns = (
        ("FINDING", "finding"),
        ("ABOUT", "about"),
        ("SEVERITY", "severity"),
        ("MEANING", "meaning"),
        ("DO", "do"),
    )
    rows = [
        (each.id, each.about, each.severity, each.what, each.remedy) for each in CATALOGUE.values()
    ]
    return Report([table(columns, rows)])


# ---- printing


def _show(shell: Shell, examined: Examination, shown: Sequence[Finding]) -> None:
    if shell.is_terminal and not shell.as_json:
        width = max(_LEAST, min(_WIDEST, shutil.get_terminal_size().columns))
        has_colours = not os.environ.get("NO_COLOR")
        for line in paragraphs(shown, width, has_colours=has_colours):
            click.echo(line)
        _tell(shell, examined, shown)
        return
    report = _report(examined, shown, with_not_made=shell.as_json)
    shell.show(report)
    if not shell.as_json:
        _tell(shell, examined, shown)


def _report(examined: Examination, shown: Sequence[Finding], *, with_not_made: bool) -> Report:
    rows = [
        (each.severity, each.id, each.subject, each.evidence, each.cause, each.remedy, each.command)
        for each in shown
    ]
    tables = [table(_COLUMNS, rows)]
    if with_not_made:
        columns = (("CHECKS", "checks"), ("SUBJECT", "subject"), ("REASON", "reason"))
        skipped = [(each.ids, each.subject, each.reason) for each in examined.not_made]
        tables.append(table(columns, skipped, key="notMade"))
        return Report(tables, examined.errors, {"checked": examined.checked})
    return Report(tables)


def _tell(shell: Shell, examined: Examination, shown: Sequence[Finding]) -> None:
    """Tell people what was checked and what was not."""
    for each in examined.not_made:
        shell.say(_not_made(each))
    shell.say(f"{examined.checked}: {_counts(shown)} ({shell.where})")


def _not_made(each: NotMade) -> str:
    count = len(each.ids)
    checks = ", ".join(each.ids) if count <= 3 else f"{count} checks"
    were = "was" if count == 1 else "were"
    return f"{checks} {were} not made for {harmless(each.subject)}: {harmless(each.reason)}"


def _counts(shown: Sequence[Finding]) -> str:
    counts = dict.fromkeys(Severity, 0)
    for each in shown:
        counts[each.severity] += 1
    texts = [counted(count, severity) for severity, count in counts.items() if count]
    return ", ".join(texts) or "nothing is wrong"


def paragraphs(shown: Sequence[Finding], width: int, *, has_colours: bool) -> Iterator[str]:
    """The findings for people: a few lines each, since a table of them would be too wide. Names are
    never cut."""
    for each in shown:
        title = each.severity.value
        if has_colours:
            title = click.style(title, fg=_COLOURS[each.severity], bold=True)
        yield f"{title} {each.id}: {harmless(each.subject)}"
        yield from _wrapped("", f"{each.what[0].upper()}{each.what[1:]}.", width)
        yield from _wrapped("evidence", each.evidence, width)
        yield from _wrapped("cause", each.cause, width)
        yield from _wrapped("do", each.remedy, width)
        yield f"{_INDENT}$ {harmless(each.command)}"
        yield ""


def _wrapped(label: str, text: str, width: int) -> list[str]:
    return textwrap.wrap(
        harmless(text),
        width,
        initial_indent=f"  {label:<9} " if label else "  ",
        subsequent_indent=_INDENT if label else "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def commands() -> list[click.Command]:
    """For the program."""
    return [doctor]
