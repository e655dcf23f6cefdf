"""`sparrowmq group reset | undo | clone`: moving the progress of groups. `group_lag` shows it."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import click

from sparrowmq.admin.admin import Admin
from sparrowmq.admin.offsets import MoveBy, OffsetMove, ResetTo
from sparrowmq.admin.reset_journal import ResetJournal, ResetRecord
from sparrowmq.admin.resets import JournaledReset, tripped_backlogs
from sparrowmq.cli.commands.pipeline_options import operator_name
from sparrowmq.cli.completion import complete_groups
from sparrowmq.cli.output import Columns, Kind, Report, Table, Value, table
from sparrowmq.cli.queues import Goal, QueueName, QueueType, Steps, chosen_queues
from sparrowmq.cli.shell import Shell, dry_run_option, shell_options, topic_option, yes_option
from sparrowmq.cli.stop_signal import RUN_AGAIN
from sparrowmq.client.errors import counted
from sparrowmq.protocol.message import MessageQueue

_MOST_NAMED = 8
"""Queues named in one sentence."""


def reset_journal() -> ResetJournal:
    """The journal of this user: `$XDG_STATE_HOME/sparrowmq/resets/`."""
    base = os.environ.get("XDG_STATE_HOME")
    state = Path(base) if base else Path.home() / ".local" / "state"
    return ResetJournal(state / "sparrowmq" / "resets")


# ---- reset


@click.command("reset")
@click.argument("name", shell_complete=complete_groups)
@topic_option(required=True, help="The topic to move in.")
@click.option(
    "--to",
    type=Goal(),
    metavar="PLACE",
    help="earliest, latest, a time (2026-11-15T13:30, -2h), or an offset.",
)
@click.option(
    "--by",
    type=Steps(),
    metavar="±N",
    help="Move forward (+1) or back (-100) by this many messages.",
)
@click.option(
    "--queue",
    "queues",
    type=QueueType(),
    multiple=True,
    metavar="BROKER/N",
    help="Only this queue; may be repeated.",
)
@dry_run_option
@yes_option
@shell_options()
def reset(
    name: str,
    topic: str,
    to: str | datetime | int | None,
    by: int | None,
    queues: tuple[QueueName, ...],
    dry_run: bool,
    yes: bool,
    shell: Shell,
) -> None:
    """Move a group's progress in a topic. The old progress is recorded: see group undo.

    \b
    Examples:
      sparrowmq group reset billing --topic orders --to -24h --dry-run
      sparrowmq group reset billing --topic orders --to latest
      sparrowmq group reset billing --topic orders --queue broker-a/3 --by +1   # past a message
    """
    if (to is None) == (by is None):
        raise click.UsageError("give one of --to and --by")
    journal = reset_journal()
    chosen = chosen_queues(topic, queues)

    async def goal(admin: Admin) -> tuple[ResetTo, Sequence[MessageQueue]]:
        if by is not None:
            return MoveBy(by), chosen
        if isinstance(to, int):
            return dict.fromkeys(chosen or await _queues_of(admin, topic), to), ()
        assert to is not None
        return to, chosen  # type: ignore[return-value]  # a word that the option has checked

    async def move(admin: Admin, *, is_dry: bool) -> JournaledReset:
        place, only = await goal(admin)
        return await admin.reset_with_journal(
            name,
            topic,
            place,
            queues=only,
            journal=journal,
            who=operator_name(),
            dry_run=is_dry,
        )

    async def look(
        admin: Admin,
    ) -> tuple[JournaledReset, Mapping[MessageQueue, str], list[str]]:
        planned = await move(admin, is_dry=True)
        warnings = tripped_backlogs(await admin.topic(topic), name, planned.moves)
        return planned, await _owners(admin, name), warnings

    planned, owners, warnings = shell.ask(look)
    for warning in warnings:
        shell.warn(f"{warning} (sparrowmq quota list)")
    if not dry_run:
        shell.confirm(_question(name, topic, planned.moves), name, yes=yes)
        planned = shell.change(
            lambda admin: move(admin, is_dry=False),
            next_step=_after_a_stop(journal, name, is_repeatable=by is None),
        )
    _show_moves(shell, planned, owners, name, _never_read(planned.unread), dry_run=dry_run)


def _never_read(queues: Sequence[MessageQueue]) -> str:
    return (
        f"never read: {_places(queues)}; SKIPPED counts from the oldest message, and since progress"
        " cannot be taken away again, group undo sets such a queue to that message"
    )


def _places(queues: Sequence[MessageQueue]) -> str:
    more = f" and {len(queues) - _MOST_NAMED:,} more" if len(queues) > _MOST_NAMED else ""
    return ", ".join(each.place for each in queues[:_MOST_NAMED]) + more


def _after_a_stop(journal: ResetJournal, name: str, *, is_repeatable: bool) -> Callable[[], str]:
    """What to do if a signal ends a reset that begins now; its record is in the journal before the
    first offset moves."""
    known = {each.id for each in journal.records(name)}

    def next_step() -> str:
        begun = [each.id for each in journal.records(name) if each.id not in known]
        if not begun:
            return "no offset was moved; run it again"
        undo = f"sparrowmq group undo {name} {begun[0]}"
        if is_repeatable:
            return f"{RUN_AGAIN}; back again: {undo}"
        # Steps count from where each queue is now
        return f"queues that were moved stay moved; go back before you run it again: {undo}"

    return next_step


async def _queues_of(admin: Admin, topic: str) -> list[MessageQueue]:
    route = await admin.route(topic)
    return [
        MessageQueue(topic, data.broker_name, number)
        for data in route.queue_datas
        for number in range(data.read_queue_nums)
    ]


async def _owners(admin: Admin, name: str) -> dict[MessageQueue, str]:
    return {
        queue: member.client_id
        for member in await admin.members(name)
        for queue in member.queues or ()
    }


def _question(name: str, topic: str, moves: Sequence[OffsetMove]) -> str:
    skipped, repeated = (sum(each.skipped for each in moves), sum(each.repeated for each in moves))
    return (
        f"group {name} would move in {counted(len(moves), 'queue')} of topic {topic}:"
        f" {counted(skipped, 'message')} skipped, {repeated:,} delivered again"
    )


def _show_moves(
    shell: Shell,
    made: JournaledReset,
    owners: Mapping[MessageQueue, str],
    name: str,
    unread: str,
    *,
    dry_run: bool,
) -> None:
    """`unread` is said if there are queues in which the group had no progress."""
    facts: dict[str, Value] = {
        "id": made.record.id if made.record else "",
        "skipped": sum(each.skipped for each in made.moves),
        "repeated": sum(each.repeated for each in made.moves),
    }
    if made.record is None:
        del facts["id"]
    shell.show(Report([_moves_table(made.moves, owners)], facts=facts))
    if made.unread:
        shell.say(unread)
    if dry_run:
        shell.dry()
    elif made.record is not None:
        shell.done(f"group {name} moved")
        shell.say(f"back again: sparrowmq group undo {name} {made.record.id}")


def _moves_table(moves: Sequence[OffsetMove], owners: Mapping[MessageQueue, str]) -> Table:
    rows: list[list[Value]] = [
        [
            each.queue.place,
            "" if each.before is None else each.before,
            each.after,
            each.skipped,
            each.repeated,
            owners.get(each.queue, ""),
        ]
        for each in moves
    ]
    columns: Columns = [
        ("QUEUE", "queue"),
        ("WAS", "was", Kind.NUMBER),
        ("NOW", "now", Kind.NUMBER),
        ("SKIPPED", "skipped"),
        ("REPEATED", "repeated"),
        ("OWNER", "owner"),
    ]
    return table(columns, rows)


# ---- undo


@click.command("undo")
@click.argument("name", shell_complete=complete_groups)
@click.argument("reset_id", required=False, metavar="[ID]")
@click.option("--list", "is_list", is_flag=True, help="List the recorded resets.")
@click.option("--force", is_flag=True, help="Undo although members have consumed more since.")
@dry_run_option
@yes_option
@shell_options()
def undo(
    name: str,
    reset_id: str | None,
    is_list: bool,
    force: bool,
    dry_run: bool,
    yes: bool,
    shell: Shell,
) -> None:
    """Undo a reset: the last one, or the one with this id.

    \b
    Examples:
      sparrowmq group undo billing --list
      sparrowmq group undo billing --dry-run
      sparrowmq group undo billing 20261118-133506-3f9a
    """
    journal = reset_journal()
    if is_list:
        shell.show(Report([_records_table(journal.records(name))]))
        return

    async def move(admin: Admin, *, is_dry: bool) -> JournaledReset:
        return await admin.undo_reset(
            name, reset_id, journal=journal, who=operator_name(), force=force, dry_run=is_dry
        )

    async def look(admin: Admin) -> tuple[JournaledReset, Mapping[MessageQueue, str]]:
        return await move(admin, is_dry=True), await _owners(admin, name)

    planned, owners = shell.ask(look)
    if not dry_run:
        topic = planned.moves[0].queue.topic
        shell.confirm(_question(name, topic, planned.moves), name, yes=yes)
        planned = shell.change(lambda admin: move(admin, is_dry=False))
    set_back = (
        f"{_places(planned.unread)}: the group had no progress there; it is set to the oldest"
        " message at the reset, and reads all from there"
    )
    _show_moves(shell, planned, owners, name, set_back, dry_run=dry_run)


def _records_table(records: Sequence[ResetRecord]) -> Table:
    rows: list[list[Value]] = [
        [
            each.id,
            each.kind,
            each.when,
            each.who,
            each.cluster.names,
            ", ".join(each.cluster.name_servers),
            each.topic,
            len(each.moves),
            each.state if not each.undone_by else f"undone by {each.undone_by}",
        ]
        for each in records
    ]
    columns: Columns = [
        ("ID", "id"),
        ("KIND", "kind"),
        ("WHEN", "when", Kind.TIME),
        ("WHO", "who"),
        ("CLUSTER", "cluster"),
        ("NAME-SERVERS", "nameServers"),
        ("TOPIC", "topic"),
        ("QUEUES", "queues"),
        ("STATE", "state"),
    ]
    return table(columns, rows, empty="no reset of this group is written down here")


# ---- clone


@click.command("clone")
@click.argument("source", metavar="FROM", shell_complete=complete_groups)
@click.argument("target", metavar="TO", shell_complete=complete_groups)
@topic_option(help="Only in this topic.")
@dry_run_option
@yes_option
@shell_options()
def clone(
    source: str, target: str, topic: str | None, dry_run: bool, yes: bool, shell: Shell
) -> None:
    """Copy progress to another group, which must be offline.

    \b
    Example:
      sparrowmq group clone billing billing-new --dry-run
    """

    async def copy(admin: Admin, *, is_dry: bool) -> list[OffsetMove]:
        return await admin.clone_offsets(source, target, topic=topic, dry_run=is_dry)

    moves = shell.ask(lambda admin: copy(admin, is_dry=True))
    if not moves:
        shell.warn(f"group {source} has no progress{f' in topic {topic}' if topic else ''}")
        sys.exit(1)
    if not dry_run:
        what = (
            f"group {target} would get the progress of {source} in {counted(len(moves), 'queue')}"
        )
        shell.confirm(what, target, yes=yes)
        moves = shell.change(lambda admin: copy(admin, is_dry=False))
    rows: list[list[Value]] = [[each.queue.topic, each.queue.place, each.after] for each in moves]
    columns = [("TOPIC", "topic"), ("QUEUE", "queue"), ("OFFSET", "offset")]
    shell.show(Report([table(columns, rows)]))
    if dry_run:
        shell.dry()
    else:
        shell.done(f"group {target} has the progress of {source}")


def commands() -> list[click.Command]:
    """For `sparrowmq group`."""
    from sparrowmq.cli.commands.group_lag import lag

    return [lag, reset, undo, clone]
