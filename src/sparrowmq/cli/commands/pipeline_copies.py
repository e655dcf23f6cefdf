"""`sparrowmq pipeline replay` and `sparrowmq pipeline dead-letters`"""

from datetime import datetime
from pathlib import Path

import click

from sparrowmq.cli.commands.pipeline_archive import show_rows
from sparrowmq.cli.commands.pipeline_checks import (
    check_archive,
    check_condition,
    check_dead_letters,
    check_topics,
)
from sparrowmq.cli.commands.pipeline_options import (
    dry_run_option,
    name_server_option,
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
from sparrowmq.cli.completion import complete_dead_letter_groups, complete_topics
from sparrowmq.cli.option_types import Moment, Whole
from sparrowmq.cli.output import Value
from sparrowmq.cli.shell import json_option
from sparrowmq.client.errors import counted
from sparrowmq.clock import system_clock
from sparrowmq.spark.jobs.copy import Copied
from sparrowmq.spark.jobs.dead_letters import DeadLetters, send_back
from sparrowmq.spark.jobs.journal import JobJournal
from sparrowmq.spark.jobs.replay import ReplayJob, ReplayRun, journal_folder, sent_before
from sparrowmq.spark.wire.cluster import RemoteCluster

_rate = click.option("--rate", type=Whole(min=1), help="Most messages per second.")
_where = click.option(
    "--where",
    help="A condition in Spark's SQL on the columns: tags = 'paid' and properties['amount'] > 50.",
)


@click.command()
@click.argument("topic", shell_complete=complete_topics)
@click.option("--to", required=True, help="The topic to send to.")
@click.option(
    "--since", type=Moment(is_relative=False), required=True, help="Stored at this time or later."
)
@click.option(
    "--until", type=Moment(is_relative=False), required=True, help="Stored before this time."
)
@_where
@click.option("--by-key", is_flag=True, help="Send the same key to the same queue.")
@click.option("--archive", help="Read from this archive instead of from the brokers.")
@_rate
@click.option(
    "--batch",
    type=Whole(min=1),
    default=100_000,
    show_default=True,
    help="Messages between two commits: this many may come twice after a kill.",
)
@click.option("--again", is_flag=True, help="Send everything although it was sent before.")
@click.option(
    "--same-topic", is_flag=True, help="Send to TOPIC itself: each of its groups gets them again."
)
@dry_run_option
@json_option
@state_option
@name_server_option
@spark_options
def replay(
    topic: str,
    to: str,
    since: datetime,
    until: datetime,
    where: str | None,
    by_key: bool,
    archive: str | None,
    rate: int | None,
    batch: int,
    again: bool,
    same_topic: bool,
    dry_run: bool,
    as_json: bool,
    state: Path | None,
    name_server: str,
    master: str,
    settings: dict[str, str],
) -> None:
    """Send a time range of a topic to another topic, once.

    The same range is not sent twice.

    \b
    Examples:
      sparrowmq pipeline replay orders --to again --since 2026-01-01 --until 2026-02-01 --dry-run
      sparrowmq pipeline replay orders --to again --since 2026-01-01 --until 2026-02-01
    """
    if since >= until:
        raise click.UsageError(f"--since {since} is not before --until {until}")
    if to == topic and not same_topic:
        raise click.UsageError(
            f"--to {to} is the replayed topic itself: every group of {topic} would get these"
            " messages again. Name another topic with --to; if this is what you want, add"
            " --same-topic"
        )
    job = ReplayJob(
        name_server=name_server,
        topic=topic,
        to=to,
        since=since,
        until=until,
        where=where,
        by_key=by_key,
        archive=archive,
        batch_rows=batch,
        rows_per_second=rate,
    )
    if archive is not None:
        check_archive(archive, settings, topic)
    check_topics(name_server, [to] if archive else [topic, to])
    with RemoteCluster(name_server) as cluster:
        folder = journal_folder(state_folder(state), job, cluster)
    with JobJournal(folder) as journal:
        if dry_run:
            looked = _look(job, journal, again=again, master=master, settings=settings)
            _show_look(job, *looked, as_json=as_json)
            return
        if again:
            journal.put_aside()
        before = sent_before(journal)
        if before is None:
            job.check_range(system_clock())
        copied = before
        if before is None or not before.is_finished:
            if before is not None and not as_json:
                click.echo(f"{before.sent:,} messages, a part of it, were sent by an earlier run")
            with (
                pipeline_session("replay", master, settings) as spark,
                shown_progress("replay") as on_step,
            ):
                check_condition(spark, where)
                copied = ReplayRun(spark, job, journal).run(on_step)
            if copied.sent > (before.sent if before else 0):
                say_changed(name_server)
    assert copied is not None
    _show_sent(job, before, copied, as_json=as_json)


def _show_sent(job: ReplayJob, before: Copied | None, copied: Copied, *, as_json: bool) -> None:
    """Print what a run sent, and runs `before` it."""
    now = copied.sent - (before.sent if before else 0)
    if as_json:
        facts: dict[str, Value] = {"topic": job.topic, "to": job.to, "sentNow": now}
        show_document(facts | {"sent": copied.sent, "repeated": copied.repeated})
        return
    if before is not None and before.is_finished:
        click.echo(
            f"{before.sent:,} messages of {job.topic} were sent to {job.to} by an earlier run, and"
            " nothing was left to send; --again sends them once more"
        )
        return
    click.echo(
        f"{counted(now, 'message')} of {job.topic} sent to {job.to} now, {copied.sent:,} in all"
    )
    if copied.repeated:
        click.echo(f"at most {copied.repeated:,} of them came twice: a batch was cut short")
    if not copied.sent:
        click.echo(_why_nothing(job, copied))


def _look(
    job: ReplayJob,
    journal: JobJournal,
    *,
    again: bool,
    master: str,
    settings: dict[str, str],
) -> tuple[Copied, int | None]:
    """What would be sent, and how much of it fulfils --where, None without that. Spark counts what
    is in an archive, and what fulfils --where."""
    if job.archive is None and job.where is None:
        return ReplayRun(None, job, journal).look(again=again), None
    with pipeline_session("replay", master, settings) as spark:
        check_condition(spark, job.where)
        work = ReplayRun(spark, job, journal)
        copied = work.look(again=again)
        is_counted = job.where is not None and copied.left
        return copied, work.count(copied) if is_counted else None


def _show_look(job: ReplayJob, copied: Copied, fulfilling: int | None, *, as_json: bool) -> None:
    left = copied.wanted - copied.looked_at
    if as_json:
        facts: dict[str, Value] = {"topic": job.topic, "to": job.to, "left": left}
        facts |= {"matching": fulfilling, "sent": copied.sent}
        show_document(facts, ranges_table(copied))
        return
    show_ranges(copied)
    begun = f"; {copied.sent:,} were sent by an earlier run" if copied.sent else ""
    where = "" if fulfilling is None else f", of which {fulfilling:,} fulfil --where {job.where}"
    source = f"of {job.topic} in the archive {job.archive}" if job.archive else f"of {job.topic}"
    click.echo(f"{counted(left, 'message')} {source} would be sent to {job.to}{where}{begun}")
    if not copied.wanted:
        click.echo(_why_nothing(job, copied))
    elif copied.is_finished:
        click.echo("nothing is left to send; --again sends them once more")
    click.echo("nothing was sent: a dry run", err=True)


def _why_nothing(job: ReplayJob, copied: Copied) -> str:
    if copied.wanted and job.where is not None:
        return f"none of the {copied.wanted:,} messages of that time fulfils --where {job.where}"
    where = f" in the archive {job.archive}" if job.archive else ""
    return f"no message of {job.topic}{where} was stored from {job.since} until {job.until}"


@click.command("dead-letters")
@click.argument("group", shell_complete=complete_dead_letter_groups)
@_where
@click.option("--limit", type=Whole(min=1), default=20, show_default=True)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per dead letter, with --send-back one document.",
)
@click.option(
    "--send-back", "sending", is_flag=True, help="Send them; otherwise they are only shown."
)
@click.option("--to", help="Send them to this topic. [default: each to where it came from]")
@_rate
@state_option
@name_server_option
@spark_options
def dead_letters(
    group: str,
    where: str | None,
    limit: int,
    as_json: bool,
    sending: bool,
    to: str | None,
    rate: int | None,
    state: Path | None,
    name_server: str,
    master: str,
    settings: dict[str, str],
) -> None:
    """Show a group's dead letters, select some, send them back.

    \b
    Examples:
      sparrowmq pipeline dead-letters billing --where "properties['amount'] > 50"
      sparrowmq pipeline dead-letters billing --send-back
    """
    check_dead_letters(name_server, group)
    if to is not None:
        check_topics(name_server, [to])
    letters = DeadLetters(name_server=name_server, group=group, where=where)
    with pipeline_session("dead letters", master, settings) as spark:
        check_condition(spark, where)
        if not sending:
            rows = letters.frame(spark).orderBy("storeTimestamp").limit(limit + 1).collect()
            show_rows(rows, limit, "dead letter", as_json=as_json)
            return
        with RemoteCluster(name_server) as cluster:
            folder = letters.journal_folder(state_folder(state), cluster)
        with (
            JobJournal(folder) as journal,
            shown_progress("dead letters") as on_step,
        ):
            sent, copied = send_back(
                spark, letters, journal, to=to, rows_per_second=rate, on_step=on_step
            )
    if sent:
        say_changed(name_server)
    if as_json:
        show_document({"group": group, "sent": sent, "lookedAt": copied.wanted})
        return
    click.echo(f"{counted(sent, 'dead letter')} of {group} sent back")
    if not copied.wanted:
        click.echo("there are none that an earlier run with this condition has not looked at")


def commands() -> list[click.Command]:
    """For the group `sparrowmq pipeline`."""
    return [replay, dead_letters]
