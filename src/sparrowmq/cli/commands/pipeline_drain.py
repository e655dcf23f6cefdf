"""`sparrowmq pipeline drain`"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from sparrowmq.cli.commands.pipeline_checks import check_topics
from sparrowmq.cli.commands.pipeline_options import (
    dry_run_option,
    name_server_option,
    operator_name,
    say_changed,
    show_document,
    spark_options,
    state_folder,
    state_option,
)
from sparrowmq.cli.commands.pipeline_session import (
    pipeline_session,
    ranges_table,
    show_ranges,
    shown_progress,
)
from sparrowmq.cli.completion import complete_groups, complete_topics
from sparrowmq.cli.option_types import Whole
from sparrowmq.cli.output import Value, table
from sparrowmq.cli.shell import json_option
from sparrowmq.client.errors import counted
from sparrowmq.spark.jobs.copy import Copied
from sparrowmq.spark.jobs.drain import (
    DrainFigures,
    DrainJob,
    DrainRun,
    Spread,
    drain_report,
    queues_for,
)
from sparrowmq.spark.jobs.job import AdminOperator
from sparrowmq.spark.jobs.journal import JobJournal, journal_place
from sparrowmq.spark.wire.cluster import RemoteCluster


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option(
    "--group",
    required=True,
    shell_complete=complete_groups,
    help="The consumer group that is too slow.",
)
@click.option("--to", help="The temporary topic. [default: TOPIC-drain]")
@click.option(
    "--spread",
    type=click.Choice([spread.value for spread in Spread]),
    default=Spread.EVENLY.value,
    show_default=True,
    help="How its queues fill: evenly, or the same key to the same queue.",
)
@click.option("--rate", type=Whole(min=1), help="Most messages per second.")
@click.option(
    "--batch",
    type=Whole(min=1),
    default=100_000,
    show_default=True,
    help="Messages between two commits: this many may come twice after a kill.",
)
@click.option("--live", is_flag=True, help="Drain although members of the group are alive.")
@click.option(
    "--take-over",
    is_flag=True,
    help="Drain although another operator has begun and not finished it.",
)
@dry_run_option
@click.option("--report", is_flag=True, help="Only show the progress.")
@click.option("--hand-back", is_flag=True, help="Check that the temporary topic can be deleted.")
@click.option("--worked-by", help="The group that consumes the temporary topic. [default: GROUP]")
@click.option("--cleanup", is_flag=True, help="With --hand-back: delete the temporary topic.")
@json_option
@state_option
@name_server_option
@spark_options
def drain(
    topic: str,
    group: str,
    to: str | None,
    spread: str,
    rate: int | None,
    batch: int,
    live: bool,
    take_over: bool,
    dry_run: bool,
    report: bool,
    hand_back: bool,
    worked_by: str | None,
    cleanup: bool,
    as_json: bool,
    state: Path | None,
    name_server: str,
    master: str,
    settings: dict[str, str],
) -> None:
    """Move a slow group's backlog to a topic with more queues.

    The temporary topic has ten times the queues. Stop the group's members, drain, and start as many
    consumers as you like on the temporary topic. The group then continues with later messages. Run
    it again however it ended, even by a kill. When the temporary topic is consumed: --hand-back,
    and --cleanup to delete it.

    \b
    Examples:
      sparrowmq pipeline drain orders --group billing --dry-run
      sparrowmq pipeline drain orders --group billing
      sparrowmq pipeline drain orders --group billing --report
      sparrowmq pipeline drain orders --group billing --hand-back --cleanup
    """
    if dry_run and (report or hand_back):
        raise click.UsageError("--dry-run is for what would be copied, not for --report")
    if cleanup and not hand_back:
        raise click.UsageError("--cleanup goes with --hand-back")
    check_topics(name_server, [topic])
    with RemoteCluster(name_server) as cluster:
        folder = journal_place(state_folder(state) / f"drain-{topic}-{group}", cluster, topic)
    job = DrainJob(
        name_server=name_server,
        topic=topic,
        group=group,
        to=to or f"{topic}-drain",
        state=folder,
        spread=Spread(spread),
        batch_rows=batch,
        rows_per_second=rate,
        live=live,
        by=operator_name(),
        take_over=take_over,
    )
    with RemoteCluster(name_server, 10.0) as cluster, JobJournal(job.state) as journal:
        work = DrainRun(job, cluster, AdminOperator(name_server), journal)
        if dry_run:
            _show_plan(job, work.look(), as_json=as_json)
            return
        if not report and not hand_back:
            is_copied = work.prepare()["copy"]["isFinished"]
            session = nullcontext() if is_copied else pipeline_session("drain", master, settings)
            with session as spark, shown_progress("drain") as on_step:
                work.run(spark, on_step)
            say_changed(name_server)
        found = drain_report(work, worked_by or group)
        points = found.open_points() if hand_back else []
        is_done = hand_back and not points
        if is_done and cleanup:
            work.forget()
            say_changed(name_server)
        if as_json:
            state_now = "copied" if not hand_back else "not yet" if points else "complete"
            _show_document(work.job, found, "deleted" if is_done and cleanup else state_now, points)
        else:
            _show(work.job, found)
            if report or hand_back:
                _show_left(work, found, worked_by, is_check=hand_back)
            else:
                click.echo(f"next: consume {job.to}, then --hand-back --worked-by its group")
            if hand_back:
                _show_handed_back(work.job, points, is_deleted=cleanup)
        if points:
            sys.exit(1)


def _show_document(job: DrainJob, found: DrainFigures, state: str, points: Sequence[str]) -> None:
    """How far a drain is, for programs."""
    copied = found.copied
    facts: dict[str, Value] = {
        "topic": job.topic,
        "to": job.to,
        "group": job.group,
        "state": state,
        "messages": copied.wanted,
        "copied": copied.sent,
        "repeated": max(0, found.twice),
        "unhandled": found.left,
    }
    queues: list[list[Value]] = [
        [
            f"{queue.broker_name}/{queue.queue_id}",
            copied.starts[queue],
            end.offset,
            found.group[queue],
        ]
        for queue, end in sorted(copied.ends.items())
    ]
    columns = (("QUEUE", "queue"), ("WAS-AT", "wasAt"), ("FIXED-END", "fixedEnd"), ("AT", "isAt"))
    show_document(
        facts,
        table(columns, queues),
        table([("REASON", "reason")], [[point] for point in points], key="notYet"),
    )


def _show_plan(job: DrainJob, copied: Copied, *, as_json: bool) -> None:
    left = copied.wanted - copied.looked_at
    if as_json:
        facts: dict[str, Value] = {"topic": job.topic, "to": job.to, "group": job.group}
        facts |= {"left": left, "sent": copied.sent}
        queues: list[list[Value]] = [
            [name, count] for name, count in sorted(queues_for(copied).items())
        ]
        columns = (("BROKER", "broker"), ("QUEUES", "queues"))
        show_document(facts, ranges_table(copied), table(columns, queues, key="newQueues"))
        return
    show_ranges(copied)
    begun = f"; {copied.sent:,} were copied by an earlier run" if copied.sent else ""
    new = ", ".join(f"{count:,} on {name}" for name, count in sorted(queues_for(copied).items()))
    click.echo(
        f"{counted(left, 'message')} of {job.topic} would be copied to {job.to}"
        f" (queues: {new}){begun}"
    )
    if not copied.wanted:
        click.echo(f"group {job.group} has no backlog in {job.topic}")
    else:
        click.echo(f"group {job.group} would go on after them")
    click.echo("nothing was changed: a dry run", err=True)


def _show(job: DrainJob, found: DrainFigures) -> None:
    console = Console(highlight=False, soft_wrap=True)
    table = Table("queue", "was at", "fixed end", "backlog", "is at", box=None, padding=(0, 1))
    for column in table.columns[1:]:
        column.justify = "right"
    copied = found.copied
    for queue, end in sorted(copied.ends.items()):
        start = copied.starts[queue]
        values = (start, end.offset, end.offset - start, found.group[queue])
        name = f"{queue.broker_name}/{queue.queue_id}"
        table.add_row(name, *(f"{value:,}" for value in values))
    console.print(table)
    least, most = found.spread
    console.print(
        f"{copied.sent:,} of {copied.wanted:,} messages of {job.topic} copied to {job.to}:"
        f" {counted(len(found.there), 'queue')} with {least:,} to {most:,} each"
    )
    if found.twice > 0:
        console.print(f"{found.twice:,} of them are there twice: a batch that was cut short")


def _show_left(
    work: DrainRun, found: DrainFigures, worked_by: str | None, *, is_check: bool
) -> None:
    job = work.job
    if worked_by is None and not is_check:
        _show_groups(job, work.left_by_group())
        return
    click.echo(f"{found.left:,} of them are not handled yet by group {worked_by or job.group}")
    if found.left and worked_by is None:
        click.echo(f"--worked-by names the group that consumes {job.to}, if it is another")


def _show_groups(job: DrainJob, left: Mapping[str, int]) -> None:
    for group, number in left.items():
        click.echo(f"{number:,} of them are not handled yet by group {group}")
    if not left:
        click.echo(f"no group consumes {job.to} yet")


def _show_handed_back(job: DrainJob, points: Sequence[str], *, is_deleted: bool) -> None:
    for point in points:
        click.echo(f"not yet: {point}")
    if points:
        return
    click.echo(f"drain complete: group {job.group} continues with topic {job.topic} only")
    if is_deleted:
        click.echo(f"topic {job.to} deleted")


def commands() -> list[click.Command]:
    """For the group `sparrowmq pipeline`."""
    return [drain]
