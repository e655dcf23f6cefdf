"""`Shell`: what all commands that query or change a cluster share.

    @group.command("lag")
    @click.argument("name")
    @shell_options(watch=True)
    def lag(name: str, shell: Shell) -> None:
        async def look(admin: Admin) -> Report: ...
        shell.report(look)

The options say where the cluster is, how long a broker may take, and how the answer is printed.
Data goes to standard output, everything else to standard error. Exit codes: 0 done; 1 refused,
failed or no answer; 2 wrong usage; 3 done in part, where a broker did not answer.
"""

import asyncio
import functools
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.errors import AdminError, NotAllAnswered, PartlyDone
from sparrowmq.admin.values import BrokerFailure
from sparrowmq.cli.completion import complete_brokers, complete_topics
from sparrowmq.cli.option_types import Wait, Whole
from sparrowmq.cli.output import (
    Report,
    cut_note,
    document,
    fact_lines,
    json_text,
    lines_for_people,
    lines_for_pipes,
    one_line,
    table,
)
from sparrowmq.cli.remote import ORIGIN, explained, name_servers_option, run_remote
from sparrowmq.cli.stop_signal import RUN_AGAIN, changing

T = TypeVar("T")
IN_PART = 3
"""Exit code: some brokers did not answer, or did not do what was asked."""

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"
_WATCH_S = 2.0
_SILENCE_S = 60.0
"""How long to skip a broker that did not answer: longer than most commands take, but not for ever,
since some wait for minutes. A command that repeats itself asks it in every round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """Where a command's cluster is, and how its answers are printed."""

    name_servers: str
    origin: str = ""
    """Where the name servers were configured, as ` (from …)`; empty for an option."""
    timeout_s: float | None = None
    """How long each broker may take; None for Admin's default, 5 s."""
    as_json: bool = False
    is_quiet: bool = False
    is_verbose: bool = False
    watch_s: float | None = None
    """Seconds between two rounds of a command that repeats itself; None: one round."""

    # ---- asking

    def ask(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        """Run an operation. A failure is one line on standard error and exit code 1; a change made
        on only some brokers is exit code 3."""
        return run_remote(self._with_admin(work))

    def change(
        self,
        work: Callable[[Admin], Awaitable[T]],
        *,
        dry_run: bool = False,
        next_step: Callable[[], str] = lambda: RUN_AGAIN,
    ) -> T:
        """Like `ask`, for work that changes something: if a signal ends it, the command says what
        to do next."""
        if dry_run:
            return self.ask(work)
        with changing(next_step):
            return self.ask(work)

    def report(self, look: Callable[[Admin], Awaitable[Report]]) -> None:
        """Print what an operation finds, once or repeatedly, and end with exit code 3 if brokers
        did not answer."""
        if self.watch_s is not None:
            run_remote(self._with_admin(functools.partial(self._watch, look)))
            return
        found = self.ask(look)
        self.show(found)
        if found.errors:
            sys.exit(IN_PART)

    async def _with_admin(self, work: Callable[[Admin], Awaitable[T]]) -> T:
        try:
            limit: dict[str, Any] = {}
            if self.timeout_s is not None:
                limit["timeout_s"] = self.timeout_s
            silence_s = self.watch_s or _SILENCE_S
            async with Admin(self.name_servers, silence_s=silence_s, **limit) as admin:
                return await work(admin)
        except AdminError as error:
            if self.is_verbose:
                traceback.print_exc()
            if isinstance(error, PartlyDone):
                self._show_parts(error)
                sys.exit(IN_PART)
            if isinstance(error, NotAllAnswered):
                self.warn(error.summary)
                self._show_nothing(error.errors)
                sys.exit(IN_PART)
            raise

    async def _watch(self, look: Callable[[Admin], Awaitable[Report]], admin: Admin) -> None:
        """Repeat. The first round has to succeed, since repeating with a wrong address is
        pointless; later rounds may fail, and the next one follows all the same."""
        assert self.watch_s is not None
        self._show_round(await look(admin))
        while True:
            await asyncio.sleep(self.watch_s)
            try:
                found = await look(admin)
            except AdminError as error:
                self.warn(explained(error))
            else:
                self._show_round(found)

    def _show_round(self, found: Report) -> None:
        if self.is_terminal and not self.as_json:
            click.echo(_CLEAR, nl=False)
        self.show(found, one_line=True)

    # ---- printing

    @property
    def is_terminal(self) -> bool:
        """Whether people, not a program, read the output."""
        return sys.stdout.isatty()

    def show(self, report: Report, *, one_line: bool = False) -> None:
        """Print a report; its notes and the brokers that did not answer go to standard error."""
        if self.as_json:
            click.echo(json_text(document(report), indent=None if one_line else 2))
            return
        if self.is_terminal:
            for line in lines_for_people(report, sys.stdout):
                click.echo(line)
        else:
            self._pipe(report)
        for failure in report.errors:
            self.warn(str(failure))
        for each in report.tables:
            if each.is_cut:
                self.say(cut_note(each))
        for note in report.notes:
            self.say(note)

    def _pipe(self, report: Report) -> None:
        """Print the tables for a program; what only people read goes to standard error."""
        for line in fact_lines(report):
            self.say(line)
        for number, each in enumerate(report.tables):
            if number:
                click.echo()
            if each.title:
                self.say(each.title)
            for line in lines_for_pipes(each, is_partial=bool(report.errors)):
                click.echo(line)

    def _show_parts(self, error: PartlyDone) -> None:
        """Print the brokers on which a change was made."""
        results = dict.fromkeys(error.done, "done") | dict.fromkeys(error.failed, "not done")
        results |= dict.fromkeys(error.unknown, "not known")
        rows = [[broker, result] for broker, result in results.items()]
        parts = table([("BROKER", "broker"), ("RESULT", "result")], rows)
        failures = [BrokerFailure(broker, "", reason) for broker, reason in error.failed.items()]
        self.show(Report([parts], errors=failures if self.as_json else ()))
        self.warn(explained(error))

    def _show_nothing(self, errors: Sequence[BrokerFailure]) -> None:
        """Print who did not answer; nothing was found on the others."""
        if self.as_json:
            self.show(Report([table([], [])], errors))
            return
        for failure in errors:
            self.warn(str(failure))

    def say(self, text: str) -> None:
        """Print a sentence for people on standard error."""
        if not self.is_quiet:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Print a failure on standard error, even with --quiet."""
        click.echo(f"sparrowmq: {one_line(text)}", err=True)

    def done(self, text: str) -> None:
        """Print what was changed, and in which cluster."""
        self.say(f"{text} ({self.where})")

    def dry(self) -> None:
        """The end of every dry run of a change."""
        self.say("nothing was changed: a dry run")

    @property
    def where(self) -> str:
        """The cluster in words: its name servers, and where they were configured."""
        named_by = self.origin.replace(" (from ", ", from ").removesuffix(")")
        return f"name servers {self.name_servers.replace(';', ', ')}{named_by}"

    def preview(self, report: Report) -> None:
        """Show what a change affects, to people who are asked to confirm it."""
        if not self.is_quiet:
            for line in lines_for_people(report, sys.stderr):
                click.echo(line, err=True)

    # ---- asking back

    def confirm(self, what: str, name: str, *, yes: bool) -> None:
        """Ask before something is lost: at a terminal the user has to type the name, elsewhere
        `--yes` is needed. Otherwise the command ends with exit code 1."""
        if yes:
            return
        if not sys.stdin.isatty():
            self.warn(f"{what}: nothing was changed; --yes does it without asking")
            sys.exit(1)
        try:
            typed = click.prompt(f"{what}. Type {name} to go on", err=True, default="")
        except click.Abort:
            typed = ""
            click.echo(err=True)
        if typed != name:
            self.warn("nothing was changed")
            sys.exit(1)


def shell_options(
    *, watch: bool = False, json: bool = True, timeout: bool = True
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """The options of every cluster command, which gets them as `shell`. `timeout=False` is for a
    command that has its own --timeout, which limits the whole command."""

    def add(command: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(command)
        def wrapped(*args: Any, name_servers: str, **values: Any) -> T:
            own = {name: values.pop(name) for name in _OWN if name in values}
            context = click.get_current_context()
            shell = Shell(name_servers=name_servers, origin=context.meta.get(ORIGIN, ""), **own)
            return command(*args, shell=shell, **values)

        for option in reversed(_options(watch=watch, json=json, timeout=timeout)):
            wrapped = option(wrapped)
        return wrapped

    return add


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
_quiet_option = click.option(
    "--quiet", "-q", "is_quiet", is_flag=True, help="Print only data and errors."
)
_OWN = ("timeout_s", "as_json", "is_quiet", "is_verbose", "watch_s")


def _options(*, watch: bool, json: bool, timeout: bool) -> list[Callable[[Any], Any]]:
    options: list[Callable[[Any], Any]] = []
    if watch:
        options.append(
            click.option(
                "--watch",
                "watch_s",
                type=Wait(),
                is_flag=False,
                flag_value=_WATCH_S,
                metavar="[DURATION]",
                help="Repeat until Ctrl-C, every 2 s by default.",
            )
        )
    if json:
        options.append(json_option)
    if timeout:
        options.append(
            click.option(
                "--timeout",
                "timeout_s",
                type=Wait(),
                metavar="DURATION",
                default=None,
                show_default="5s",
                help="How long each broker may take to answer.",
            )
        )
    return [
        *options,
        name_servers_option,
        _quiet_option,
        click.option(
            "--verbose", "-v", "is_verbose", is_flag=True, help="Show the trace of an error."
        ),
    ]


def local_shell_options(command: Callable[..., T]) -> Callable[..., T]:
    """The options of commands that print like the others but do not ask a cluster."""

    @functools.wraps(command)
    def wrapped(*args: Any, as_json: bool, is_quiet: bool, **values: Any) -> T:
        shell = Shell(name_servers="", as_json=as_json, is_quiet=is_quiet)
        return command(*args, shell=shell, **values)

    return json_option(_quiet_option(wrapped))


def selected(names: Iterable[str], match: str | None, limit: int) -> tuple[list[str], int]:
    """The names that match, cut to a number of rows, and how many match."""
    found = [each for each in names if match is None or fnmatchcase(each, match)]
    return (found[:limit] if limit else found), len(found)


def key_value_pairs(pairs: Sequence[str], what: str) -> dict[str, str]:
    """Parse `KEY=VALUE` arguments. Raises UsageError for anything else, and for a duplicate
    key."""
    found: dict[str, str] = {}
    for each in pairs:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise click.UsageError(f"{what} {each!r} is not KEY=VALUE")
        if name in found:
            raise click.UsageError(f"{what} {name} is given twice")
        found[name] = value
    return found


limit_option = click.option(
    "--limit",
    type=Whole(min=0),
    metavar="N",
    default=100,
    show_default=True,
    help="At most this many rows; 0 for all.",
)
match_option = click.option(
    "--match", metavar="GLOB", help="Only names that match, such as 'order*'."
)
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Show what would change, and stop.")
topic_option = functools.partial(
    click.option, "--topic", metavar="TOPIC", shell_complete=complete_topics
)
"""`--topic`; the command adds the help text."""
brokers_option = click.option(
    "--broker",
    "brokers",
    multiple=True,
    shell_complete=complete_brokers,
    help="Only on this broker; may be repeated.",
)
cluster_option = click.option(
    "--cluster", metavar="NAME", help="Only on the brokers of this cluster."
)


def check_where(brokers: Sequence[str], cluster: str | None) -> None:
    """Raises UsageError for both kinds of places."""
    if brokers and cluster:
        raise click.UsageError("--broker and --cluster cannot be combined")
