"""`sparrowmq broker drain` and `resume`: empty a broker before it is stopped."""

import sys
from collections.abc import Awaitable, Callable

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.drain_status import BrokerDrain
from sparrowmq.admin.drains import GRACE_S, DrainUnfinished, dead_letters
from sparrowmq.cli.completion import complete_brokers, complete_groups
from sparrowmq.cli.option_types import Duration, Wait
from sparrowmq.cli.output import Kind, Report, Value, cell, table
from sparrowmq.cli.shell import IN_PART, Shell, dry_run_option, shell_options
from sparrowmq.client.errors import counted
from sparrowmq.protocol.drain import DrainState

_APACHE = (
    "{0} is an Apache broker and cannot refuse messages: name servers hide it from producers, but"
    " only in memory. A restart of a name server, or a change of a topic, shows it again"
)


@click.command()
@click.argument("name", shell_complete=complete_brokers)
@click.option(
    "--ignore-group",
    "ignore_groups",
    multiple=True,
    metavar="GROUP",
    shell_complete=complete_groups,
    help="Do not wait for this group; may be repeated.",
)
@click.option(
    "--timeout",
    "limit_s",
    type=Wait(),
    metavar="DURATION",
    default=None,
    show_default="none",
    help="Stop waiting after this long; the broker stays read-only.",
)
@click.option(
    "--grace",
    "grace_s",
    type=Duration(),
    metavar="DURATION",
    default=GRACE_S,
    show_default="35s",
    help="How long connected producers may still send until they use other brokers.",
)
@dry_run_option
@click.option("--yes", is_flag=True, help="Leave dead letters behind without asking.")
@shell_options(timeout=False)
def drain(
    name: str,
    ignore_groups: tuple[str, ...],
    limit_s: float | None,
    grace_s: float,
    dry_run: bool,
    yes: bool,
    shell: Shell,
) -> None:
    """Empty a broker, so that it can be stopped without losing messages.

    It stops taking messages, even after a restart. The command waits until every group has read
    what is there and until delayed and half messages are done; then the broker leaves the name
    servers. Ctrl-C leaves it read-only. Run it again to continue, or `sparrowmq broker resume` to
    undo it.

    \b
    Examples:
      sparrowmq broker drain broker-a --dry-run
      sparrowmq broker drain broker-a --ignore-group reports --timeout 30m
    """
    if grace_s < 0:
        raise click.UsageError("--grace must be 0 or more, such as 35s")

    async def look(admin: Admin) -> BrokerDrain:
        return await admin.drain_broker(name, ignore_groups=ignore_groups, dry_run=True)

    found = shell.ask(look)
    if dry_run or found.state is DrainState.LEFT:
        shell.show(_report(found))
        if found.dead and not yes and found.state is not DrainState.LEFT:
            why = dead_letters(found)
            shell.warn(f"nothing was changed: a dry run; the drain needs --yes: {why}")
            sys.exit(1)
        shell.say(_outlook(found))
        return
    if found.dead:
        shell.preview(_report(found))
        count = sum(found.dead.values())
        shell.confirm(f"{counted(count, 'dead letter')} would stay behind on {name}", name, yes=yes)
    if found.is_apache:
        shell.say(_APACHE.format(name))

    def work(tell: Callable[[BrokerDrain], None]) -> Work:
        return lambda admin: admin.drain_broker(
            name,
            ignore_groups=ignore_groups,
            leave_dead_letters=yes or bool(found.dead),
            grace_s=grace_s,
            timeout_s=limit_s,
            progress=tell,
        )

    _wait(shell, name, work)


Work = Callable[[Admin], Awaitable[BrokerDrain]]


def _wait(shell: Shell, name: str, work: Callable[[Callable[[BrokerDrain], None]], Work]) -> None:
    """Drain the broker, and print the progress and the result."""
    said: list[BrokerDrain] = []

    def tell(now: BrokerDrain) -> None:
        if not said or is_news(said[-1], now):
            said.append(now)
            shell.say(_progress(now))

    async def run(admin: Admin) -> BrokerDrain | DrainUnfinished:
        try:
            return await work(tell)(admin)
        except DrainUnfinished as error:
            return error

    def next_step() -> str:
        state = "keeps draining and stays read-only" if said else "may have begun to drain"
        return (
            f"{name} {state}. Continue with: sparrowmq broker drain {name};"
            f" undo with: sparrowmq broker resume {name}"
        )

    ended = shell.change(run, next_step=next_step)
    if isinstance(ended, DrainUnfinished):
        shell.show(_report(ended.drain))
        shell.warn(str(ended))
        sys.exit(IN_PART)
    shell.show(_report(ended))
    shell.done(_how_to_go_on(ended))


_UNREAD = (
    ("GROUP", "group"),
    ("TOPIC", "topic"),
    ("LEFT", "left"),
    ("MEMBERS", "members"),
    ("WHY", "why"),
)
_WAITING = (("DELAYED", "delayed"), ("LAST-DUE", "lastDue", Kind.TIME), ("HALF", "half"))
_DEAD = (("GROUP", "group"), ("DEAD", "dead"))


def _report(found: BrokerDrain) -> Report:
    unread: list[list[Value]] = [
        [each.group, each.topic, each.messages, each.members, each.why] for each in found.unread
    ]
    # Apache's brokers do not report when the last one is due
    last_due: Value = found.last_due or (None if found.delayed else "")
    dead: list[list[Value]] = [[group, count] for group, count in sorted(found.dead.items())]
    notes = []
    if found.broadcasting:
        notes.append(f"broadcasting, so not waited for: {', '.join(found.broadcasting)}")
    if found.unasked:
        names = ", ".join(sorted(found.unasked))
        notes.append(f"did not say which groups read its topics there: {names}")
    if found.unclaimed:
        left = ", ".join(f"{topic} ({count:,})" for topic, count in sorted(found.unclaimed.items()))
        notes.append(f"messages that no group reads stay behind: {left}")
    return Report(
        [
            table(_UNREAD, unread, empty="every group has read what is there"),
            table(_WAITING, [[found.delayed, last_due, found.half]], key="waiting"),
            table(_DEAD, dead, key="deadLetters", empty="no dead letters"),
        ],
        facts={"broker": found.broker, "state": found.state},
        notes=notes,
    )


_NOTICED = 0.1
"""The share by which what is left must have changed to be said again: drains take hours."""


def is_news(last: BrokerDrain, now: BrokerDrain) -> bool:
    """Whether a look at a drain differs enough from the last one that was printed."""
    before, after = (each.left + each.delayed + each.half for each in (last, now))
    return _without_figures(last) != _without_figures(now) or (
        abs(after - before) > _NOTICED * before
    )


def _without_figures(found: BrokerDrain) -> tuple[object, ...]:
    return (
        found.failure,
        found.refuses_sends,
        found.is_settled,
        found.unasked,
        frozenset((each.group, each.why) for each in found.unread if not each.is_ignored),
        bool(found.delayed),
        bool(found.half),
    )


def _progress(found: BrokerDrain) -> str:
    if found.failure:
        return f"{found.broker} does not answer, trying again: {found.failure}"
    parts = []
    if not found.refuses_sends:
        parts.append("producers are turning to other brokers")
    if not found.is_settled:
        parts.append("it has just started, and members may still come back")
    if found.unasked:
        names = _few(sorted(found.unasked))
        parts.append(f"trying again to ask {names} which groups read its topics there")
    if found.left:
        parts.append(f"{counted(found.left, 'message')} left to {_few(_left_to(found))}")
    if found.delayed:
        due = f", the last due {cell(found.last_due)}" if found.last_due else ""
        parts.append(f"{found.delayed:,} delayed{due}")
    if found.half:
        parts.append(counted(found.half, "half message"))
    stuck = sorted(
        {f"{each.group} ({each.why})" for each in found.unread if each.why and not each.is_ignored}
    )
    if stuck:
        parts.append(f"{_few(stuck)} may never finish; skip a group with --ignore-group")
    return f"{found.broker} drains: {'; '.join(parts) or 'nothing is left'}"


def _left_to(found: BrokerDrain) -> list[str]:
    """Groups with messages left, those with the most first, with how many if there are several."""
    left: dict[str, int] = {}
    for each in found.unread:
        if not each.is_ignored:
            left[each.group] = left.get(each.group, 0) + each.messages
    most = sorted(left, key=lambda group: (-left[group], group))
    return [group if len(left) == 1 else f"{group} {left[group]:,}" for group in most]


def _few(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _outlook(found: BrokerDrain) -> str:
    if found.state is DrainState.LEFT:
        return f"{found.broker} is drained already; {_WHAT_NEXT.format(found.broker)}"
    if found.is_apache:
        return _APACHE.format(found.broker)
    return f"nothing was changed: a dry run; {found.broker} would wait for what is listed above"


_WHAT_NEXT = "it can be stopped; resume it with: sparrowmq broker resume {0}"


def _how_to_go_on(ended: BrokerDrain) -> str:
    if ended.is_apache:
        return f"{ended.broker} is empty: stop it soon, {_APACHE.format('it')}"
    silent = (
        f"; {', '.join(ended.unconfirmed)} did not answer, but will forget it within two minutes"
        if ended.unconfirmed
        else ""
    )
    return f"{ended.broker} is drained: {_WHAT_NEXT.format(ended.broker)}{silent}"


@click.command()
@click.argument("name", shell_complete=complete_brokers)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The broker, if it was drained and no name server has a note of it.",
)
@shell_options()
def resume(name: str, address: str | None, shell: Shell) -> None:
    """Let a broker that is draining or drained take messages again.

    \b
    Example:
      sparrowmq broker resume broker-a
    """

    async def work(admin: Admin) -> BrokerDrain:
        return await admin.resume_broker(name, address=address)

    before = shell.change(work)
    rows: list[list[Value]] = [[name, before.address, before.state, DrainState.SERVING]]
    columns = (("BROKER", "broker"), ("ADDRESS", "address"), ("WAS", "was"), ("NOW", "now"))
    shell.show(Report([table(columns, rows)]))
    if before.state is DrainState.SERVING:
        shell.say(f"{name} is not draining; nothing was changed")
        return
    shell.done(f"{name} takes messages again; clients find it within 30 s")


def commands() -> list[click.Command]:
    """For `sparrowmq broker`."""
    return [drain, resume]
